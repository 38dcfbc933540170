/**
 * How late each event of a daemon stands on its dashboard in headless Chromium, as JSON.
 *
 *   node test/lag.js ADDRESS#token=TOKEN CHROMIUM SECONDS
 *
 * Of each event [its time, when the page had it, when its row stood in the log], in milliseconds
 * since 1970. Those that were before the page are left out.
 */

import { chromium } from "playwright-core";

const [address, executablePath, seconds] = process.argv.slice(2);

/** Runs in the page, before its own program. */
function watch() {
  const unseen = [], parse = JSON.parse;
  window.lag = { events: [], openedMs: Date.now() };
  JSON.parse = (text, ...more) => {
    const found = parse(text, ...more);
    if (typeof found?.ts === "number") unseen.push([found.ts * 1e3, Date.now()]);
    return found;
  };
  // What the page has heard it shows with the next look that it draws, all of it at once.
  const changes = new MutationObserver((found) => {
    if (!found.some(({ target }) => target.closest?.("#log"))) return;
    const atMs = Date.now();
    for (const [tsMs, hadMs] of unseen.splice(0)) {
      if (tsMs > window.lag.openedMs) window.lag.events.push([tsMs, hadMs, atMs]);
    }
  });
  changes.observe(document, { subtree: true, childList: true });
}

const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
});
try {
  const page = await browser.newPage();
  await page.addInitScript(watch);
  await page.goto(address);
  await page.waitForSelector("#log .log li");
  await page.waitForTimeout(2_000); // what comes with the beginning is not what is measured
  await page.evaluate(() => { window.lag.openedMs = Date.now(); window.lag.events = []; });
  await page.waitForTimeout(1_000 * Number(seconds));
  console.log(JSON.stringify(await page.evaluate(() => window.lag.events)));
} finally {
  await browser.close();
}
