import { describe, expect, it } from "vitest";
import { laidOut } from "../../src/drawings/dag_layout";

function vertex(id: string, height: number, ...parents: string[]) {
  return { id, height, parents };
}

function placesOf(vertices: ReturnType<typeof vertex>[]): Record<string, [number, number]> {
  return Object.fromEntries(laidOut(vertices).places.map(
    ({ vertex: { id }, column, lane }) => [id, [column, lane]]));
}

describe("a chain", () => {
  it("is one lane, whatever order it comes in", () => {
    const chain = [vertex("c", 2, "b"), vertex("a", 0), vertex("b", 1, "a")];
    expect(placesOf(chain)).toEqual({ a: [0, 0], b: [1, 0], c: [2, 0] });
    expect(laidOut(chain)).toMatchObject({ columns: 3, lanes: 1 });
  });

  it("leads out of the drawing where its oldest vertex has a parent", () => {
    expect(laidOut([vertex("h", 7, "g")]).edges).toEqual([
      { child: "h", fromColumn: -1, fromLane: 0, toColumn: 0, toLane: 0 },
    ]);
  });

  it("may be empty", () => {
    expect(laidOut([])).toEqual({ places: [], edges: [], columns: 0, lanes: 0 });
  });
});

describe("branches", () => {
  const diamond = [vertex("a", 0), vertex("b", 1, "a"), vertex("c", 1, "a"),
    vertex("d", 2, "b", "c"), vertex("e", 3, "d")];

  it("have a lane each, and a vertex that merges them goes on in its first parent's", () => {
    expect(placesOf(diamond)).toEqual({
      a: [0, 0], b: [1, 0], c: [1, 1], d: [2, 0], e: [3, 0],
    });
    expect(laidOut(diamond).edges).toHaveLength(5);
  });

  it("give back the lane of one that was merged", () => {
    const later = [...diamond, vertex("f", 3, "d"), vertex("g", 4, "e", "f")];
    expect(placesOf(later)).toMatchObject({ e: [3, 0], f: [3, 1], g: [4, 0] });
    expect(laidOut(later).lanes).toBe(2);
  });

  it("are not drawn over each other where one stands still for long", () => {
    const long = [vertex("a", 0), vertex("b", 1, "a"), vertex("c", 1, "a"), vertex("d", 2, "c"),
      vertex("e", 3, "d"), vertex("f", 4, "e", "b")];
    const places = placesOf(long);
    expect(places).toMatchObject({ b: [1, 0], c: [1, 1], d: [2, 1], e: [3, 1], f: [4, 1] });
  });
});
