/** What each visit of a page in headless Chromium does alike. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** A browser that asks nobody for anything by itself. */
export function launched(executablePath) {
  return chromium.launch({ executablePath, args: QUIET });
}

/** Addresses that the page asks for, and what the browser complains of: two lists that grow. */
export function overheard(page) {
  const requests = [], complaints = [];
  page.context().on("request", (request) => requests.push(request.url()));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  return { requests, complaints };
}

/** What axe-core finds in the page as it stands. */
export async function violations(page) {
  const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
  // by the debugger: the page's policy lets no such script in
  await page.evaluate(readFileSync(axe, "utf8"));
  const { violations: all } = await page.evaluate(() => window.axe.run(document, {
    resultTypes: ["violations"],
  }));
  return all.flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target}`));
}

/** The same at that size and in that scheme, and what sticks out; `path`: of a screenshot. */
export async function lookedOver(page, [width, height, colorScheme], path) {
  await page.setViewportSize({ width, height });
  await page.emulateMedia({ colorScheme });
  const found = await violations(page);
  const sticksOut = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (sticksOut > 0) found.push(`sticks out by ${sticksOut} px`);
  if (path !== undefined) await page.screenshot({ path, fullPage: true });
  return found;
}
