import { expect, test } from "vitest";
import { EARLY, isOn, type Event, type State } from "../src/state";
import { viewOf } from "../src/view";
import {
  CALM, EXPECTED, JOINED, SETTINGS, VERSION, World, computed, given, left, net, press, taken,
  worker,
} from "./world";

test("keeps its invariants whatever happens in whatever order", () => {
  const odd: Event[] = [
    press("start"), press("pause"), press("resume"), press("finish"), press("hurry"),
    press("claimed"), press("taken"), press("robbed"), press("erase"), press("export"),
    worker({ type: "loading", step: "numpy" }, 1), worker({ type: "died", words: "gone" }),
    worker({ type: "died", words: "gone" }, 1), worker({ type: "useless", words: "gone" }, 1),
    worker({ type: "stranded" }), worker({ type: "stranded" }, EARLY),
    { type: "woken", timer: "load" },
    { type: "net-died", words: "gone" }, left("lost", 100), left("full", 100), left("idle", 100),
    left("no-gateway", null), left("clock", null), { type: "woken", timer: "rest" },
    { type: "woken", timer: "again" }, net({ type: "erased" }), taken("1", true),
    ...[{}, { workers: 2 }, { gpu: true }, { savesData: true }, { dutyPercent: 10 }].map(
      (change) => ({ type: "settings", settings: { ...SETTINGS, ...change } }) as const),
    ...[{}, { isHidden: true }, { isBusy: true }, { onBattery: true }].map(
      (change) => ({ type: "surroundings", surroundings: { ...CALM, ...change } }) as const),
  ];
  const reached = new Set<string>();
  for (let seed = 1; seed <= 150; seed++) {
    const world = new World();
    let drawn = seed, ids = 0, running = 0;
    const draw = (below: number): number => {
      drawn = (Math.imul(drawn, 1103515245) + 12345) >>> 0;
      return (drawn >>> 8) % below;
    };
    for (let turn = 0; turn < 120; turn++) {
      const expected = likely(world.state, () => `${ids++}`);
      const event = draw(4) > 0 ? expected[draw(expected.length)]! : odd[draw(odd.length)]!;
      world.nowMs += draw(500);
      world.do(event);
      for (const { type } of world.effects) {
        if (type === "spawn" || type === "spawn-early") running++;
        if (type === "kill") running--;
      }
      const { state } = world;
      expect(running, `seed ${seed}, turn ${turn}`).toBe(
        state.slots.length + Number(state.early !== null));
      const view = viewOf(state, world.nowMs);
      expect(view.buttons.start ?? view.buttons.finish, `seed ${seed}`).not.toBeNull();
      reached.add(view.phase);
    }
  }
  expect([...reached].sort()).toEqual([
    "away", "battery", "broken", "busy", "checking", "claiming", "elsewhere", "finished",
    "idle", "joining", "loading", "paused", "practised", "refused", "resting", "waiting", "working",
  ]);
}, 60_000);

/** What a world where all goes well would do next. */
function likely(state: State, newId: () => string): Event[] {
  if (state.run.at === "claiming") return [press("claimed")];
  if (!isOn(state)) return [press("start")];
  const events: Event[] = [];
  if (state.early?.at === "loading") events.push(worker({ type: "proves" }, EARLY));
  if (state.early?.at === "computing") events.push(computed(state.early.task.id, 700, EARLY));
  state.slots.forEach((slot, at) => {
    if (slot.at === "loading") events.push(worker({ type: "loaded", version: VERSION }, at));
    if (slot.at === "checking" && slot.isAsked) {
      const { piece } = slot;
      const digest = EXPECTED[piece]!;
      events.push(worker({ type: "practised", piece, digest, ms: 5 }, at));
    }
    if (slot.at === "computing") events.push(computed(slot.task.id, 700, at));
  });
  if (state.net.at === "joining") events.push(net({ type: "joining", step: "dial" }), net(JOINED));
  if (state.net.at === "joined") events.push(given(newId()), given(newId(), "loss"));
  return events.length > 0 ? events : [press("resume")];
}
