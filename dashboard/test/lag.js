/**
 * How late each event of a daemon stands on its dashboard in headless Chromium, as JSON.
 *
 *   node test/lag.js ADDRESS#token=TOKEN CHROMIUM SECONDS
 *
 * `page`: of each event [its time, when the page had it, when its row stood in the log], in
 * milliseconds since 1970; `bare`: [its time, when another page had it that does nothing else].
 * Those that were before the page are left out.
 */

import { launched } from "./chromium.js";

const [address, executablePath, seconds] = process.argv.slice(2);
const [origin, token] = address.split("#token=");

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

/** Runs in a page without a token, which shows nothing of a node. */
function follow(token) {
  window.lag = { events: [] };
  const read = async () => {
    const answer = await fetch("/v1/events", { headers: { Authorization: `Bearer ${token}` } });
    const reader = answer.body.getReader(), text = new TextDecoder();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + text.decode(value, { stream: true })).split("\n"), atMs = Date.now();
      rest = lines.pop();
      for (const line of lines.filter((each) => each.startsWith("data: {\"ts\""))) {
        window.lag.events.push([JSON.parse(line.slice(6)).ts * 1e3, atMs]);
      }
    }
  };
  void read();
}

const browser = await launched(executablePath);
try {
  const bare = await (await browser.newContext()).newPage(); // a token is of one tab
  await bare.goto(origin);
  await bare.waitForSelector("#token");
  await bare.evaluate(follow, token);
  const page = await browser.newPage();
  await page.addInitScript(watch);
  await page.goto(address);
  await page.waitForSelector("#log .log li");
  await page.waitForTimeout(2_000); // what comes with the beginning is not what is measured
  await page.evaluate(() => { window.lag.openedMs = Date.now(); window.lag.events = []; });
  await page.waitForTimeout(1_000 * Number(seconds));
  console.log(JSON.stringify({
    page: await page.evaluate(() => window.lag.events),
    bare: await bare.evaluate(() => window.lag.events),
  }));
} finally {
  await browser.close();
}
