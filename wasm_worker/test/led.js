/**
 * The page's states, each brought about by workers that are led; told as JSON on standard output.
 *
 *   node test/led.js ADDRESS CHROMIUM [SCREENSHOTS]
 *
 * The site at ADDRESS has the workers of test/fakes in place of its own.
 */

import { join } from "node:path";
import { chromium } from "playwright-core";

const [address, executablePath, screenshots] = process.argv.slice(2);
const LOOKS = [["wide", 1280, 900], ["narrow", 360, 740]]
  .flatMap((size) => ["light", "dark"].map((scheme) => [...size, scheme]));
// the words of each reason are view.test.ts's; whether the page comes back by itself
const REASONS = { lost: true, clock: false, standing: false, storage: false };
const JOINED = {
  type: "joined", name: "5e".repeat(32), lifetime: [1204, 1180, 3], peers: 1,
  gateway: {
    chainId: "c4".repeat(32), nodeId: "0d".repeat(32), peerId: "12D3KooW", protocolVersion: 2,
    site: "51".repeat(32), wanted: [], sessions: [3, 256], transport: "ws",
    address: "/ip4/127.0.0.1/tcp/4001/ws/p2p/12D3KooWAZRU3JQxK6sX2f46HmvRMEtJ75MA9VTENUhWdwh9",
  },
};

const browser = await chromium.launch({
  executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
});
const complaints = [];
const seen = {};

/** Runs in the page: a battery, a processor and a look at the tab that tests change. */
function surround() {
  const battery = Object.assign(new EventTarget(), { charging: true });
  navigator.getBattery = async () => battery;
  window.plug = (charging) => {
    battery.charging = charging;
    battery.dispatchEvent(new Event("chargingchange"));
  };
  const listeners = [];
  window.PressureObserver = class {
    constructor(hear) {
      listeners.push(hear);
    }

    async observe() {}
  };
  window.press = (state) => listeners.forEach((hear) => hear([{ state }]));
  let isHidden = false;
  Object.defineProperty(document, "hidden", { get: () => isHidden });
  window.hide = (hidden) => {
    isHidden = hidden;
    document.dispatchEvent(new Event("visibilitychange"));
  };
}

class Tab {
  static async open(context) {
    const tab = new Tab();
    tab.page = await context.newPage();
    tab.page.on("pageerror", (error) => complaints.push(String(error)));
    tab.page.on("console", (message) => {
      if (message.type() === "error") complaints.push(message.text());
    });
    await tab.page.addInitScript(surround);
    await tab.page.addInitScript(() => {
      const channel = new BroadcastChannel("lead");
      window.heard = [];
      window.lead = (to, message) => channel.postMessage({ to, message });
      channel.addEventListener("message", ({ data }) => {
        if (data.from) window.heard.push(data);
      });
    });
    await tab.page.goto(address);
    await tab.page.uncheck("#busy"); // whoever tests may make it so
    return tab;
  }

  lead(to, message) {
    return this.page.evaluate(([to, message]) => window.lead(to, message), [to, message]);
  }

  /** All that `from` was told, up to a message of this type: each is returned once. */
  async told(from, type) {
    await this.page.waitForFunction(
      ([by, kind]) => window.heard.some(
        ({ from, message }) => from === by && message.type === kind),
      [from, type]);
    return this.page.evaluate((from) => {
      const mine = window.heard.filter((each) => each.from === from);
      window.heard = window.heard.filter((each) => each.from !== from);
      return mine.map(({ message }) => message);
    }, from);
  }

  async phase(...phases) {
    const wanted = phases.map((phase) => `body[data-phase="${phase}"]`).join(", ");
    await this.page.waitForSelector(wanted, { timeout: 60_000 });
    return this.page.evaluate(() => ({
      phase: document.body.dataset.phase, now: document.getElementById("now").textContent,
      why: document.getElementById("why").textContent,
      said: document.getElementById("said").textContent,
      notes: [...document.querySelectorAll("#notes li")].map((each) => each.textContent),
      buttons: [...document.querySelectorAll(".card button:not([hidden])")]
        .map((each) => each.textContent),
      marks: [...document.querySelectorAll("#map .cell")].map((each) => each.classList[1]),
      tiles: [...document.querySelectorAll("#tiles dd")].map((each) => each.textContent),
    }));
  }

