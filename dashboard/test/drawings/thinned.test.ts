import { describe, expect, it } from "vitest";
import { thinned } from "../../src/drawings/thinned";

const upTo = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

describe("what is too much to draw", () => {
  it("is every so many-th of it, with the newest", () => {
    expect(thinned(upTo(10), 5)).toEqual([1, 3, 5, 7, 9]);
    expect(thinned(upTo(11), 5)).toEqual([1, 4, 7, 10]);
  });

  it("is never more than there is room for", () => {
    for (const count of [4, 5, 6, 99, 1_000]) {
      expect(thinned(upTo(count), 5).length).toBeLessThanOrEqual(5);
      expect(thinned(upTo(count), 5).at(-1)).toBe(count - 1);
    }
  });

  it("stays whole where there is room, and where it is nothing", () => {
    expect(thinned(upTo(5), 5)).toEqual(upTo(5));
    expect(thinned([], 5)).toEqual([]);
  });
});
