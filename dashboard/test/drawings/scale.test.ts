import { describe, expect, it } from "vitest";
import { at, scaleOf } from "../../src/drawings/scale";

describe("an axis", () => {
  it("has round figures round what is shown", () => {
    expect(scaleOf([0.3, 9.2], 5)).toEqual({ from: 0, to: 10, ticks: [0, 2, 4, 6, 8, 10] });
    expect(scaleOf([2.31, 2.38], 4).ticks).toEqual([2.3, 2.32, 2.34, 2.36, 2.38]);
    expect(scaleOf([-3, 3], 3).ticks).toEqual([-4, -2, 0, 2, 4]);
  });

  it("is there for one figure, and for none", () => {
    const one = scaleOf([7], 4);
    expect(one.from).toBeLessThan(7);
    expect(one.to).toBeGreaterThan(7);
    expect(scaleOf([], 4).ticks.length).toBeGreaterThan(1);
  });

  it("has few figures, however many there are to show", () => {
    const many = Array.from({ length: 200_000 }, (_, step) => step);
    expect(scaleOf(many, 5).ticks.length).toBeLessThan(9);
  });
});

describe("a figure on it", () => {
  it("is at its share of the length", () => {
    const scale = scaleOf([0, 10], 5);
    expect([0, 5, 10].map((value) => at(value, scale, 300))).toEqual([0, 150, 300]);
  });
});
