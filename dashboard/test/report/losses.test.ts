import { describe, expect, it } from "vitest";
import { curvesOf, heatOf, wordsOf } from "../../src/report/losses";
import { laneOf } from "./told";

const lane = (node: number, nats: readonly number[]) => laneOf({
  node,
  losses: { at: nats.map((_, at) => 100 * (at + 1)), height: nats.map((_, at) => at + 1), nats },
});

describe("curves of the loss", () => {
  it("are one a node where they can be told apart, and only of whom measures", () => {
    const lines = curvesOf([lane(0, [3, 2]), laneOf({ node: 1 }), lane(2, [3.5, 2.5])], 200);
    expect(lines).toEqual([
      { name: "node 0", points: [[100, 3], [200, 2]] },
      { name: "node 2", points: [[100, 3.5], [200, 2.5]] },
    ]);
    expect(wordsOf(lines)).toContain("node 0 from 3.0000 to 2.0000");
  });

  it("are the lowest, the middle and the highest of many", () => {
    const lines = curvesOf([0, 1, 2, 3, 4].map((node) => lane(node, [node, node + 1])), 200);
    expect(lines.map(({ name }) => name)).toEqual([
      "lowest of 5 nodes", "middle of 5 nodes", "highest of 5 nodes"]);
    expect(lines.map(({ points }) => points.at(-1)?.[1])).toEqual([1, 3, 5]);
  });

  it("are thinned, and keep their end", () => {
    const [line] = curvesOf([lane(0, Array.from({ length: 4_000 }, (_, at) => at))], 400_000);
    expect(line?.points.length).toBeLessThanOrEqual(1_000);
    expect(line?.points.at(-1)?.[1]).toBe(3_999);
  });
});

describe("the loss of each node", () => {
  it("is a cell a height, blank where a node published none", () => {
    const missed = laneOf({ node: 1, losses: { at: [200], height: [2], nats: [2] } });
    const heat = heatOf([lane(0, [3, 2]), missed]);
    expect(heat?.columns).toEqual(["height 1", "height 2"]);
    expect(heat?.rows.map(({ values }) => values)).toEqual([[3, 2], [null, 2]]);
  });

  it("has colours from the lowest to the highest, and words with both", () => {
    const heat = heatOf([lane(0, [8, 2]), lane(1, [5, 4])]);
    expect(heat?.bounds).toEqual([3, 4, 5, 6, 7]);
    expect(heat?.words).toBe("Held-out loss of 2 nodes by height: 8.0000 at the highest, 2.0000 "
      + "at the lowest.");
  });

  it("is there for many heights, and for one", () => {
    const heat = heatOf([lane(0, Array.from({ length: 1_000 }, (_, at) => at))]);
    expect(heat?.columns.length).toBeLessThanOrEqual(48);
    expect(heat?.columns.at(-1)).toBe("height 1000");
    expect(heatOf([lane(0, [2])])?.rows[0]?.values).toEqual([2]);
    expect(heatOf([laneOf()])).toBeNull();
  });
});
