/**
 * Presses Start at ADDRESS and tells, as JSON on standard output, why the page is refused.
 *
 *   node test/refused.js ADDRESS CHROMIUM
 */

import { chromium } from "playwright-core";

const [address, executablePath] = process.argv.slice(2);
const PATIENCE_MS = 240_000; // beyond it something hangs

const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
});
try {
  const page = await browser.newPage();
  await page.goto(address);
  await page.click("#start");
  await page.waitForSelector('body[data-phase="refused"]', { timeout: PATIENCE_MS });
  console.log(JSON.stringify(await page.evaluate(() => ({
    now: document.getElementById("now").textContent,
    why: document.getElementById("why").textContent,
    buttons: [...document.querySelectorAll(".card button:not([hidden])")]
      .map((each) => each.textContent),
  }))));
} finally {
  await browser.close();
}
