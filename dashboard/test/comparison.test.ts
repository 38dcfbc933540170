import { describe, expect, it } from "vitest";
import {
  compared, lossLines, unitOf, lossWords, shareWords, timeWords, trainingShare, type Compared,
} from "../src/comparison";
import type { OtherRun } from "../src/facts";
import { walked, type Walk } from "../src/walks";
import { record, told } from "./told";

/** Each round takes so many seconds, and the loss falls by one tenth. */
function other(firstHeight: number, count: number, wallS: number): OtherRun {
  return {
    name: "naive", useful_share: 0.25,
    rounds: Array.from({ length: count }, (_, at) => ({
      height: firstHeight + at, at_s: (at + 1) * wallS, wall_s: wallS,
      loss_nats: 5 - (firstHeight + at) / 10,
    })),
  };
}

function own(firstHeight: number, count: number) {
  return Array.from({ length: count }, (_, at) => record(firstHeight + at)); // of 2 s each
}

function both(one: Compared | null): Compared {
  if (one === null) throw new Error("nothing to compare");
  return one;
}

describe("two runs", () => {
  it("are compared from the first height on that both have, with clocks that begin there", () => {
    const found = both(compared(own(4, 3), other(1, 9, 6)));
    expect(found.fromHeight).toBe(3);
    expect(found.own.map(({ height, atS }) => [height, atS])).toEqual([[4, 2], [5, 4], [6, 6]]);
    expect(found.other[0]).toMatchObject({ height: 4, atS: 6 });
    const late = both(compared(own(1, 6), other(4, 3, 6)));
    expect(late.own[0]).toMatchObject({ height: 4, atS: 2 });
    expect(late.other[0]).toMatchObject({ height: 4, atS: 6 });
  });

  it("begin after rounds whose time this node does not know", () => {
    const rounds = [...own(1, 2), record(3, { wall_s: 0 }), ...own(4, 2)];
    expect(both(compared(rounds, other(1, 9, 6))).fromHeight).toBe(3);
  });

  it("are not compared where they have no height in common", () => {
    expect(compared(own(1, 3), other(7, 3, 6))).toBeNull();
    expect(compared([record(0, { wall_s: 0 })], other(1, 3, 6))).toBeNull();
    expect(compared(own(1, 3), other(1, 0, 6))).toBeNull();
  });
});

describe("the words", () => {
  it("say how long each took to the lowest loss that both have come to", () => {
    expect(lossWords(both(compared(own(1, 4), other(1, 9, 6))))).toBe(
      "To a loss of 4.6000 this network took 8.0 s of rounds from height 0 on, "
      + "the other run 24 s.");
    expect(timeWords(both(compared(own(1, 4), other(1, 9, 6))))).toBe(
      "A round took 2.0 s here, 6.0 s in the other run, on average.");
  });

  it("say so where one has no losses", () => {
    const silent = own(1, 2).map((each) => ({ ...each, loss_nats: null }));
    expect(lossWords(both(compared(silent, other(1, 9, 6))))).toContain("no losses yet");
  });

  it("say which share of its time this node trained, of rounds that were heard of whole", () => {
    const walks = ["round_started", "update_sealed", "set_decided", "round_finalized"].reduce<
      readonly Walk[]>((all, name, at) => walked(all, told(name, 2 * at, { round: 3 })), []);
    expect(trainingShare(walks)).toBeCloseTo(1 / 3);
    expect(shareWords(walks, other(1, 1, 1))).toContain("33 %");
    expect(trainingShare([])).toBeNull();
  });
});

describe("the curves", () => {
  it("have an axis in seconds, minutes or hours, by the longer one", () => {
    const units = [9, 200, 9_000].map((count) => (
      unitOf(both(compared(own(1, 5), other(1, count, 6)))).name));
    expect(units).toEqual(["s", "min", "h"]);
  });

  it("leave out rounds without a loss, and keep the newest of many", () => {
    const rounds = [...own(1, 2), record(3, { loss_nats: null }), ...own(4, 1)];
    const [mine] = lossLines(both(compared(rounds, other(1, 9, 6))), "naive");
    expect(mine?.points.map(([atS]) => atS)).toEqual([2, 4, 8]);
    const [long] = lossLines(both(compared(own(1, 3_000), other(1, 3_000, 6))), "naive");
    expect(long?.points.length).toBeLessThanOrEqual(500);
    expect(long?.points.at(-1)?.[0]).toBe(100); // minutes
  });
});