  click(id) {
    return this.page.click(`#${id}`);
  }

  /** What is told from now on is told by workers that this has started. */
  async start() {
    await this.page.evaluate(() => {
      window.heard = [];
    });
    await this.click("start");
  }

  async loaded() {
    await this.told("compute", "load");
    await this.lead("compute", "load");
  }

  /** From any state with a Start to a session that waits for work. */
  async joined() {
    await this.start();
    await this.told("net", "join");
    await this.loaded();
    await this.phase("joining");
    await this.lead("net", JOINED);
    await this.phase("waiting");
    await this.told("net", "ready");
  }

  give(id, kind) {
    return this.lead("net", {
      type: "task", task: { id, kind, parameters: [], blobs: [], deadlineMs: 30_000 },
    });
  }

  take(id, agreed) {
    return this.lead("net", { type: "taken", task: id, agreed, lifetime: [1205, 1181, 3] });
  }

  async look(name) {
    if (screenshots === undefined) return;
    for (const [size, width, height, colorScheme] of LOOKS) {
      await this.page.setViewportSize({ width, height });
      await this.page.emulateMedia({ colorScheme });
      await this.page.evaluate(() => scrollTo(0, 0));
      const path = join(screenshots, `${name}-${size}-${colorScheme}.png`);
      await this.page.screenshot({ path, fullPage: name.startsWith("all") });
    }
  }

  async note(name, ...phases) {
    seen[name] = await this.phase(...phases);
    await this.look(name);
  }
}

