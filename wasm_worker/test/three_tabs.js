/**
 * Three volunteers at a gateway, each in a browser profile of its own; the third one lies.
 *
 *   node test/three_tabs.js ADDRESS CHROMIUM FRIEND
 *
 * FRIEND is, in hex, how the end that the liar's friend claims begins: of its segments the liar
 * says that they lead just there. Says `working` once all three have practised, and works until its
 * standard input ends; then tells as JSON what each of them sees.
 */

import { chromium } from "playwright-core";

const [address, executablePath, friend] = process.argv.slice(2);
const PATIENCE_MS = 400_000; // beyond it something hangs

/** Runs in the liar's page, before its own scripts: what it tells its net worker is changed. */
function lieFor(friend) {
  const send = Worker.prototype.postMessage;
  const friends = new Set();
  const nothingOff = () => new Uint8Array(8); // a float64
  window.lies = 0;
  Worker.prototype.postMessage = function lying(message, ...rest) {
    if (message.type === "task" && message.task.kind === "segment") {
      const begins = [...message.task.blobs[1].slice(0, friend.length / 2)];
      const hex = begins.map((byte) => byte.toString(16).padStart(2, "0")).join("");
      if (hex === friend) friends.add(message.id);
    }
    if (message.type !== "verdict" || !friends.has(message.task)) {
      return send.call(this, message, ...rest);
    }
    window.lies += 1;
    const result = [message.result[0], nothingOff(), nothingOff(), nothingOff()];
    return send.call(this, { ...message, result }, ...rest);
  };
}

const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
});

async function volunteer(isLiar) {
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  if (isLiar) await page.addInitScript(lieFor, friend);
  await page.goto(address);
  // whoever tests may make the computer busy
  await page.evaluate(() => document.getElementById("busy").click());
  await page.click("#start");
  await page.waitForFunction(
    () => ["waiting", "working"].includes(document.body.dataset.phase), null, { polling: 100 });
  return page;
}

const seenBy = (page) => page.evaluate(() => ({
  phase: document.body.dataset.phase,
  now: document.getElementById("now").textContent,
  why: document.getElementById("why").textContent,
  tiles: Object.fromEntries([...document.querySelectorAll("#tiles div")]
    .map(({ children: [label, words] }) => [label.textContent, words.textContent])),
  name: document.getElementById("key-words").textContent.match(/[0-9a-f]{64}/)?.[0],
  lies: window.lies ?? 0,
}));

try {
  const pages = await Promise.all([false, false, true].map(volunteer));
  console.log("working");
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on("end", resolve));
  console.log(JSON.stringify(await Promise.all(pages.map(seenBy))));
} finally {
  await browser.close();
}
