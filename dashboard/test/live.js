/**
 * Watches the dashboard of a node of a live network in headless Chromium, while others act there.
 *
 *   node test/live.js ADDRESS TOKEN ADMIN_TOKEN CHROMIUM [SCREENSHOTS]
 *
 * It writes a line of JSON at each stage, and goes on with the line that it is answered:
 *
 *   loss      the curve has gone on      request   a request waits to be approved
 *   member    it was approved here, and there is one member more
 *   watching  <- the id of a node to be killed
 *   gone      that one is red            drained   the node has stopped by the page's own button
 */

import { join } from "node:path";
import { createInterface } from "node:readline";
import { launched, lookedOver, overheard } from "./chromium.js";

const [address, token, adminToken, executablePath, screenshots] = process.argv.slice(2);
const PATIENCE_MS = 240_000; // beyond it something hangs
const LOOKS = [["wide", 1440, 900, "light"], ["narrow", 360, 740, "dark"]];
const CONTROLS = new Set(["button", "link", "textbox", "searchbox", "spinbutton", "combobox",
  "checkbox", "radio", "switch", "slider", "PopUpButton", "ComboBoxSelect", "menuitem", "tab"]);
const ROUNDS_SEEN = 2;

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const browser = await launched(executablePath);
const context = await browser.newContext({ reducedMotion: "reduce" });
const page = await context.newPage();
const accessibility = await context.newCDPSession(page);
page.setDefaultTimeout(PATIENCE_MS);
const { requests, complaints } = overheard(page);

/** Tells of this stage, and waits for the word to go on. */
async function at(stage, seen = {}) {
  process.stdout.write(`${JSON.stringify({ stage, ...seen })}\n`);
  const { value, done } = await lines.next();
  if (done) throw new Error(`nobody is there any more: at ${stage}`);
  return value;
}

const words = (selector) => page.textContent(selector);
const wordsOfCurve = () => page.getAttribute("#loss .plot", "aria-label");
const heightIn = (told) => Number(/, [0-9.]+ at height (\d+)\./.exec(told)?.[1] ?? 0);

/** Waits until the curve has that height. */
async function comesTo(height) {
  await page.waitForFunction((least) => {
    const told = document.querySelector("#loss .plot")?.getAttribute("aria-label") ?? "";
    return Number(/, [0-9.]+ at height (\d+)\./.exec(told)?.[1] ?? 0) >= least;
  }, height);
}

async function goesOn() {
  await comesTo(heightIn(await wordsOfCurve()) + ROUNDS_SEEN);
}

/** The controls of the page as the browser tells them to a screen reader: role and name. */
async function controls() {
  const { nodes } = await accessibility.send("Accessibility.getFullAXTree");
  return nodes.filter(({ ignored, role }) => !ignored && CONTROLS.has(role?.value))
    .map(({ role, name }) => [role.value, (name?.value ?? "").trim()]);
}

/** What axe-core finds while the page goes on living, and what sticks out. */
async function lookOver(moment) {
  const found = {};
  for (const [name, width, height, scheme] of LOOKS) {
    const path = screenshots && join(screenshots, `live-${moment}-${name}-${scheme}.png`);
    found[`${moment} ${name} ${scheme}`] = await lookedOver(page, [width, height, scheme], path);
  }
  return found;
}

/** Answers the dialog that stands open, and waits until it is gone. */
async function confirm() {
  await page.fill("#admin-token", adminToken);
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog", { state: "detached" });
}

await page.goto(`${address}#token=${token}`);
await page.waitForSelector(".link.good");
await page.waitForSelector("#loss .plot");
await page.waitForSelector("#nodes tbody tr");
await comesTo(1);
const before = await wordsOfCurve();
await goesOn();
await at("loss", { before, after: await wordsOfCurve() });

await page.waitForFunction(() => document.querySelector("#members .requests")?.textContent
  .includes("approvals weigh 2 of 3"));
const asked = await words("#members .requests li");
await at("request", {
  asked, members: await words("#members > .words"), found: await lookOver("request"),
  controls: await controls(),
});

await page.setViewportSize({ width: 1440, height: 900 });
const membersBefore = await page.$$eval("#nodes tbody tr", (all) => all.length);
await page.click("#members .requests button");
await page.waitForSelector("dialog[open] #admin-token"); // it opens after it is painted
const inDialog = await controls();
await confirm();
await page.waitForFunction(
  () => document.querySelector("#members > .words")?.textContent.startsWith("5 validators"));
await page.waitForSelector("#members .requests li", { state: "detached" });
const doomed = await at("member", {
  members: await words("#members > .words"), inDialog, membersBefore,
});

// looked for in the page itself: what a question of ours takes is no part of it
const red = page.evaluate(([id, patienceMs]) => new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error("nobody has turned red")), patienceMs);
  const look = () => {
    const row = [...document.querySelectorAll("#nodes tbody tr.gone")].find(
      (each) => each.querySelector("code").title === id);
    const mark = row?.querySelector(".mark");
    if (mark === undefined || !/ended/.test(row.textContent)) return;
    const atMs = Date.now();
    changes.disconnect();
    resolve({
      atMs, row: row.textContent,
      why: row.querySelector("small:not(th small)")?.textContent ?? "",
      colour: getComputedStyle(mark).color,
      logged: [...document.querySelectorAll("#log .log li")].map((each) => each.textContent)
        .filter((each) => each.includes("peer left")),
      others: [...document.querySelectorAll("#nodes tbody tr:not(.gone)")].length,
    });
  };
  const changes = new MutationObserver(look);
  changes.observe(document.querySelector("#nodes"), {
    subtree: true, childList: true, attributes: true, characterData: true,
  });
}), [doomed, PATIENCE_MS]);
await at("watching", { doomed });
const gone = await red;
await goesOn();
await at("gone", { ...gone, found: await lookOver("gone") });

await page.setViewportSize({ width: 1440, height: 900 });
const complainedSoFar = [...complaints];
await page.click("#controls button.danger");
await confirm();
const said = await words("#controls .said");
await page.waitForSelector(".link.bad");
// the end of a connection is what was asked for, and the browser says each one in its console
const since = complaints.slice(complainedSoFar.length)
  .filter((each) => !each.includes("net::ERR_"));
await at("drained", {
  said, link: await words(".link"), now: await words("#now-title"), why: await words(".now .why"),
  controls: await controls(), complaints: [...complainedSoFar, ...since], requests,
});
await browser.close();
process.exit(0);