async function aSession(tab) {
  await tab.note("idle", "idle");
  await tab.click("start");
  await tab.told("compute", "load");
  await tab.note("loading", "loading");
  await tab.lead("compute", "load");
  await tab.note("joining", "joining");
  await tab.lead("net", JOINED);
  await tab.note("waiting", "waiting");
  await tab.told("net", "ready");
  for (const [at, kind] of ["dag", "slice", "certificate", "loss", "chunks", "dag"].entries()) {
    await tab.give(`t${at}`, kind);
    await tab.told("net", "verdict");
    if (at !== 3) await tab.take(`t${at}`, at !== 4);
  }
  await tab.give("long", "segment");
  await tab.told("compute", "task");
  await tab.note("working", "working");
  await tab.page.evaluate(() => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
  await tab.look("all");
  await tab.page.evaluate(() => {
    for (const each of document.querySelectorAll("details")) each.open = false;
  });
}

/** A session whose first verdict comes before Python is there. */
async function anEarlyStart(tab) {
  await tab.start();
  await tab.told("net", "join");
  await tab.lead("net", JOINED);
  await tab.told("early", "begun");
  await tab.lead("early", "proves");
  seen.askedEarly = (await tab.told("net", "ready")).at(-1);
  await tab.give("e1", "dag");
  seen.toldEarly = (await tab.told("net", "verdict")).at(-1);
  await tab.take("e1", true);
  await tab.note("early", "loading");
  await tab.loaded();
  await tab.phase("working", "waiting");
  seen.askedLater = (await tab.told("net", "ready")).at(-1);
  await tab.click("finish");
}

async function aPause(tab) {
  await tab.click("pause");
  await tab.note("paused", "paused");
  await tab.lead("compute", "finish");
  seen.toldInPause = await tab.told("net", "verdict");
  await tab.click("pause");
  await tab.told("net", "ready");
  await tab.page.locator("#duty").fill("20");
  await tab.give("r1", "segment");
  await tab.told("compute", "task");
  await tab.lead("compute", "finish");
  await tab.note("resting", "resting");
  await tab.page.locator("#duty").fill("100");
  await tab.phase("waiting", "working");
  await tab.page.check("#saver");
  seen.toldToSaver = (await tab.told("net", "ready")).at(-1);
  await tab.page.uncheck("#saver");
  await tab.told("net", "ready");
}

async function surroundings(tab) {
  await tab.page.evaluate(() => window.plug(false));
  seen.toldOnBattery = (await tab.told("net", "ready")).at(-1);
  await tab.note("battery", "battery");
  await tab.page.evaluate(() => window.plug(true));
  seen.toldAtTheMains = (await tab.told("net", "ready")).at(-1);
  await tab.page.check("#busy");
  await tab.page.evaluate(() => window.press("critical"));
  seen.toldWhenBusy = (await tab.told("net", "ready")).at(-1);
  await tab.note("busy", "busy");
  await tab.page.uncheck("#busy");
  await tab.told("net", "ready");
  await tab.page.evaluate(() => window.hide(true));
  await tab.give("h1", "segment");
  await tab.told("compute", "task");
  await tab.lead("compute", "finish");
  await tab.note("hidden", "resting");
  await tab.page.evaluate(() => window.hide(false));
  await tab.phase("waiting", "working");
  await tab.told("net", "ready");
}

async function deaths(tab) {
  await tab.give("d1", "segment");
  await tab.told("compute", "task");
  await tab.lead("compute", "die");
  seen.toldOfDeath = await tab.told("net", "drop");
  await tab.note("worker-died", "loading");
  await tab.loaded();
  await tab.phase("waiting");
  await tab.lead("net", "die");
  await tab.note("net-died", "away");
  // at once, if it has not come back by itself
  await tab.page.evaluate(() => document.getElementById("start").click());
  await tab.told("net", "join");
  await tab.lead("net", JOINED);
  await tab.phase("waiting");
  await tab.click("finish");
  await tab.note("finished", "finished");
}

async function reasons(tab) {
  seen.reasons = {};
  for (const [reason, comesBack] of Object.entries(REASONS)) {
    await tab.joined();
    const againInMs = comesBack ? 60_000 : null;
    await tab.lead("net", { type: "left", reason, words: "so it said", againInMs });
    seen.reasons[reason] = await tab.phase("away", "refused");
    await tab.look(`left-${reason}`);
    if (comesBack) await tab.click("finish");
  }
}

async function otherEnds(tab) {
  await tab.start();
  await tab.told("net", "join");
  await tab.lead("net", { type: "left", reason: "no-gateway", words: "", againInMs: null });
  await tab.loaded();
  await tab.note("practised", "practised");
  await tab.start();
  await tab.told("compute", "load");
  await tab.lead("compute", { type: "failed", id: null, reason: "numpy could not be loaded" });
  await tab.note("broken", "broken");
}

async function twoTabs(context, first) {
  await first.joined();
  const second = await Tab.open(context);
  await second.click("start");
  await second.note("elsewhere", "elsewhere");
  await second.start();
  await first.phase("elsewhere");
  seen.toldOfRobbery = await second.told("net", "join");
  await second.loaded();
  await second.lead("net", JOINED);
  await second.phase("waiting");
  await first.click("start"); // and back
  await second.phase("elsewhere");
  await second.page.close();
  await first.click("finish");
  await first.phase("finished");
}

async function theKey(tab) {
  await tab.page.locator("summary", { hasText: "Your key" }).click();
  const saved = tab.page.waitForEvent("download");
  await tab.click("export");
  seen.saved = (await saved).suggestedFilename();
  await tab.click("erase");
  await tab.look("erasing");
  await tab.page.keyboard.press("Escape");
  await tab.click("erase");
  await tab.click("erase-key");
  await tab.told("net", "erase");
  await tab.page.waitForFunction(
    () => document.getElementById("key-words").textContent.includes("erased"));
}

/** Every control as assistive technology has it: its role and its name. */
async function controls(tab) {
  await tab.page.evaluate(() => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
  const client = await tab.page.context().newCDPSession(tab.page);
  const { nodes } = await client.send("Accessibility.getFullAXTree");
  const roles = ["button", "slider", "checkbox", "combobox", "progressbar", "status", "dialog"];
  return nodes.filter(({ ignored, role }) => !ignored && roles.includes(role?.value))
    .map(({ role, name }) => [role.value, name?.value ?? ""]);
}

const context = await browser.newContext();
const tab = await Tab.open(context);
await aSession(tab);
await aPause(tab);
await surroundings(tab);
await deaths(tab);
await reasons(tab);
await otherEnds(tab);
await twoTabs(context, tab);
await anEarlyStart(tab);
await theKey(tab);
seen.controls = await controls(tab);
const kept = await Tab.open(context);
await kept.page.locator("#duty").fill("40");
await kept.page.reload();
seen.keptDuty = await kept.page.inputValue("#duty");
await browser.close();
console.log(JSON.stringify({ seen, complaints }));
