import { describe, expect, it } from "vitest";
import { placed, radiusOf, RINGS_MS } from "../../src/drawings/star_layout";

describe("the distance from the middle", () => {
  it("grows with the round trip, evenly by each ten times", () => {
    const radii = RINGS_MS.map(radiusOf);
    const steps = radii.slice(1).map((radius, at) => radius - (radii[at] ?? 0));
    for (const step of steps) expect(step).toBeCloseTo(steps[0] ?? 0);
    expect(steps[0]).toBeGreaterThan(0);
  });

  it("stays in the drawing, whatever is measured", () => {
    for (const ms of [0, 0.01, 1e9, null]) {
      expect(radiusOf(ms)).toBeGreaterThan(0.1);
      expect(radiusOf(ms)).toBeLessThan(1);
    }
    expect(radiusOf(null)).toBeGreaterThan(radiusOf(1e9));
  });
});

describe("peers", () => {
  it("stand round the circle, each in a direction of its own", () => {
    const places = placed(Array.from({ length: 60 }, (_, at) => ({ key: `${at}`, rttMs: 10 })));
    const angles = new Set(places.map(({ x, y }) => Math.atan2(y, x).toFixed(4)));
    expect(angles.size).toBe(60);
    const isOnNames = ({ x, y }: { x: number; y: number }) => Math.abs(x) < 1e-6 && y < 0;
    expect(places.filter(isOnNames)).toEqual([]);
    for (const { x, y } of places) expect(Math.hypot(x, y)).toBeCloseTo(radiusOf(10));
  });
});
