import { describe, expect, it } from "vitest";
import { widthOf } from "../../src/drawings/pairs";
import {
  asideOf, curvesOf, figureName, pairsOf, PARTS, timesRows, wordsOf,
} from "../../src/report/sides";
import type { Sides } from "../../src/report/story";

const SIDES: Sides = {
  factor: "work.adaptive", names: ["adaptive", "naive"], seeds: [[1, 2], [1, 2]],
  figures: [
    {
      name: "tokens_per_s", isShare: false, over: [1, 0.8],
      sides: [[1500, 1400, 1600], [1200, 1200, 1200]],
    },
    {
      name: "slow: participation", isShare: true, over: [1, null],
      sides: [[0.875, 0.875, 0.875], [0, 0, 0]],
    },
    { name: "crashes", isShare: false, over: [null, null], sides: [[0, 0, 0], [0, 0, 0]] },
    { name: "goodput", isShare: true, over: [null, null], sides: [null, [0.5, 0.5, 0.5]] },
  ],
  losses: [{ atMs: [1_000, 2_000], nats: [3, 2] }, { atMs: [], nats: [] }],
  times: [{
    group: "slow",
    sides: [{ training: 0.5, waiting: 0.2, merging: 0.1, checking: 0.1, down: 0.1 }, null],
  }],
  broken: [[], []],
};

describe("figures side by side", () => {
  it("have a name for people, a mean, its range and how often the first goes into them", () => {
    const [tokens, slow] = pairsOf(SIDES);
    expect(tokens?.name).toBe("Certified tokens a second");
    expect(tokens?.values).toEqual([1500, 1200]);
    expect(tokens?.note).toEqual(["(1,400 to 1,600)", "\u00d7 0.8"]);
    expect(slow?.name).toBe("slow: participation in rounds");
    expect(slow?.shown(0.875)).toBe("87.5 %");
  });

  it("leave out what is zero everywhere, and say where one is not known", () => {
    expect(pairsOf(SIDES).map(({ values }) => values)).toEqual([
      [1500, 1200], [0.875, 0], [null, 0.5]]);
  });

  it("keep a name that nobody has words for", () => {
    expect(figureName("something_new")).toBe("something_new");
  });

  it("have bars in the measure of the greatest", () => {
    expect([0, 1, 2].map((at) => widthOf([2, 4, null], at))).toEqual([50, 100, 0]);
    expect(widthOf([0, null], 0)).toBe(0);
  });

  it("are told in words", () => {
    expect(wordsOf(SIDES)).toBe("adaptive against naive in 3 figures. "
      + "Certified tokens a second: adaptive 1,500, naive 1,200.");
    expect(asideOf(SIDES)).toContain("means over 2 seeds");
    expect(asideOf({ ...SIDES, seeds: [[7], [7]] })).toContain("seed 7");
  });
});

describe("the time of a class", () => {
  it("is told of each side that knows it, and is all there", () => {
    const [row, ...others] = timesRows(SIDES);
    expect(others).toEqual([]);
    expect(row?.name).toBe("slow, adaptive");
    expect(row?.shares).toHaveLength(PARTS.length);
    expect(row?.shares.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1);
    expect(row?.shares[2]).toBeCloseTo(0.2);
  });

  it("has all that is no work of the node's in the last part, also what is new", () => {
    const away = { catching_up: 0.125, paused: 0.25, down: 0.125, something_new: 0.5 };
    const [row] = timesRows({ ...SIDES, times: [{ group: "slow", sides: [away, null] }] });
    expect(row?.shares).toEqual([0, 0, 0, 1]);
  });
});

describe("curves side by side", () => {
  it("are those of the sides that measured a loss", () => {
    expect(curvesOf(SIDES)).toEqual([{ name: "adaptive", points: [[1_000, 3], [2_000, 2]] }]);
  });
});
