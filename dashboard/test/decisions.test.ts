import { describe, expect, it } from "vitest";
import { DECISIONS_MAX, withDecision, type DecisionLine } from "../src/decisions";
import type { Told } from "../src/facts";
import { told } from "./told";

function after(...events: Told[]): readonly DecisionLine[] {
  return events.reduce<readonly DecisionLine[]>(withDecision, []);
}

describe("the loop's log", () => {
  it("has each decision with its reason, as a sentence", () => {
    expect(after(told("decision", 5, { decision: "train", reason: "a quorum is reachable" })))
      .toEqual([{ atS: 5, turn: "decided", what: "train", why: "A quorum is reachable." }]);
  });

  it("has what was expected beside what happened, and what was changed for that", () => {
    const [lesson, change] = after(
      told("lesson", 6, {
        round: 3, expected: { trained_s: 4 }, happened: { trained_s: 5.5, spread_s: 1.2 },
      }),
      told("policy_adapted", 7, { round: 3, reason: "patience falls to 2 s" }),
    );
    expect(lesson?.why).toBe("Training took 5.5 s, 4.0 s were expected. "
      + "The last contribution came 1.2 s after most.");
    expect(change).toMatchObject({ turn: "adapted", what: "after round 3" });
  });

  it("leaves out a lesson of a round in which nothing was measured, and other events", () => {
    const nothing = { round: 3, expected: { trained_s: null }, happened: { trained_s: null } };
    expect(after(told("lesson", 6, nothing), told("lesson", 6, { round: 3, happened: "x" }),
      told("peer_left", 7))).toEqual([]);
  });

  it("forgets the oldest", () => {
    const many = Array.from({ length: DECISIONS_MAX + 20 }, (_, at) => (
      told("decision", at, { decision: `d${at}`, reason: "r" })));
    const lines = after(...many);
    expect(lines).toHaveLength(DECISIONS_MAX);
    expect(lines.at(-1)?.what).toBe(`d${DECISIONS_MAX + 19}`);
  });
});
