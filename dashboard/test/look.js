/**
 * Looks at the dashboard at ADDRESS in headless Chromium, and tells what is seen as JSON.
 *
 *   node test/look.js ADDRESS TOKEN ADMIN_TOKEN CHROMIUM [SCREENSHOTS]
 *
 * First without a token and with a wrong one, then with the right one: at two widths and in both
 * schemes, by keyboard, and looked over by axe-core.
 */

import { join } from "node:path";
import { launched, lookedOver, overheard, violations } from "./chromium.js";

const [address, token, adminToken, executablePath, screenshots] = process.argv.slice(2);
const PATIENCE_MS = 120_000; // beyond it something hangs
const LOOKS = [["wide", 1440, 900], ["narrow", 360, 740]]
  .flatMap((size) => ["light", "dark"].map((scheme) => [...size, scheme]));

const browser = await launched(executablePath);
const context = await browser.newContext({ reducedMotion: "reduce" });
const page = await context.newPage();
page.setDefaultTimeout(PATIENCE_MS);
const { requests, complaints } = overheard(page);

/** At each size and in each scheme: what axe-core finds, and whether anything sticks out. */
async function lookOver(moment) {
  const found = {};
  for (const [name, width, height, scheme] of LOOKS) {
    const path = screenshots && join(screenshots, `${moment}-${name}-${scheme}.png`);
    found[`${moment} ${name} ${scheme}`] = await lookedOver(page, [width, height, scheme], path);
  }
  return found;
}

const words = (selector) => page.textContent(selector);
/** Of an element that is empty until there is something to say. */
async function wordsOnceSaid(selector) {
  await page.waitForFunction((it) => document.querySelector(it)?.textContent, selector);
  return words(selector);
}

// without a token
await page.goto(address);
await page.waitForSelector("#token");
const found = { ...await lookOver("sign-in") };
const asksFor = await words("h1");
await page.fill("#token", "not a token");
await page.keyboard.press("Enter");
const misshapen = await wordsOnceSaid("#token-fault");
const complainedBefore = [...complaints];

// with a wrong one: the daemon refuses it, and the browser says so in its console
await page.fill("#token", "ff".repeat(32));
await page.keyboard.press("Enter");
await page.waitForFunction(() => document.querySelector("h1")?.textContent.includes("nothing"));
const refused = await words("h1");
// with the same one again: it is tried again
await page.fill("#token", "ff".repeat(32));
await page.keyboard.press("Enter");
await page.waitForFunction(() => document.querySelector("#token")?.value === "");
const refusedAgain = await words("h1");

// with the right one, in the part of the address that is not sent: nothing is loaded for it
await page.goto(`${address}#token=${token}`);
await page.waitForSelector("#nodes .gone", { state: "attached" });
await page.waitForSelector("#rounds .rounds li");
await page.waitForFunction(
  () => document.querySelector("#contributions")?.textContent.includes("thousand tokens"));
const others = complaints.filter((words) => !words.includes("401")); // some come late
complaints.splice(0, complaints.length, ...others.slice(complainedBefore.length));
const seen = {
  addressAfter: page.url(),
  now: await words("#now-title"),
  gone: await words("#nodes .gone"),
  rounds: await page.$$eval("#rounds .round-head", (all) => all.map((each) => each.textContent)),
  health: await page.$$eval("#health .parts li", (all) => all.map((each) => each.textContent)),
  curve: await page.getAttribute("#loss .plot", "aria-label"),
  request: await words("#members .requests"),
  logged: await words("#log .log"),
  images: await page.$$eval("main img", (all) => all.length),
  log: await page.$$eval("#log .log b", (all) => all.map((each) => each.textContent)),
};
seen.ways = await page.$$eval("#nodes td[data-label=Reached]", (all) => all.map((each) => (
  each.textContent)));
// the drawings' figures as tables, opened by keyboard
for (const summary of await page.$$(".figures summary")) await summary.press("Enter");
await page.waitForFunction(
  () => document.querySelectorAll(".figures table").length
    === document.querySelectorAll(".drawing").length);
seen.drawings = await page.$$eval(".drawing", (all) => Object.fromEntries(all.map((drawing) => [
  drawing.querySelector("[role=img]").getAttribute("aria-label"),
  [...drawing.querySelectorAll("tbody tr")].map((row) => (
    [...row.cells].map((cell) => cell.textContent))),
])));
seen.decisions = await page.$$eval("#decisions li", (all) => all.map((each) => each.textContent));
Object.assign(found, await lookOver("page"));

