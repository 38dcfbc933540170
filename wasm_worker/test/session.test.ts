import { describe, expect, test } from "vitest";
import { EARLY, LIVES, isOn, type Event, type State } from "../src/state";
import { mapOf } from "../src/tables";
import { phaseOf, viewOf, type Phase } from "../src/view";
import {
  CALM, EXPECTED, JOINED, SETTINGS, World, computed, given, left, net, practised, press,
  taken, task, worker,
} from "./world";

const phaseAt = (state: State): Phase => phaseOf(state, 0);
const READY = { type: "ready", count: 1, kinds: expect.arrayContaining(["segment"]) };

describe("before and around a session", () => {
  test("nothing happens unless a person presses Start", () => {
    const world = new World();
    const events = [
      press("pause"), press("resume"), press("finish"), press("hurry"), press("robbed"),
      ...practised(), computed("1"), net(JOINED), given("1"), left("full", 5),
      { type: "surroundings", surroundings: CALM } as const,
      { type: "woken", timer: "rest" } as const,
      { type: "settings", settings: SETTINGS } as const,
    ];
    for (const event of events) {
      expect(world.do(event).effects, JSON.stringify(event)).toEqual([]);
      expect(phaseAt(world.state)).toBe("idle");
    }
  });

  test("Start asks for the right to work, then loads and dials at once", () => {
    const world = new World();
    expect(world.do(press("start")).effects).toEqual([{ type: "claim", byForce: false }]);
    expect(world.do(press("start")).effects).toEqual([]);
    expect(world.do(press("claimed")).effects).toEqual([
      { type: "spawn-early" },
      { type: "spawn", slot: 0, matmul: "wasm" },
      { type: "net", message: { type: "join", kinds: expect.arrayContaining(["dag"]) } },
    ]);
  });

  test("a second tab does nothing, and takes the work over only when it is told to", () => {
    const second = new World().do(press("start"), press("taken"));
    expect(phaseAt(second.state)).toBe("elsewhere");
    expect(second.do(press("start")).effects).toEqual([{ type: "claim", byForce: true }]);
    const first = new World().joined().do(press("robbed"));
    expect(phaseAt(first.state)).toBe("elsewhere");
    expect(first.told).toEqual([{ type: "leave" }]);
    expect(first.types()).toContain("kill");
  });

  test("a right that comes after Finish is given back", () => {
    const world = new World().do(press("start"), press("finish"));
    expect(phaseAt(world.state)).toBe("finished");
    expect(world.do(press("claimed")).effects).toEqual([{ type: "release" }]);
  });

  test("Finish stops everything, whatever it is at", () => {
    const worlds = [
      new World().do(press("start"), press("claimed"), ...practised()),
      new World().joined(),
      new World().joined().do(given("1")),
      new World().joined().do(press("pause")),
    ];
    const away = new World().joined().do(left("lost", 1000), press("finish"));
    expect(away.types()).toEqual(expect.arrayContaining(["kill", "sleep", "release"]));
    expect(away.told).toEqual([]);
    for (const world of worlds) {
      world.do(press("finish"));
      expect(world.types()).toEqual(["kill", "net", "sleep", "release"]);
      expect(world.told).toEqual([{ type: "leave" }]);
      expect(phaseAt(world.state)).toBe("finished");
    }
  });

  test("what the session before still says is not heard by the next", () => {
    const world = new World().joined().do(given("1"), press("finish"));
    world.do(press("start"), press("claimed"), left("left", null), taken("1", true));
    expect(isOn(world.state)).toBe(true);
    world.do(net({ type: "joining", step: "keys" }), ...practised(), net(JOINED));
    expect(phaseAt(world.state)).toBe("waiting");
    expect(world.do(left("standing", null)).state.run).toMatchObject({ at: "ended" });
  });
});

