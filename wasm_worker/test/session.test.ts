import { describe, expect, test } from "vitest";
import type { FromWorker, Version } from "../src/protocol";
import { idle, isRunning, next, type Effect, type Event, type State } from "../src/session";
import { medianMs, viewOf } from "../src/view";

const VERSION: Version = { recompute: "ab", pyodide: "0.27.7", numpy: "2.0.2", matmul: "wasm" };
const EXPECTED = ["aa", "bb", "cc"];
const ready: FromWorker = { type: "ready", version: VERSION, loadMs: 1 };

function worker(message: FromWorker): Event {
  return { type: "worker", message };
}

function done(id: number, digest = EXPECTED[id]!): Event {
  return worker({ type: "done", id, answer: { digest, loss: 1 }, ms: 5 });
}

function press(type: "start" | "pause" | "resume" | "finish"): Event {
  return { type };
}

function after(...events: Event[]): { state: State; effects: Effect[] } {
  let state = idle(EXPECTED);
  let effects: readonly Effect[] = [];
  for (const event of events) [state, effects] = next(state, event);
  return { state, effects: [...effects] };
}

describe("a session", () => {
  test("does nothing before Start", () => {
    const buttons = [press("pause"), press("resume"), press("finish")];
    for (const event of [...buttons, worker(ready), done(0)]) {
      expect(after(event)).toEqual({ state: idle(EXPECTED), effects: [] });
    }
  });

  test("asks for one piece after the other and ends with the last", () => {
    expect(after(press("start")).effects).toEqual([{ type: "spawn" }]);
    expect(after(press("start"), worker(ready)).effects).toEqual([{ type: "ask", piece: 0 }]);
    const second = after(press("start"), worker(ready), done(0));
    expect(second.effects).toEqual([{ type: "ask", piece: 1 }]);
    const end = after(press("start"), worker(ready), done(0), done(1), done(2));
    expect(end.effects).toEqual([{ type: "stop" }]);
    expect(end.state.phase).toBe("finished");
    expect(end.state.results.every(({ agrees }) => agrees)).toBe(true);
  });

  test("takes a second Start for nothing", () => {
    expect(after(press("start"), press("start")).effects).toEqual([]);
  });

  test("asks for nothing while it is paused, and does not lose the piece in hand", () => {
    const paused = after(press("start"), worker(ready), press("pause"), done(0));
    expect(paused.effects).toEqual([]);
    expect(paused.state.results).toHaveLength(1);
    const resumed = after(press("start"), worker(ready), press("pause"), done(0), press("resume"));
    expect(resumed.effects).toEqual([{ type: "ask", piece: 1 }]);
  });

  test("asks no second time for a piece that was resumed before it came back", () => {
    const events = [press("start"), worker(ready), press("pause"), press("resume")];
    expect(after(...events).effects).toEqual([]);
    expect(after(...events, done(0)).effects).toEqual([{ type: "ask", piece: 1 }]);
  });

  test("stops the worker when it is finished early", () => {
    for (const events of [[], [worker(ready)], [worker(ready), press("pause")]]) {
      const end = after(press("start"), ...events, press("finish"));
      expect(end.effects).toEqual([{ type: "stop" }]);
      expect(end.state.phase).toBe("finished");
    }
  });

  test("says why it failed, stops the worker, and can start anew", () => {
    const failures: Event[] = [
      worker({ type: "failed", id: null, reason: "no numpy" }),
      { type: "died", reason: "no numpy" },
    ];
    for (const failure of failures) {
      const { state, effects } = after(press("start"), failure);
      expect([state.phase, state.reason]).toEqual(["failed", "no numpy"]);
      expect(effects).toEqual([{ type: "stop" }]);
      expect(next(state, press("start"))[1]).toEqual([{ type: "spawn" }]);
    }
  });

  test("takes no answer that was not asked for", () => {
    const { state } = after(press("start"), worker(ready), done(0), done(0));
    expect(state.phase).toBe("failed");
    expect(state.reason).toContain("piece 0");
  });

  test("counts a piece with other bits as different", () => {
    const { state } = after(press("start"), worker(ready), done(0), done(1, "ee"), done(2));
    expect(state.results.map(({ agrees }) => agrees)).toEqual([true, false, true]);
    const view = viewOf(state, () => 7);
    expect([view.tone, view.now]).toEqual(["bad", "1 of 3 pieces came out different"]);
  });

  test("keeps its invariants whatever happens in whatever order", () => {
    const all: Event[] = [
      press("start"), press("pause"), press("resume"), press("finish"), worker(ready),
      worker({ type: "loading", step: "numpy" }), done(0), done(1), done(2), done(9, "x"),
      { type: "died", reason: "gone" }, worker({ type: "failed", id: 1, reason: "odd" }),
    ];
    for (let seed = 1; seed <= 100; seed++) {
      let state = idle(EXPECTED);
      let drawn = seed;
      let workers = 0;
      for (let turn = 0; turn < 60; turn++) {
        drawn = (Math.imul(drawn, 1103515245) + 12345) >>> 0;
        // mostly the piece that was asked for: else hardly a run would come to its end
        const expected = state.asked === null ? worker(ready) : done(state.asked);
        const event = drawn >>> 30 ? expected : all[(drawn >>> 8) % all.length]!;
        const [then, effects] = next(state, event);
        for (const effect of effects) {
          if (effect.type === "spawn") workers++;
          if (effect.type === "stop") workers--;
          if (effect.type === "ask") expect(then.asked).toBe(effect.piece);
        }
        expect(workers, `seed ${seed}`).toBe(isRunning(then) ? 1 : 0);
        expect(then.results.map(({ piece }) => piece)).toEqual(then.results.map((_, at) => at));
        if (!isRunning(then)) expect(then.asked).toBeNull();
        const view = viewOf(then, () => 7);
        expect([view.start, view.finish].filter((words) => words !== null)).toHaveLength(1);
        state = then;
      }
    }
  });
});

test("the middle time is told, and none before the first", () => {
  expect(medianMs([])).toBe("\u2013");
  expect(medianMs([30, 10.4, 900])).toBe("30 ms");
});
