/**
 * What the dashboard at ADDRESS, with its token, shows of a node whose job is done, as JSON.
 *
 *   node test/glance.js ADDRESS CHROMIUM
 */

import { launched, overheard } from "./chromium.js";

const [address, executablePath] = process.argv.slice(2);
const PATIENCE_MS = 240_000; // beyond it something hangs

const browser = await launched(executablePath);
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const { complaints } = overheard(page);
  await page.goto(address);
  await page.waitForSelector(".link.good");
  await page.waitForSelector('.now[data-tone="good"]');
  await page.waitForSelector("#contributions meter");
  await page.waitForSelector("#settings input");
  await page.waitForSelector("#log .log li");
  console.log(JSON.stringify({
    link: await page.textContent(".link"),
    now: await page.textContent("#now-title"),
    contributed: await page.textContent("#contributions b"),
    checkpoints: await page.$$eval("#checkpoints summary b", (all) => all.map((each) => (
      each.textContent))),
    complaints,
  }));
} finally {
  await browser.close();
}
