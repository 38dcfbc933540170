/**
 * A visit to a gateway that falls and comes back, told line by line on standard output.
 *
 *   node test/comes_back.js ADDRESS CHROMIUM working | loading
 *
 * Says `working` once it has practised and sent a verdict; or `loading` once it asks for numpy,
 * which it does not get before it has read a line. Then `away` once it has lost the gateway, `back`
 * after another verdict, in another session, with nobody having touched anything. Then it closes
 * the tab at a piece and says `closed`, opens another one once it has read a line, and tells as
 * JSON what both knew of the volunteer; and stays until its standard input ends.
 */

import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [address, executablePath, when] = process.argv.slice(2);
const PATIENCE_MS = 240_000; // beyond it something hangs

const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (word) => console.log(word);
const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
});
const context = await browser.newContext();

async function started() {
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto(address);
  // whoever tests may make the computer busy
  await page.evaluate(() => document.getElementById("busy").click());
  await page.click("#start");
  return page;
}

const tile = (page, at) => page.evaluate(
  (index) => Number(document.querySelectorAll("#tiles dd")[index].textContent
    .replaceAll(",", "")), at);
const someMore = async (page, before) => page.waitForFunction(
  (count) => Number(document.querySelector("#tiles dd").textContent.replaceAll(",", "")) > count,
  before, { polling: 100 });
const computes = (page) => page.waitForSelector(
  'body[data-phase="working"], body[data-phase="waiting"]');
const known = async (page) => ({
  name: await page.evaluate(
    () => document.getElementById("key-words").textContent.match(/[0-9a-f]{64}/)?.[0]),
  all: await tile(page, 1),
});

try {
  if (when === "loading") {
    let isHeld = false;
    await context.route("**/*.whl", async (route) => {
      if (!isHeld) {
        isHeld = true;
        say("loading");
        await input.next();
      }
      await route.continue();
    });
  }
  const page = await started();
  if (when === "working") {
    await someMore(page, 0);
    // all that it loads comes from this gateway
    await computes(page);
    say("working");
  }
  await page.waitForSelector('body[data-phase="away"], body[data-phase="broken"]');
  const before = await tile(page, 0);
  const phase = await page.evaluate(() => document.body.dataset.phase);
  say(`${phase}: ${await page.textContent("#now")}`);
  await computes(page);
  await someMore(page, before);
  say("back");
  await page.waitForSelector('body[data-phase="working"]');
  const first = await known(page);
  await page.close({ runBeforeUnload: false });
  say("closed");
  await input.next();
  const next = await started();
  await next.waitForFunction(
    () => /^connected/.test(document.querySelector("#connection dd")?.textContent ?? ""));
  say(JSON.stringify([first, await known(next)]));
  await input.next();
} finally {
  await browser.close();
}
