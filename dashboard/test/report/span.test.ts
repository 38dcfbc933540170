import { describe, expect, it } from "vitest";
import { firstFrom, moved, msAt, whole, xOf, zoomed } from "../../src/report/span";

describe("what is in sight", () => {
  it("comes closer about its middle, and no closer than there is something to see", () => {
    expect(zoomed(whole(1_000), 0.5, 1_000)).toEqual({ fromMs: 250, toMs: 750 });
    const { fromMs, toMs } = zoomed({ fromMs: 500, toMs: 530 }, 0.1, 1_000);
    expect(toMs - fromMs).toBe(20);
  });

  it("never leaves the run", () => {
    expect(moved({ fromMs: 100, toMs: 300 }, -2, 1_000)).toEqual({ fromMs: 0, toMs: 200 });
    expect(moved({ fromMs: 700, toMs: 900 }, 2, 1_000)).toEqual({ fromMs: 800, toMs: 1_000 });
    expect(zoomed({ fromMs: 700, toMs: 900 }, 50, 1_000)).toEqual(whole(1_000));
    expect(zoomed(whole(0), 0.5, 0)).toEqual({ fromMs: 0, toMs: 1 });
  });

  it("is as wide as its picture", () => {
    const span = { fromMs: 200, toMs: 400 };
    expect(xOf(300, span, 600)).toBe(300);
    expect(msAt(xOf(250, span, 600), span, 600)).toBe(250);
  });
});

describe("the first of times", () => {
  it("is found at, between and beyond them", () => {
    const times = [10, 20, 20, 30];
    expect([5, 10, 15, 20, 25, 31].map((ms) => firstFrom(times, ms))).toEqual([0, 0, 1, 1, 3, 4]);
  });
});
