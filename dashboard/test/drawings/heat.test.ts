import { describe, expect, it } from "vitest";
import { LEVELS, levelOf, levelWords, pathsOf, type Bounds } from "../../src/drawings/heat";

const BOUNDS: Bounds = [10, 30, 60, 100, 200];

describe("a cell's level", () => {
  it("grows at each bound that is reached", () => {
    expect([0, 9.9, 10, 59, 60, 199, 200, 1e9].map((value) => levelOf(value, BOUNDS)))
      .toEqual([0, 0, 1, 2, 3, 4, 5, 5]);
  });

  it("has words for all of them, and for no more", () => {
    const words = levelWords(BOUNDS, (value) => `${value} ms`);
    expect(words).toHaveLength(LEVELS);
    expect(words[0]).toBe("under 10 ms");
    expect(words[1]).toBe("10 ms to 30 ms");
    expect(words[5]).toBe("200 ms or more");
  });
});

describe("a row of cells", () => {
  it("is one path a level, and runs of a level are one shape", () => {
    expect(pathsOf([5, 5, 15, 5], BOUNDS)).toEqual([
      { level: 0, d: "M0 0h2v1h-2zM3 0h1v1h-1z" }, { level: 1, d: "M2 0h1v1h-1z" },
    ]);
  });

  it("leaves out what is not known", () => {
    expect(pathsOf([null, 300, null], BOUNDS)).toEqual([{ level: 5, d: "M1 0h1v1h-1z" }]);
    expect(pathsOf([], BOUNDS)).toEqual([]);
  });
});
