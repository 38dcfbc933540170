import { describe, expect, it } from "vitest";
import { adviceOn, NO_ADVICE, troublesOf } from "../src/advice";
import type { Told } from "../src/facts";
import { ADVICE } from "./told";

const NOW_S = 10_000;

function told(name: string, more: Partial<Told> = {}): Told {
  return { ts: NOW_S - 1, name, ...more };
}

describe("what the log says lately", () => {
  it("is told once for what means the same, with how often, the newest first", () => {
    const events = [
      told("storage_over"), told("peer_refused", { reason: "clock-skew" }), told("storage_over"),
      told("peer_refused", { reason: "clock-skew" }), told("peer_refused", { reason: "odd" }),
    ];
    const found = troublesOf(events, ADVICE, NOW_S);
    expect(found.map(({ name, times, remedy }) => [name, times, remedy])).toEqual([
      ["peer refused", 1, "See why."], ["peer refused", 2, "Set the clock."],
      ["storage over", 2, "Mend storage_over."],
    ]);
  });

  it("lacks what is long ago, what needs nothing, and what is nobody's", () => {
    const old = told("loss_jumped", { ts: NOW_S - 601 });
    const events = [
      old, told("round_started"), told("peer_fault"), told("toString"), told("__proto__"),
      told("peer_refused", { reason: "constructor" }),
    ];
    expect(troublesOf(events, ADVICE, NOW_S).map(({ name }) => name)).toEqual(["peer refused"]);
    expect(troublesOf(events, NO_ADVICE, NOW_S)).toEqual([]);
  });

  it("has what is harmless while it is rare once it is not", () => {
    const faults = [1, 2, 3].map(() => told("peer_fault"));
    expect(troublesOf(faults.slice(1), ADVICE, NOW_S)).toEqual([]);
    expect(troublesOf(faults, ADVICE, NOW_S).map(({ times }) => times)).toEqual([3]);
  });

  it("is no list without end", () => {
    const names = Object.keys(ADVICE.events);
    const events = [...names, ...names, ...names].map((name) => told(name));
    expect(troublesOf(events, ADVICE, NOW_S)).toHaveLength(4);
  });
});

describe("advice on an event", () => {
  it("is what it means and what to do", () => {
    expect(adviceOn("storage_near", ADVICE)).toBe("Storage_near is. Mend storage_near.");
    expect(adviceOn("round_started", ADVICE)).toBe("A round has begun.");
    expect(adviceOn("storage_near", NO_ADVICE)).toBe("");
    expect(adviceOn("constructor", ADVICE)).toBe("");
  });
});
