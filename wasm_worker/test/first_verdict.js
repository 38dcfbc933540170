/**
 * How soon a page at a gateway is of use, told as JSON on standard output.
 *
 *   node test/first_verdict.js ADDRESS CHROMIUM
 *
 * Milliseconds since the page was asked for, until it was first seen to be shown, to have joined,
 * to have a task, to have sent a verdict, to have Python, and to have practised all that it does.
 */

import { chromium } from "playwright-core";

const [address, executablePath] = process.argv.slice(2);
const PATIENCE_MS = 300_000; // beyond it something hangs

/** Runs in the page. */
function watch() {
  const seen = window.seen = {};
  const look = () => {
    const has = (selector) => document.querySelector(selector) !== null;
    const { phase } = document.body?.dataset ?? {};
    const isSo = {
      shown: phase !== undefined,
      joined: /^connected/.test(document.querySelector("#connection dd")?.textContent ?? ""),
      task: has("#map .cell"),
      verdict: has("#map .sent, #map .agreed"),
      python: has("#pieces tr"),
      ready: ["waiting", "working", "resting"].includes(phase),
    };
    const nowMs = Math.round(performance.timeOrigin + performance.now());
    for (const name in isSo) if (isSo[name]) seen[name] ??= nowMs;
  };
  new MutationObserver(look).observe(document, {
    attributes: true, childList: true, subtree: true, characterData: true,
  });
}

const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
});
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  await page.addInitScript(watch);
  const beganMs = Date.now();
  await page.goto(address);
  // whoever measures makes the computer busy
  await page.evaluate(() => document.getElementById("busy").click());
  await page.click("#start");
  await page.waitForFunction(() => window.seen.verdict && window.seen.ready);
  const seen = Object.entries(await page.evaluate(() => window.seen));
  console.log(JSON.stringify(Object.fromEntries(seen.map(([name, ms]) => [name, ms - beganMs]))));
} finally {
  await browser.close();
}
