/**
 * A visit to the page in headless Chromium, told as JSON on standard output.
 *
 *   node test/visit.js ADDRESS CHROMIUM ORDERS [SCREENSHOTS]
 *
 * Presses Start by keyboard and waits for the end; then follows the file ORDERS (see orders.js) in
 * the same page.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { answersTo } from "./orders.js";

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

await page.goto(address);
// whoever tests may make the computer busy
await page.evaluate(() => document.getElementById("busy").click());
await look("idle");
await page.keyboard.press("Tab");
const focused = await page.evaluate(() => document.activeElement?.id);
await page.keyboard.press("Enter");
const focusedNext = await page.evaluate(() => document.activeElement?.id);
await look("loading");
await phase("practised");
await look("practised");
const told = await page.evaluate(() => ({
  isolated: crossOriginIsolated,
  now: document.getElementById("now").textContent,
  version: Object.fromEntries([...document.querySelectorAll("#version div")]
    .map(({ children: [label, words] }) => [label.textContent, words.textContent])),
  digests: [...document.querySelectorAll("#pieces tr")].map((row) => row.dataset.digest),
}));
await page.evaluate(() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
});
await look("open");

// of the page alone: some orders are there to go wrong
const loaded = [...requests], complained = [...complaints];
const script = requests.find((url) => url.includes("compute_worker"));
const answers = await answersTo(page, script, readFileSync(ordersFile, "utf8"));

await browser.close();
const focusedButtons = [focused, focusedNext];
const asked = { loaded, requests, complained };
console.log(JSON.stringify({ ...told, focusedButtons, ...asked, answers }));
