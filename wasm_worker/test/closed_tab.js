/**
 * Two volunteers at a gateway, each in a browser profile of its own; the first one's tab goes.
 *
 *   node test/closed_tab.js ADDRESS CHROMIUM closed | crashed
 *
 * Says `ready` once both have practised and the second one pauses. Closes the first tab in the
 * middle of the first piece that comes, which that gives back; or has it crash, so that it cannot.
 * The first tab's workers never hear of the piece: it is in the middle of it however late we look.
 * Tells as JSON what it saw before, and has the second one go on; after its standard input ends,
 * it tells what that one sees.
 */

import { chromium } from "playwright-core";

const [address, executablePath, how] = process.argv.slice(2);
const PATIENCE_MS = 240_000; // beyond it something hangs
const PHASE_MS = 50; // between two looks at a page

const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
});

/** Runs in a page before its own scripts: what comes after the practice is never worked on. */
function neverWork() {
  const send = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function withoutTasks(message, ...rest) {
    if (message.type !== "task") send.call(this, message, ...rest);
  };
}

async function volunteer(works) {
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  if (!works) await page.addInitScript(neverWork);
  await page.goto(address);
  // whoever tests may make the computer busy
  await page.evaluate(() => document.getElementById("busy").click());
  await page.click("#start");
  await inPhase(page, "waiting");
  return page;
}

const inPhase = (page, phase) => page.waitForFunction(
  (wanted) => document.body.dataset.phase === wanted, phase, { polling: PHASE_MS });
const seenBy = (page) => page.evaluate(() => ({
  phase: document.body.dataset.phase,
  tiles: Object.fromEntries([...document.querySelectorAll("#tiles div")]
    .map(({ children: [label, words] }) => [label.textContent, words.textContent])),
  name: document.getElementById("key-words").textContent.match(/[0-9a-f]{64}/)?.[0],
}));

async function crash(page) {
  const crashed = page.waitForEvent("crash");
  const devtools = await page.context().newCDPSession(page);
  devtools.send("Page.crash").catch(() => undefined); // nobody is left to answer
  await crashed;
}

try {
  const [first, second] = await Promise.all([false, true].map(volunteer));
  await second.click("#pause");
  await inPhase(second, "paused");
  console.log("ready");
  await inPhase(first, "working");
  const seen = await seenBy(first);
  if (how === "closed") await first.close({ runBeforeUnload: false });
  else await crash(first);
  console.log(JSON.stringify(seen));
  await second.click("#pause");
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on("end", resolve));
  console.log(JSON.stringify(await seenBy(second)));
} finally {
  await browser.close();
}