describe("practice", () => {
  test("comes piece by piece, and only then is the gateway asked for work", () => {
    const world = new World().do(press("start"), press("claimed"), net(JOINED));
    expect(world.told).not.toContainEqual(READY);
    const [loaded, first, second] = practised();
    expect(world.do(loaded!).effects).toEqual([{ type: "practise", slot: 0, piece: 0 }]);
    expect(world.do(first!).effects).toEqual([{ type: "practise", slot: 0, piece: 1 }]);
    expect(world.do(second!).told).toEqual([READY]);
  });

  test("that comes out different ends it, before anything counts", () => {
    const world = new World().do(press("start"), press("claimed"), net(JOINED));
    world.do(...practised(0, ["aa", "xx"]));
    expect(phaseAt(world.state)).toBe("inexact");
    expect(world.told).toEqual([{ type: "leave" }]);
  });

  test("goes on without a gateway, and is all that happens then", () => {
    const world = new World().do(press("start"), press("claimed"), left("no-gateway", null));
    expect(phaseAt(world.state)).toBe("loading");
    world.do(...practised());
    expect(phaseAt(world.state)).toBe("practised");
    expect(world.state.practice).toHaveLength(EXPECTED.length);
    expect(world.told).toEqual([]);
    const late = new World().do(press("start"), press("claimed"), ...practised());
    expect(phaseAt(late.do(left("no-gateway", null)).state)).toBe("practised");
  });

  test("of a piece that was not asked for ends it", () => {
    const world = new World().joined();
    world.do(worker({ type: "practised", piece: 0, digest: "aa", ms: 1 }));
    expect(phaseAt(world.state)).toBe("broken");
  });
});

describe("the early worker", () => {
  const PROOFS = { type: "ready", count: 1, kinds: ["certificate", "chunks", "dag"] };
  const proves = worker({ type: "proves" }, EARLY);
  const early = (): World =>
    new World().do(press("start"), press("claimed"), net(JOINED), proves);

  test("is given what needs no Python, while Python loads", () => {
    const world = early();
    expect(world.told).toContainEqual(PROOFS);
    world.do(given("1", "dag"));
    expect(world.effects).toEqual([{ type: "compute", slot: EARLY, task: task("1") }]);
    expect(world.do(computed("1", 3, EARLY)).told).toEqual([
      { type: "verdict", task: "1", result: [1], spentMs: 3 },
    ]);
    expect(world.state.tally.sent).toBe(1);
    expect(world.do(given("2", "loss")).effects).toEqual([]); // it waits for Python
    expect(phaseAt(world.state)).toBe("loading");
    expect(viewOf(world.state, 0).notes[0]).toContain("they need no Python");
    expect(viewOf(world.state, 0).buttons).toMatchObject({ pause: "Pause", finish: "Finish" });
  });

  test("goes when a worker has practised, and not before it has done what it is at", () => {
    const world = early().do(...practised());
    expect(world.effects).toContainEqual({ type: "kill", slot: EARLY });
    expect(world.told).toEqual([READY]);
    const busy = early().do(given("1"), ...practised());
    expect(busy.effects).not.toContainEqual({ type: "kill", slot: EARLY });
    busy.do(computed("1", 3, EARLY));
    expect(busy.told).toHaveLength(1);
    expect(busy.effects).toContainEqual({ type: "kill", slot: EARLY });
    expect(phaseAt(busy.do(given("2", "loss")).state)).toBe("working");
  });

  test("rests and pauses like any other", () => {
    const world = early().do(given("1"));
    expect(world.do(press("pause")).told).toEqual([{ ...PROOFS, count: 0 }]);
    expect(viewOf(world.state, 0).why).toMatch(/^The piece in hand is finished first/);
    expect(world.do(computed("1", 3, EARLY)).told).toHaveLength(1);
    expect(world.do(press("resume")).told).toEqual([PROOFS]);
    const idle = early();
    expect(idle.do(press("finish")).effects).toContainEqual({ type: "kill", slot: EARLY });
  });

  test.each(["died", "useless"] as const)("is no loss when it %s", (type) => {
    const world = early().do(given("1"), worker({ type, words: "gone" }, EARLY));
    expect(world.effects).toContainEqual({ type: "kill", slot: EARLY });
    expect(world.told).toEqual([
      { type: "drop", task: "1" }, { type: "ready", count: 0, kinds: READY.kinds },
    ]);
    expect(world.do(...practised()).told).toEqual([READY]);
  });

  test("that cannot do a kind is not asked for it again", () => {
    const world = early().do(given("1"), worker({ type: "unable", task: "1", words: "no" }, EARLY));
    expect(world.told).toEqual([
      { type: "drop", task: "1" }, { ...PROOFS, kinds: ["certificate", "chunks"] },
    ]);
  });
});

