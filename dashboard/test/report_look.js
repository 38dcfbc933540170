/**
 * Opens the report FILE of a simulated run from the disk in headless Chromium, and tells as JSON
 * what is seen, at two widths and in both schemes, and what axe-core finds.
 *
 *   node test/report_look.js FILE CHROMIUM [SCREENSHOTS]
 *
 * FILE tells of four nodes in seven seconds: tests/simnet/results/kept_run.py.
 */

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { launched, lookedOver, overheard, violations } from "./chromium.js";

const [file, executablePath, screenshots] = process.argv.slice(2);
const PATIENCE_MS = 240_000; // beyond it something hangs
const LOOKS = [["wide", 1440, 900], ["narrow", 390, 844]]
  .flatMap((size) => ["light", "dark"].map((scheme) => [...size, scheme]));
// lanes, and shares of the whole time: in the fault of lane 0, past it; lane 3 away, and back again
const PLACES = [[0, 3 / 7], [0, 5.5 / 7], [3, 3.5 / 7], [3, 5.5 / 7]];

const browser = await launched(executablePath);
const page = await browser.newPage({ reducedMotion: "reduce" });
try {
  page.setDefaultTimeout(PATIENCE_MS);
  const { requests, complaints } = overheard(page);
  const address = pathToFileURL(file).href;
  await page.goto(address);
  await page.waitForSelector("#timeline canvas");

  const found = {};
  const painted = {}; // the colours of the timeline, by node and second, at each look
  for (const [name, width, height, scheme] of LOOKS) {
    const look = `${name} ${scheme}`;
    const path = screenshots && join(screenshots, `report-${name}-${scheme}.png`);
    found[look] = await lookedOver(page, [width, height, scheme], path);
    painted[look] = await page.$eval("#timeline canvas", (canvas, places) => {
      const copy = new OffscreenCanvas(canvas.width, canvas.height)
        .getContext("2d", { willReadFrequently: true });
      copy.drawImage(canvas, 0, 0);
      const scale = canvas.width / canvas.clientWidth, left = 74, top = 22, lane = 30;
      return places.map(([row, share]) => copy.getImageData(
        scale * (left + share * (canvas.clientWidth - left)), scale * (top + row * lane + 4), 1, 1,
      ).data.join(" "));
    }, PLACES);
  }

  await page.setViewportSize({ width: 1440, height: 900 });
  const words = (selector) => page.textContent(selector);
  const all = (selector) => page.$$eval(selector, (each) => each.map((one) => one.textContent));
  // the timeline is laid out anew some frames after the window
  await page.waitForFunction(
    (narrow) => document.querySelector("#timeline canvas").clientWidth > narrow, LOOKS.at(-1)[1]);
  const whole = await words("#timeline .readout");
  const wide = await page.$eval("#timeline canvas", ({ clientWidth }) => clientWidth);
  await page.hover("#timeline canvas", { position: { x: 74 + (wide - 74) / 2, y: 22 + 10 } });
  await page.waitForFunction(
    () => document.querySelector("#timeline .readout").textContent.startsWith("node"));
  const pointed = await words("#timeline .readout");
  await page.mouse.move(0, 0);
  await page.focus("#timeline .buttons button");
  await page.keyboard.press("Enter");
  const closer = await words("#timeline .readout");
  await page.click("#timeline .figures summary");
  await page.waitForSelector("#timeline .figures table");
  const figures = await all("#timeline .figures tbody th");
  found["with a table open"] = await violations(page);
  const sides = await page.$$eval("#sides [role=img]", (all) => all[0]?.ariaLabel ?? null);
  const bars = Object.fromEntries(await page.$$eval("#sides .pair", (pairs) => pairs
    .filter((pair) => pair.textContent.startsWith("Certified tokens"))
    .map((pair) => [pair.firstElementChild.textContent,
      [...pair.querySelectorAll(".figure")].map((figure) => figure.textContent)])));
  console.log(JSON.stringify({
    title: await page.title(), heading: await words("h1"), cards: await all("h2"),
    picture: await page.getAttribute("#timeline [role=img]", "aria-label"),
    sides,
    bars, whole, closer, figures, pointed, found, painted, complaints,
    elsewhere: requests.filter((url) => url !== address && !url.startsWith("data:")),
  }));
} finally {
  await browser.close();
}
