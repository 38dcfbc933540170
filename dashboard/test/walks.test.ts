import { describe, expect, it } from "vitest";
import type { Told } from "../src/facts";
import { lastsS, lastToCome, stepsOf, walked, WALKS_MAX, type Walk } from "../src/walks";
import { ME, OTHERS, told } from "./told";

function walksOf(...events: Told[]): readonly Walk[] {
  return events.reduce<readonly Walk[]>(walked, []);
}

const ROUND = [
  told("round_started", 10, { round: 5 }),
  told("update_sealed", 13, { round: 5, loss_nats: 2.75 }),
  told("offer_eligible", 13.5, { round: 5, author: ME }),
  told("offer_eligible", 14, { round: 5, author: OTHERS[0] }),
  told("set_decided", 15, { round: 5, contributors: 3, left_out: 1 }),
  told("set_executed", 15.5, { round: 5 }),
  told("exec_certified", 16, { round: 5, signers: 3 }),
  told("round_finalized", 17, { round: 5, height: 5, contributors: 3 }),
];

describe("a round", () => {
  it("is told step by step, and its steps fill its time", () => {
    const [walk] = walksOf(...ROUND);
    const steps = stepsOf(walk!, 99);
    expect(steps.map(({ name, fromS, toS }) => [name, toS - fromS])).toEqual([
      ["train", 3], ["gather", 2], ["merge", 0.5], ["sign", 1.5],
    ]);
    expect(steps.some(({ isOpen }) => isOpen)).toBe(false);
    expect(lastsS(walk!, 99)).toBe(7);
    expect(walk).toMatchObject({
      end: "final", height: 5, contributors: 3, leftOut: 1, signers: 3, ownLoss: 2.75,
      acknowledged: [ME, OTHERS[0]],
    });
  });

  it("tells who came last, and how long after our own", () => {
    const [walk] = walksOf(...ROUND);
    expect(lastToCome(walk!)).toEqual({ author: OTHERS[0], afterS: 1 });
    expect(lastToCome(walksOf(...ROUND.slice(0, 3))[0]!)).toBeNull();
  });

  it("that is under way ends now, in the step that it is at", () => {
    const names = ROUND.map((_, at) => {
      const [walk] = walksOf(...ROUND.slice(0, at + 1));
      const last = stepsOf(walk!, 20).at(-1)!;
      return last.isOpen ? `${last.name} until ${last.toS}` : `ended in ${last.name}`;
    });
    expect(names).toEqual([
      "train until 20", "gather until 20", "gather until 20", "gather until 20", "merge until 20",
      "sign until 20", "sign until 20", "ended in sign",
    ]);
  });

  it("of a node that does not train has no training in it", () => {
    const [walk] = walksOf(...ROUND.filter(({ name }) => name !== "update_sealed"));
    expect(stepsOf(walk!, 99)[0]).toMatchObject({ name: "gather", fromS: 10, toS: 15 });
  });

  it("that is aborted ends in the step that it came to", () => {
    const [walk] = walksOf(...ROUND.slice(0, 4), told("round_aborted", 19, { round: 5 }));
    expect(stepsOf(walk!, 99).at(-1)).toMatchObject({ name: "gather", toS: 19, isOpen: false });
  });

  it("that begins again has nothing of its first time", () => {
    const [walk] = walksOf(...ROUND.slice(0, 4), told("round_started", 30, { round: 5 }));
    expect(walk).toMatchObject({ beganS: 30, sealedS: null, acknowledged: [] });
  });

  it("counts the leaders that were passed over while it was open", () => {
    const gaveUp = told("view_given_up", 14, { view: 3 });
    expect(walksOf(...ROUND.slice(0, 3), gaveUp, gaveUp)[0]?.viewsGivenUp).toBe(2);
    expect(walksOf(...ROUND, gaveUp)[0]?.viewsGivenUp).toBe(0);
  });
});

describe("rounds", () => {
  it("are the newest ones, in their order, and late words of old ones change nothing", () => {
    const started = Array.from({ length: 30 }, (_, at) => told("round_started", at, { round: at }));
    const walks = walksOf(...started);
    expect(walks.map(({ round }) => round)).toEqual(
      Array.from({ length: WALKS_MAX }, (_, at) => 30 - WALKS_MAX + at));
    expect(walked(walks, told("offer_eligible", 99, { round: 3, author: ME }))).toBe(walks);
  });
});