describe("work", () => {
  test("is computed, signed and judged", () => {
    const world = new World().joined();
    expect(world.do(given("1")).effects).toEqual([{ type: "compute", slot: 0, task: task("1") }]);
    expect(world.do(computed("1", 40)).told).toEqual([
      { type: "verdict", task: "1", result: [1], spentMs: 40 },
    ]);
    world.do(taken("1", null));
    expect(world.state.checks).toEqual([{ id: "1", kind: "dag", mark: "sent" }]);
    world.do(taken("1", true));
    expect(world.state.checks[0]!.mark).toBe("agreed");
    expect(world.state.tally).toEqual({ sent: 1, agreed: 1, differed: 0 });
    expect(world.state.lifetime).toEqual([8, 5, 1]);
    world.do(given("2"), computed("2"), taken("2", false));
    expect(world.state.tally).toEqual({ sent: 2, agreed: 1, differed: 1 });
  });

  test("is done by two workers where a person wants two", () => {
    const world = new World({ workers: 2 }).joined().do(...practised(1));
    expect(world.told).toEqual([{ ...READY, count: 2 }]);
    world.do(given("1"), given("2"));
    expect(world.effects.map((effect) => effect.type === "compute" && effect.slot)).toEqual([0, 1]);
    world.do({ type: "settings", settings: SETTINGS });
    expect(world.effects).toEqual(expect.arrayContaining([{ type: "kill", slot: 1 }]));
    expect(world.told).toEqual([{ type: "drop", task: "2" }, READY]);
  });

  test("stops with a pause: what is in hand is finished, what waits goes back", () => {
    const world = new World().joined().do(given("1"), given("2"));
    expect(world.do(press("pause")).told).toEqual([
      { type: "drop", task: "2" }, { type: "ready", count: 0, kinds: READY.kinds },
    ]);
    expect(world.do(computed("1")).told).toHaveLength(1);
    expect(world.do(given("3")).told).toEqual([{ type: "drop", task: "3" }]);
    expect(world.do(press("resume")).told).toEqual([READY]);
  });

  test.each(["onBattery", "isBusy"])("stops while %s, unless a person wants it", (what) => {
    const world = new World().joined();
    const event: Event = { type: "surroundings", surroundings: { ...CALM, [what]: true } };
    expect(world.do(event).told).toEqual([{ type: "ready", count: 0, kinds: READY.kinds }]);
    expect(phaseAt(world.state)).toBe(what === "onBattery" ? "battery" : "busy");
    const careless = { ...SETTINGS, sparesBattery: false, sparesBusy: false };
    expect(world.do({ type: "settings", settings: careless }).told).toEqual([READY]);
    expect(new World({ ...careless }).joined().do(event).told).toEqual([]);
  });

  test("is followed by rest, so that it takes the share of time that was chosen", () => {
    const world = new World({ dutyPercent: 25 }).joined();
    world.do(given("1"), computed("1", 300));
    expect(world.told).toHaveLength(1); // 900 ms of rest are saved up
    world.do(given("2"), computed("2", 100));
    expect(world.effects).toContainEqual({ type: "wake", timer: "rest", inMs: 1200 });
    expect(world.told.at(-1)).toEqual({ type: "ready", count: 0, kinds: READY.kinds });
    expect(phaseAt(world.state)).toBe("resting");
    expect(world.do(given("3")).effects).toEqual([]); // was on its way: it waits
    expect(world.do({ type: "woken", timer: "rest" }).types()).toEqual(["compute", "net"]);
  });

  test("of two workers is rested for whole, whichever ends in the other's rest", () => {
    const world = new World({ dutyPercent: 50, workers: 2 }).joined().do(...practised(1));
    world.do(given("1"), given("2"), computed("1", 8000), computed("2", 8000, 1));
    const rests = world.effects.filter(({ type }) => type === "wake");
    expect(rests).toEqual([{ type: "wake", timer: "rest", inMs: 4000 }]);
    world.do({ type: "woken", timer: "rest" });
    expect(world.effects).toContainEqual({ type: "wake", timer: "rest", inMs: 4000 });
    expect(world.do({ type: "woken", timer: "rest" }).told).toEqual([{ ...READY, count: 2 }]);
  });

  test("of hidden tabs takes half of the time at most", () => {
    const world = new World().joined();
    world.do({ type: "surroundings", surroundings: { ...CALM, isHidden: true } });
    world.do(given("1"), computed("1", 2000));
    expect(world.effects).toContainEqual({ type: "wake", timer: "rest", inMs: 2000 });
  });

  test("rests for no longer than half a minute, and gives back what would be late", () => {
    const world = new World({ dutyPercent: 10 }).joined();
    world.do(given("1"), computed("1", 20_000));
    expect(world.effects).toContainEqual({ type: "wake", timer: "rest", inMs: 30_000 });
    expect(world.do(given("2")).told).toEqual([{ type: "drop", task: "2" }]);
  });

  test("with data saver comes without large blobs", () => {
    const world = new World().joined();
    world.do({ type: "settings", settings: { ...SETTINGS, savesData: true } });
    const kinds = ["certificate", "dag", "slice"];
    expect(world.told).toEqual([{ type: "ready", count: 1, kinds }]);
    expect(world.do(given("1", "chunks")).told).toEqual([{ type: "drop", task: "1" }]);
  });

  test("that cannot be done is given back, and its kind is not asked for again", () => {
    const world = new World().joined().do(given("1", "loss"));
    world.do(worker({ type: "unable", task: "1", words: "no such model" }));
    expect(world.told[0]).toEqual({ type: "drop", task: "1" });
    expect(world.told[1]).toMatchObject({ type: "ready", count: 1 });
    expect(world.told[1]).not.toMatchObject({ kinds: expect.arrayContaining(["loss"]) });
  });

  test("of a kind after the other that cannot be done ends it", () => {
    const world = new World({ savesData: true }).joined();
    for (const [id, kind] of ["certificate", "dag", "slice"].entries()) {
      world.do(given(`${id}`, kind), worker({ type: "unable", task: `${id}`, words: "no" }));
    }
    expect(phaseAt(world.state)).toBe("broken");
  });

  test("given twice is done once", () => {
    const world = new World().joined().do(given("1"));
    expect(world.do(given("1")).effects).toEqual([]);
  });

  test("is remembered up to a limit", () => {
    const world = new World().joined();
    for (let id = 0; id < 300; id++) world.do(given(`${id}`), computed(`${id}`));
    expect(world.state.checks).toHaveLength(256);
    expect(mapOf(world.state)[1]!.cells).toHaveLength(24);
    expect(world.state.tally.sent).toBe(300);
  });
});

