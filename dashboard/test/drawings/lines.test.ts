import { describe, expect, it } from "vitest";
import { tableOf } from "../../src/drawings/lines";

const curve = (name: string, points: number) => ({
  name, points: Array.from({ length: points }, (_, at) => [at, 2 * at] as const),
});

describe("the table of some curves", () => {
  it("has each point as a row, in the order of the axis", () => {
    const { columns, rows } = tableOf(
      [curve("here", 2), curve("there", 2)], "both", "Height", String, (y) => `${y} s`);
    expect(columns).toEqual(["Height", "Curve", "Value"]);
    expect(rows).toEqual([
      ["0", "here", "0 s"], ["0", "there", "0 s"], ["1", "here", "2 s"], ["1", "there", "2 s"],
    ]);
  });

  it("has some of each curve where it cannot have all, and the newest point of each", () => {
    const { rows } = tableOf(
      [curve("here", 190), curve("there", 190)], "both", "Height", String, String);
    expect(rows.length).toBeLessThanOrEqual(200);
    for (const name of ["here", "there"]) {
      const own = rows.filter((row) => row[1] === name);
      expect(own.length).toBeGreaterThan(80);
      expect(own.at(-1)?.[0]).toBe("189");
    }
  });
});
