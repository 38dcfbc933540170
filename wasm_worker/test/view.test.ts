import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { KINDS, kindsFor } from "../src/kinds";
import { REASONS, reasonOf } from "../src/reasons";
import { settingsView } from "../src/settings_view";
import { connectionOf, keyOf, mapOf, practiceRow, tilesOf, versionOf } from "../src/tables";
import { viewOf } from "../src/view";
import { duration, faultIn, pieces, sentence } from "../src/words";
import {
  CALM, SETTINGS, VERSION, World, computed, given, left, net, practised, press, taken,
  worker,
} from "./world";

const DOCS = readFileSync(join(import.meta.dirname, "../../docs/volunteers.md"), "utf8");

/** The first cells of the table under a heading of the docs, without their backquotes. */
function named(heading: string): string[] {
  const section = DOCS.split(`## ${heading}`)[1]!.split("\n## ")[0]!;
  const cells = [...section.matchAll(/^\| (`.*?) \|/gm)].map((found) => found[1]!);
  return cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map((found) => found[1]!));
}

describe("every state is told", () => {
  const begun = (): World => new World().do(press("start"), press("claimed"));
  const hidden = { type: "surroundings", surroundings: { ...CALM, isHidden: true } } as const;
  const states: [string, World, string | RegExp, string[]][] = [
    ["idle", new World(), "Nothing runs yet", ["Start"]],
    ["claiming", new World().do(press("start")), /other tabs/, ["Cancel"]],
    ["loading", begun(), "Loading Python", ["Cancel"]],
    ["checking", begun().do(practised()[0]!), "Practice piece 1 of 2", ["Pause", "Finish"]],
    ["joining", begun().do(...practised(), net({ type: "joining", step: "hello" })),
      "Introducing this browser to the gateway", ["Pause", "Finish"]],
    ["waiting", new World().joined(), "Waiting for a piece", ["Pause", "Finish"]],
    ["working", new World().joined().do(given("1", "slice")),
      "Merging a sample of updates once more", ["Pause", "Finish"]],
    ["resting", new World({ dutyPercent: 50 }).joined().do(given("1"), computed("1", 5000)),
      "A short rest", ["Pause", "Finish"]],
    ["resting", new World().joined().do(hidden, given("1"), computed("1", 5000)),
      "A short rest", ["Pause", "Finish"]],
    ["paused", new World().joined().do(press("pause")), "Paused by you", ["Resume", "Finish"]],
    ["battery", new World().joined().do({
      type: "surroundings", surroundings: { ...CALM, onBattery: true } }), /battery/,
    ["Pause", "Finish"]],
    ["busy", new World().joined().do({
      type: "surroundings", surroundings: { ...CALM, isBusy: true } }), /busy/,
    ["Pause", "Finish"]],
    ["away", new World().joined().do(left("lost", 120_000)), "The connection is lost",
      ["Try now", "Finish"]],
    ["away", begun().do(worker({ type: "stranded" })), "The gateway cannot be reached",
      ["Try now", "Finish"]],
    ["finished", new World().joined().do(given("1"), computed("1"), press("finish")),
      "Finished. You checked 1 piece: thank you", ["Start again"]],
    ["practised", begun().do(left("no-gateway", null), ...practised()),
      "All 2 practice pieces are the same, bit for bit", ["Try again"]],
    ["inexact", begun().do(...practised(0, ["xx"])), "Practice piece 1 came out different",
      ["Try again"]],
    ["elsewhere", new World().do(press("start"), press("taken")), /Another tab/,
      ["Work here instead"]],
    ["broken", begun().do(worker({ type: "useless", words: "no numpy" })), "It could not go on",
      ["Try again"]],
    ["refused", begun().do(left("clock", null)), "The clock of this computer is wrong",
      ["Start again"]],
  ];

  test.each(states)("%s", (phase, world, now, buttons) => {
    const view = viewOf(world.state, 0);
    expect(view.phase).toBe(phase);
    expect(view.now).toMatch(now);
    expect(view.why).toMatch(/^[A-Z].*[.)]$/);
    expect(Object.values(view.buttons).filter(Boolean)).toEqual(buttons);
    expect(view.chip).not.toBe("");
    expect(view.said).not.toBe("");
    expect(view.title).toMatch(/daa-compute/);
  });

  test("a listener is told of phases, and not of every piece", () => {
    const world = new World().joined();
    const said = viewOf(world.state, 0).said;
    for (const event of [given("1"), computed("1"), given("2", "loss")]) {
      expect(viewOf(world.do(event).state, 0).said).toBe(said);
    }
    expect(viewOf(world.do(press("pause")).state, 0).said).not.toBe(said);
    const away = new World().joined().do(left("lost", 60_000)).state;
    expect(viewOf(away, 1_000).said).toBe(viewOf(away, 2_000).said);
  });

  test("what was done is told for a moment longer, for pieces may be short", () => {
    const world = new World().joined().do(given("1", "loss"), computed("1"));
    expect(viewOf(world.state, 1_999)).toMatchObject({
      phase: "working", now: "Measuring how well the model predicts",
    });
    expect(viewOf(world.state, 2_000).phase).toBe("waiting");
  });

  test("progress grows from the first byte to the last practice piece", () => {
    const world = begun();
    const shares = [viewOf(world.state, 0).progress];
    const loading = (["python", "numpy", "kernels"] as const)
      .map((step) => worker({ type: "loading", step }));
    for (const event of [...loading, ...practised().slice(0, -1)]) {
      shares.push(viewOf(world.do(event).state, 0).progress);
    }
    expect(shares).toEqual([...shares].sort());
    expect(shares.at(-1)).toBeLessThan(1);
  });
});

describe("every reason", () => {
  const docs = named("Reasons");

  test("of the docs is told in words of its own, with what to do", () => {
    expect(docs).toHaveLength(24);
    for (const reason of docs) {
      const { title, advice } = REASONS[reason]!;
      expect(title, reason).toMatch(/^[A-Z][^.]*$/);
      expect(advice, reason).toMatch(/\.$/);
    }
    const titles = Object.values(REASONS).map(({ title }) => title);
    expect(new Set(titles).size).toBe(titles.length);
  });

  test("that is not known is told with what the gateway said", () => {
    const world = new World().joined();
    world.do(net({ type: "left", reason: "constructor", words: "no more", againInMs: null }));
    const view = viewOf(world.state, 0);
    expect(view.now).toBe("The gateway ended the session");
    expect(view.why).toMatch(/\(It said: no more\.\)$/);
    expect(reasonOf("toString").title).toBe("The gateway ended the session");
  });
});

test("the kinds are those of the docs, and each says what it is good for", () => {
  expect(kindsFor(false, [])).toEqual(named("Kinds of tasks").sort());
  for (const { now, why } of KINDS) expect(`${now}. ${why}`).toMatch(/^[A-Z].*\.$/);
});

describe("what can be looked up", () => {
  test("counts: of this visit, in all, and how many of those judged were right", () => {
    expect(tilesOf(new World().state).map(([, words]) => words)).toEqual(["0", "\u2013", "\u2013"]);
    const world = new World().joined().do(given("1"), computed("1"), taken("1", true));
    expect(tilesOf(world.state).map(([, words]) => words)).toEqual(["1", "8", "83 %"]);
  });

  test("the map has a row for each kind, with words beside the squares", () => {
    const world = new World({ savesData: true }).joined();
    world.do(given("1"), computed("1"), taken("1", true), given("2"));
    const rows = mapOf(world.state);
    expect(rows.map(({ id }) => id)).toEqual(KINDS.map(({ id }) => id));
    expect(rows.find(({ id }) => id === "dag")).toMatchObject({
      cells: ["agreed", "computing"], words: "1 being computed, 1 right",
    });
    expect(rows.find(({ id }) => id === "loss")!.words).toBe("not asked for: data saver");
    expect(rows.find(({ id }) => id === "slice")!.words).toBe("none yet");
  });

  test("the connection, in each of its states", () => {
    const world = new World().joined();
    expect(connectionOf(world.state)).toEqual(expect.arrayContaining([
      ["Transport", "ws"], ["Volunteers", "3 of 256 places were taken when this page came"],
    ]));
    expect(connectionOf(world.do(left("lost", 5)).state)[0]).toEqual(
      ["Gateway", "not connected: lost"]);
    expect(connectionOf(new World().state)[0]).toEqual(["Gateway", "not connected"]);
  });

  test("the version names what computes, and the page that the gateway serves", () => {
    expect(versionOf(new World().state)).toEqual([]);
    expect(versionOf(new World().joined().state)).toEqual([
      ["Page", "517e"], ["Protocol", "2"], ["recompute.py", "ab"],
      ["pieces.py", "cd"], ["Pyodide", "0.27.7"],
      ["numpy", "2.0.2"], ["Products by", "wasm"],
    ]);
  });

  test("a practice piece, and whether its bits are the same", () => {
    const row = practiceRow({ slot: 1, piece: 0, digest: "ab".repeat(32), agrees: false, ms: 7.6 },
      () => 1234);
    expect(row.cells).toEqual(["1", "2", "different", "8 ms", "1,234", "abababababababab"]);
  });

  test("the key, after whatever was done to it", () => {
    const key = (...events: Parameters<World["do"]>) => keyOf(new World().do(...events).state);
    expect(key().words).toBe("");
    expect(key(press("export"))).toEqual({ isBusy: true, words: "Preparing the file." });
    expect(key(press("erase")).isBusy).toBe(true);
    expect(key(net({ type: "exported", name: "k", file: "" })).words).toMatch(/saved/);
    expect(key(net({ type: "erased" })).words).toMatch(/erased/);
    expect(key(net({ type: "failed", reason: "no store" })).words).toMatch(/No store\.$/);
    expect(keyOf(new World().joined().state).words).toContain("5e5e");
  });
});

describe("settings", () => {
  const machine = { tellsBattery: true, tellsPressure: true, cores: 4, adapter: null };

  test("say what they mean, and which this browser cannot have", () => {
    const view = settingsView(SETTINGS, CALM, machine, true);
    expect(view).toMatchObject({ duty: "100 %", kept: "", gpu: { isPossible: false } });
    expect(view.workers).toMatch(/^One thread/);
    const mute = { ...machine, tellsBattery: false, tellsPressure: false };
    const dumb = settingsView(SETTINGS, CALM, mute, false);
    expect([dumb.battery.isPossible, dumb.busy.isPossible]).toEqual([false, false]);
    expect(dumb.kept).not.toBe("");
  });

  test("offer WebGPU by the name of a real adapter only", () => {
    const real = { isReal: true, name: "Radeon" } as const;
    expect(settingsView(SETTINGS, CALM, { ...machine, adapter: real }, true).gpu).toEqual({
      isPossible: true, words: expect.stringMatching(/^Radeon\./),
    });
    const soft = { isReal: false, words: "the adapter is software" } as const;
    expect(settingsView(SETTINGS, CALM, { ...machine, adapter: soft }, true).gpu).toEqual({
      isPossible: false, words: "Not here: the adapter is software.",
    });
  });

  test("warn of more workers than the computer has cores for", () => {
    const two = { ...SETTINGS, workers: 2 };
    expect(settingsView(two, CALM, { ...machine, cores: 2 }, true).workers).toMatch(/has 2/);
    expect(settingsView(two, CALM, machine, true).workers).not.toMatch(/has/);
  });

  test("say what data saver spares", () => {
    expect(settingsView(SETTINGS, CALM, machine, true).saver).toMatch(/quality, gradient and/);
    const saving = { ...SETTINGS, savesData: true };
    expect(settingsView(saving, CALM, machine, true).saver).toMatch(/^Only 3 of 7/);
  });
});

test("numbers and sentences read well", () => {
  expect([pieces(1), pieces(1234)]).toEqual(["1 piece", "1,234 pieces"]);
  expect([faultIn("Uncaught Error: full"), faultIn("")]).toEqual([
    "full", "the worker could not be started",
  ]);
  expect([duration(5), duration(300)]).toEqual(["5 s", "5 minutes"]);
  const read = [sentence("no numpy"), sentence("Gone!"), sentence("")];
  expect(read).toEqual(["No numpy.", "Gone!", ""]);
  expect(versionOf({ ...new World().state, version: VERSION })[0]![1]).toBe("ab");
});
