/**
 * A volunteer's visit to a gateway in headless Chromium, told as JSON on standard output.
 *
 *   node test/volunteer.js ADDRESS CHROMIUM DOWNLOADS
 *
 * Presses Start, works until the gateway has found results of every kind to be right, saves the key
 * to the folder DOWNLOADS and finishes. Comes back after a reload, finishes, and erases the key.
 */

import { join } from "node:path";
import { chromium } from "playwright-core";

const [address, executablePath, downloads] = process.argv.slice(2);
const PATIENCE_MS = 240_000; // beyond it something hangs
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
  "--enable-unsafe-webgpu"];

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

const lines = (id) => page.evaluate((at) => Object.fromEntries(
  [...document.querySelectorAll(`#${at} div`)]
    .map(({ children: [label, words] }) => [label.textContent, words.textContent]),
), id);
const wait = (check) => page.waitForFunction(check, null, { polling: 50 });
const phase = () => page.evaluate(() => document.body.dataset.phase);

try {
  await page.goto(address);
  // whoever tests may make the computer busy
  await page.evaluate(() => document.getElementById("busy").click());
  await page.click("#start");
  await wait(() => [...document.querySelectorAll("#map tr")]
    .every((row) => row.querySelector(".agreed")));
  const [connection, version] = [await lines("connection"), await lines("version")];
  await page.evaluate(() => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
  const saved = page.waitForEvent("download");
  await page.click("#export");
  const file = join(downloads, (await saved).suggestedFilename());
  await (await saved).saveAs(file);
  await page.click("#finish");
  await page.waitForSelector('body[data-phase="finished"]');
  const [tiles, now] = [await lines("tiles"), await page.textContent("#now")];
  const marks = await page.evaluate(() => Object.fromEntries(
    [...document.querySelectorAll("#map tr")].map((row) =>
      [row.dataset.kind, row.querySelector(".words").textContent]),
  ));
  await page.reload();
  const { "This visit": atFirst } = await lines("tiles"); // it may soon have sent some
  await page.click("#start");
  await wait(() => /^connected/.test(document.querySelector("#connection dd")?.textContent ?? ""));
  const again = {
    connection: await lines("connection"),
    tiles: { ...await lines("tiles"), "This visit": atFirst },
  };
  await page.click("#finish");
  await page.evaluate(() => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
  await page.click("#erase");
  await page.click("#erase-key");
  await wait(() => /erased/i.test(document.getElementById("key-words").textContent));
  console.log(JSON.stringify({
    connection, version, file, tiles, now, marks, again, requests, complaints,
  }));
} catch (error) {
  console.error(await phase(), await page.textContent("main"), complaints);
  throw error;
} finally {
  await browser.close();
}
