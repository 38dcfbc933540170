/**
 * What a page's compute workers answer to orders (see orders.js), as JSON on standard output.
 *
 *   node test/gradient.js ADDRESS CHROMIUM ORDERS
 */

import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";
import { answersTo } from "./orders.js";

const [address, executablePath, ordersFile] = process.argv.slice(2);

const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
});
try {
  const page = await browser.newPage();
  const script = page.context().waitForEvent("request", (request) =>
    request.url().includes("compute_worker"));
  await page.goto(address);
  await page.click("#start");
  const url = (await script).url();
  await page.click("#finish"); // now the page itself does nothing
  console.log(JSON.stringify(await answersTo(page, url, readFileSync(ordersFile, "utf8"))));
} finally {
  await browser.close();
}