// rows of the log leave and come back as they were
const logged = () => page.$$eval("#log .log li", (all) => all.map((each) => each.textContent));
const loggedBefore = await logged();
await page.selectOption("#kind", "decisions");
await page.waitForFunction(
  (count) => document.querySelectorAll("#log .log li").length < count, loggedBefore.length);
const decisions = await logged();
await page.selectOption("#kind", "all");
await page.waitForFunction(
  (count) => document.querySelectorAll("#log .log li").length === count, loggedBefore.length);
const loggedAfter = await logged();

// by keyboard: each button of the controls, a dialog that takes and gives back the focus
await page.setViewportSize({ width: 1440, height: 900 });
await page.focus("#controls button.danger");
await page.keyboard.press("Enter");
await page.waitForSelector("dialog[open]");
const inDialog = await page.evaluate(() => document.activeElement?.id);
found.dialog = await violations(page);
if (screenshots !== undefined) await page.screenshot({ path: join(screenshots, "dialog.png") });
await page.keyboard.type("short");
await page.keyboard.press("Enter");
const dialogFault = await wordsOnceSaid("#admin-fault");
await page.keyboard.press("Escape");
await page.waitForSelector("dialog", { state: "detached" });
const afterDialog = await page.evaluate(() => document.activeElement?.textContent);

// an order by a token that only reads is refused, and the browser says so in its console
await page.click("#controls button:not(.danger)");
await page.fill("#admin-token", token);
const complainedSoFar = complaints.length;
await page.keyboard.press("Enter");
const readOnly = await wordsOnceSaid("#admin-fault");
complaints.length = complainedSoFar;
// by the right one it is done
await page.fill("#admin-token", adminToken);
await page.keyboard.press("Enter");
await page.waitForSelector("dialog", { state: "detached" });
await page.waitForFunction(
  () => document.querySelector("#controls button")?.textContent === "Resume");
const focusedAfter = await page.evaluate(() => document.activeElement?.closest("section")?.id);
await page.click("#members .requests button");
await page.fill("#admin-token", adminToken);
await page.keyboard.press("Enter");
await page.waitForSelector("#members .requests li", { state: "detached" });
// a setting: what it comes to first, and only then the change
await page.fill('[id="setting-log.files_max"]', "6");
await page.click("#settings .settings button");
await page.fill("#admin-token", adminToken);
await page.keyboard.press("Enter");
await page.waitForSelector(".difference");
const difference = await words(".difference tbody tr");
found.difference = await violations(page);
// somebody else changes them meanwhile, and this page hears of it: what is seen is confirmed
const settings = await fetch(new URL("/v1/settings", address), {
  headers: { Authorization: `Bearer ${token}` },
});
await fetch(new URL("/v1/settings", address), {
  method: "POST",
  headers: { Authorization: `Bearer ${adminToken}`, "Content-Type": "application/json" },
  body: JSON.stringify({
    changes: { "log.files_max": 9 }, digest: (await settings.json()).digest, confirm: true,
  }),
});
await page.waitForFunction(() => document.querySelector("#settings small")?.textContent
  .includes("now 9"));
const complainedBeforeChange = complaints.length;
await page.click("dialog button[type=submit]");
const meanwhile = await wordsOnceSaid("#admin-fault");
complaints.length = complainedBeforeChange;
await page.keyboard.press("Escape");
await page.waitForSelector("dialog", { state: "detached" });
await page.click("#settings .settings button");
await page.fill("#admin-token", adminToken);
await page.keyboard.press("Enter");
await page.waitForSelector(".difference");
await page.click("dialog button[type=submit]");
await page.waitForSelector("dialog", { state: "detached" });
await page.waitForFunction(() => document.querySelector("#settings small")?.textContent
  .includes("now 6"));
const changed = await words("#settings .said");

await page.reload();
await page.waitForSelector("#nodes .gone", { state: "attached" });
const nowAfterReload = await words("#now-title");

await browser.close();
console.log(JSON.stringify({
  asksFor, misshapen, refused, refusedAgain, seen, loggedBefore, decisions, loggedAfter, found,
  inDialog, dialogFault, afterDialog,
  readOnly, focusedAfter, difference, meanwhile, changed,
  nowAfterReload, requests, complaints: [...complainedBefore, ...complaints],
}));