describe("workers", () => {
  test("that die are replaced, and what they had goes back", () => {
    const world = new World().joined().do(given("1"));
    world.do(worker({ type: "died", words: "out of memory" }));
    expect(world.types()).toEqual(["net", "kill", "spawn", "net"]);
    expect(world.told).toEqual([
      { type: "drop", task: "1" }, { type: "ready", count: 0, kinds: READY.kinds },
    ]);
    expect(viewOf(world.state, 0).notes).toEqual([
      "A worker had to be started anew: Out of memory.",
    ]);
    expect(world.do(...practised()).told).toEqual([READY]);
  });

  test("that die one after the other are given up, but not if they work in between", () => {
    const death = worker({ type: "died", words: "out of memory" });
    const world = new World().joined();
    for (let turn = 0; turn < 10; turn++) {
      world.do(given(`${turn}`), computed(`${turn}`), death, ...practised());
    }
    expect(isOn(world.state)).toBe(true);
    for (let turn = 0; turn < LIVES; turn++) world.do(death, ...practised());
    expect(phaseAt(world.state)).toBe("broken");
    expect(viewOf(world.state, 0).why).toMatch(/^Out of memory\./);
  });

  test("that cannot load end it; with WebGPU they are first tried without", () => {
    const useless = worker({ type: "useless", words: "the adapter rounds otherwise" });
    const world = new World({ gpu: true }).do(press("start"), press("claimed"));
    expect(world.effects).toContainEqual({ type: "spawn", slot: 0, matmul: "webgpu" });
    expect(world.do(useless).effects).toEqual([
      { type: "kill", slot: 0 }, { type: "spawn", slot: 0, matmul: "wasm" },
    ]);
    expect(viewOf(world.state, 0).notes[0]).toMatch(/^WebGPU is not used/);
    expect(phaseAt(world.do(useless).state)).toBe("broken");
  });

  test("that lose their gateway while they load do so again once it is back", () => {
    const stranded = worker({ type: "stranded" });
    const woken = { type: "woken", timer: "load" } as const;
    const world = new World({ gpu: true }).do(press("start"), press("claimed"), net(JOINED));
    expect(world.do(stranded).effects).toContainEqual(
      { type: "wake", timer: "load", inMs: 5_000 });
    expect(phaseAt(world.state)).toBe("away");
    expect(viewOf(world.do(left("lost", 120_000)).state, 0).why).toContain("comes back by itself");
    for (let turn = 0; turn < LIVES; turn++) {
      expect(world.do(woken).types()).toEqual(["wake"]);
    }
    const reload = [{ type: "kill", slot: 0 }, { type: "spawn", slot: 0, matmul: "webgpu" }];
    expect(world.do({ type: "woken", timer: "again" }, net(JOINED), woken).effects)
      .toEqual(expect.arrayContaining(reload));
    expect(world.do(...practised()).told).toEqual([{ ...READY }]);
    const asked = new World({ gpu: true }).do(press("start"), press("claimed"), stranded);
    expect(asked.do(press("hurry")).effects).toEqual(reload); // Try now
    expect(asked.do(stranded, press("finish")).types()).toContain("kill");
  });

  test("that nobody serves, though the gateway is there, load after growing pauses", () => {
    const stranded = worker({ type: "stranded" });
    const world = new World().do(press("start"), press("claimed"), net(JOINED));
    const pauses: number[] = [];
    const strand = (): void => {
      for (const effect of world.do(stranded).effects) {
        if (effect.type === "wake") pauses.push(effect.inMs);
      }
      expect(world.do({ type: "woken", timer: "load" }).types()).toContain("spawn");
    };
    for (let turn = 0; turn < 10; turn++) strand();
    expect(pauses.slice(0, 3)).toEqual([5_000, 10_000, 20_000]);
    expect(Math.max(...pauses)).toBe(320_000);
    world.do(...practised(), worker({ type: "died", words: "gone" }));
    strand();
    expect(pauses.at(-1)).toBe(5_000);
  });

  test("start anew when WebGPU is ticked", () => {
    const world = new World().joined().do(given("1"));
    world.do({ type: "settings", settings: { ...SETTINGS, gpu: true } });
    expect(world.effects).toContainEqual({ type: "spawn", slot: 0, matmul: "webgpu" });
    expect(world.told[0]).toEqual({ type: "drop", task: "1" });
  });

  test("a fault of the page itself is told", () => {
    const world = new World().joined().do({ type: "fault", words: "no such thing" });
    expect(viewOf(world.state, 0)).toMatchObject({ phase: "broken", tone: "bad" });
  });
});

