/**
 * A visit to a gateway that falls and comes back, told line by line on standard output.
 *
 *   node test/comes_back.js ADDRESS CHROMIUM
 *
 * Says `working` once it has practised and sent a verdict, `away` once it has lost the gateway,
 * `back` after another verdict, in another session, with nobody having touched anything; then it
 * closes the tab, says `closed`, and stays until its standard input ends.
 */

import { chromium } from "playwright-core";

const [address, executablePath] = process.argv.slice(2);
const PATIENCE_MS = 240_000; // beyond it something hangs

const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
});
const page = await browser.newPage();
page.setDefaultTimeout(PATIENCE_MS);

const verdicts = () => page.evaluate(
  () => Number(document.querySelector("#tiles dd").textContent.replaceAll(",", "")));
const someMore = async (before) => page.waitForFunction(
  (count) => Number(document.querySelector("#tiles dd").textContent.replaceAll(",", "")) > count,
  before, { polling: 100 });
const say = (word) => console.log(word);

try {
  await page.goto(address);
  // whoever tests may make the computer busy
  await page.evaluate(() => document.getElementById("busy").click());
  await page.click("#start");
  await someMore(0);
  // all that it loads comes from this gateway
  await page.waitForSelector('body[data-phase="working"], body[data-phase="waiting"]');
  say("working");
  await page.waitForSelector('body[data-phase="away"]');
  const [told, before] = [await page.textContent("#now"), await verdicts()];
  say(`away: ${told}`);
  await someMore(before);
  say("back");
  await page.close({ runBeforeUnload: false });
  say("closed");
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on("end", resolve));
} finally {
  await browser.close();
}
