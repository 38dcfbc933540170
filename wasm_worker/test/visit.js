/**
 * A visit to the page in headless Chromium, told as JSON on standard output.
 *
 *   node test/visit.js ADDRESS CHROMIUM ORDERS [SCREENSHOTS]
 *
 * Presses Start by keyboard and waits for the end; then starts workers of its own in the same page,
 * one for each order of the file ORDERS: the path of Python's files, the product, and the tasks.
 * Arrays in it are {"Float32Array" | "Int32Array": base64}.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [address, executablePath, ordersFile, screenshots] = process.argv.slice(2);
const PATIENCE_MS = 120_000; // beyond it something hangs
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
  "--enable-unsafe-webgpu"];
const LOOKS = [["wide", 1280, 900], ["narrow", 360, 740]]
  .flatMap((size) => ["light", "dark"].map((scheme) => [...size, scheme]));

const browser = await chromium.launch({ executablePath, args: QUIET });
const page = await (await browser.newContext()).newPage();
page.setDefaultTimeout(PATIENCE_MS);
const requests = [];
const complaints = [];
page.context().on("request", (request) => requests.push(request.url()));
page.on("console", (message) => {
  if (["error", "warning"].includes(message.type())) complaints.push(message.text());
});
page.on("pageerror", (error) => complaints.push(String(error)));

async function look(moment) {
  if (screenshots === undefined) return;
  for (const [name, width, height, colorScheme] of LOOKS) {
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme });
    const path = join(screenshots, `${moment}-${name}-${colorScheme}.png`);
    await page.screenshot({ path, fullPage: true });
  }
}

async function phase(wanted) {
  await page.waitForSelector(`body[data-phase="${wanted}"]`);
}

const startedMs = performance.now();
await page.goto(address);
// whoever tests may make the computer busy
await page.evaluate(() => document.getElementById("busy").click());
await look("idle");
await page.keyboard.press("Tab");
const focused = await page.evaluate(() => document.activeElement?.id);
await page.keyboard.press("Enter");
const focusedNext = await page.evaluate(() => document.activeElement?.id);
await look("loading");
await page.waitForSelector("#pieces tr", { state: "attached" });
const firstResultMs = performance.now() - startedMs;
await phase("practised");
await look("practised");
const told = await page.evaluate(() => ({
  isolated: crossOriginIsolated,
  now: document.getElementById("now").textContent,
  version: Object.fromEntries([...document.querySelectorAll("#version div")]
    .map(({ children: [label, words] }) => [label.textContent, words.textContent])),
  digests: [...document.querySelectorAll("#pieces tr")].map((row) => row.dataset.digest),
  times: [...document.querySelectorAll("#pieces td:nth-child(4)")].map((at) => at.textContent),
}));
await page.evaluate(() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
});
await look("open");

// of the page alone: some orders are there to go wrong
const loaded = [...requests], complained = [...complaints];
const script = requests.find((url) => url.includes("compute_worker"));
const answers = await page.evaluate(async ({ script, orders }) => {
  const kinds = { Float32Array, Int32Array };
  const arrays = (_, value) => {
    const [kind] = Object.keys(value ?? {}).filter((key) => key in kinds);
    if (!kind) return value;
    return new kinds[kind](Uint8Array.from(atob(value[kind]), (c) => c.charCodeAt(0)).buffer);
  };
  const answered = (worker) => new Promise((resolve, reject) => {
    worker.onerror = (event) => reject(new Error(event.message));
    worker.onmessage = ({ data }) => data.type === "loading" || resolve(data);
  });
  const answers = [];
  for (const { path, matmul, tasks } of JSON.parse(orders, arrays)) {
    const worker = new Worker(script, { type: "module" });
    const runtime = new URL(path, document.baseURI).href;
    worker.postMessage({ type: "load", runtime, matmul });
    answers.push([await answered(worker)]);
    for (const [id, task] of tasks.entries()) {
      worker.postMessage({ type: "practice", id, task });
      answers.at(-1).push(await answered(worker));
    }
    worker.terminate();
  }
  return answers;
}, { script, orders: readFileSync(ordersFile, "utf8") });

await browser.close();
const focusedButtons = [focused, focusedNext];
const asked = { loaded, requests, complained };
console.log(JSON.stringify({ ...told, focusedButtons, firstResultMs, ...asked, answers }));