describe("the net", () => {
  test("that is lost comes back by itself, and the new session hears of nothing old", () => {
    const world = new World().joined().do(given("1"));
    world.do(left("lost", 4000));
    expect(world.effects).toEqual([{ type: "wake", timer: "again", inMs: 4000 }]);
    expect(phaseAt(world.state)).toBe("away");
    expect(viewOf(world.state, 1000).why).toContain("Next try in 3 s");
    world.do({ type: "woken", timer: "again" });
    expect(world.told).toEqual([{ type: "join", kinds: expect.anything() }]);
    world.do(net(JOINED));
    expect(world.told).toEqual([READY]);
    expect(world.do(computed("1")).effects).toEqual([]);
    expect(world.state.checks[0]!.mark).toBe("dropped");
    expect(phaseAt(world.do(given("2")).state)).toBe("working");
  });

  test("is tried at once when a person wants it", () => {
    const world = new World().joined().do(left("full", 60_000));
    expect(world.do(press("hurry")).told).toEqual([{ type: "join", kinds: expect.anything() }]);
    expect(world.do(press("hurry")).told).toEqual([]);
  });

  test("that refuses for good ends it, and another page with the same key is told as such", () => {
    const world = new World().joined().do(left("standing", null));
    expect(phaseAt(world.state)).toBe("refused");
    expect(world.types()).toEqual(["kill", "sleep", "release"]);
    expect(phaseAt(new World().joined().do(left("elsewhere", null)).state)).toBe("elsewhere");
  });

  test("a place lost in a pause is asked for when it goes on, and not before", () => {
    const world = new World().joined().do(press("pause"), left("idle", 1000));
    expect(world.effects.filter(({ type }) => type === "wake")).toEqual([]);
    expect(world.do(press("resume")).told).toEqual([{ type: "join", kinds: expect.anything() }]);
  });

  test("whose worker dies is started again with growing pauses", () => {
    const world = new World().joined();
    const pauses: number[] = [];
    for (let fall = 0; fall < 10; fall++) {
      world.do({ type: "net-died", words: "gone" });
      for (const effect of world.effects) if (effect.type === "wake") pauses.push(effect.inMs);
      world.do({ type: "woken", timer: "again" });
    }
    expect(pauses.slice(0, 3)).toEqual([2000, 4000, 8000]);
    expect(Math.max(...pauses)).toBe(256_000);
    // one that falls whenever it has joined is no better
    world.do(net(JOINED), { type: "net-died", words: "gone" });
    expect(world.effects).toContainEqual({ type: "wake", timer: "again", inMs: 256_000 });
    world.do({ type: "woken", timer: "again" }, net(JOINED), ...practised(), given("1"));
    world.do(computed("1"), taken("1", null), { type: "net-died", words: "gone" });
    expect(world.effects).toContainEqual({ type: "wake", timer: "again", inMs: 2000 });
  });
});

describe("the key", () => {
  test("is saved to a file", () => {
    const world = new World().do(press("export"));
    expect(world.told).toEqual([{ type: "export" }]);
    world.do(net({ type: "exported", name: "key.json", file: "{}" }));
    expect(world.effects).toEqual([{ type: "save", name: "key.json", file: "{}" }]);
  });

  test("is erased after the session has ended", () => {
    const world = new World().joined().do(press("erase"));
    expect(world.told).toEqual([{ type: "leave" }, { type: "erase" }]);
    world.do(net({ type: "erased" }));
    expect([world.state.name, world.state.lifetime]).toEqual([null, null]);
  });

  test.each([
    net({ type: "failed", reason: "it is refused" }),
    { type: "net-died", words: "it is refused" } as const,
  ])("that cannot be saved is told", (event) => {
    const world = new World().do(press("export"), event);
    expect(world.state.key).toEqual({ at: "failed", words: "it is refused" });
  });
});
