import { describe, expect, it } from "vitest";
import {
  brokenAt, FORMS, LANE_PX, shapesOf, toldAt, TOP_PX, WORDS, type Tone,
} from "../../src/report/lanes";
import { laneOf } from "./told";

const SPAN = { fromMs: 0, toMs: 1_000 }, WIDTH = 500;
const FAULT = { fromMs: 200, toMs: 500, kind: "partition", detail: "halves", nodes: [0] };

const boxes = (tone: Tone, shapes: ReturnType<typeof shapesOf>) => (
  shapes.boxes.filter((box) => box.tone === tone));

describe("a lane", () => {
  it("has its faults where they happened, over all of it", () => {
    const [band] = boxes("fault", shapesOf(laneOf(), 2, [FAULT], SPAN, WIDTH));
    expect(band).toMatchObject({ x: 100, width: 150, y: TOP_PX + 2 * LANE_PX });
  });

  it("shows views by turns, each until the next one", () => {
    const lane = laneOf({ views: { at: [100, 400], view: [7, 8] } });
    const shapes = shapesOf(lane, 0, [], SPAN, WIDTH);
    expect(boxes("view-odd", shapes)).toMatchObject([{ x: 50, width: 150 }]);
    expect(boxes("view-even", shapes)).toMatchObject([{ x: 200, width: 300 }]);
  });

  it("goes on with the view that was entered before what is in sight", () => {
    const lane = laneOf({ views: { at: [100], view: [7] } });
    const [view] = boxes("view-odd", shapesOf(lane, 0, [], { fromMs: 500, toMs: 600 }, WIDTH));
    expect(view).toMatchObject({ x: 0, width: WIDTH });
  });

  it("is grey while its process is away", () => {
    const shapes = shapesOf(laneOf({ downs: [[600, 800]] }), 0, [], SPAN, WIDTH);
    expect(boxes("down", shapes)).toMatchObject([{ x: 300, width: 100 }]);
  });

  it("tells votes apart by their row, also where nobody sees colours", () => {
    const kind = ["proposal", "notarize", "finalize", "nullify", "something new"];
    const lane = laneOf({ votes: { at: [10, 20, 30, 40, 50], view: [1, 1, 1, 1, 1], kind } });
    const shapes = shapesOf(lane, 0, [], SPAN, WIDTH);
    const rows = (["notarize", "finalize", "nullify"] as const).map((tone) => (
      boxes(tone, shapes)[0]?.y));
    expect(new Set(rows).size).toBe(3);
    expect(boxes("vote", shapes)).toHaveLength(1);
  });

  it("takes no word for a kind of its own that is a name of all objects", () => {
    const kind = ["constructor", "__proto__", "toString"];
    const lane = laneOf({
      votes: { at: [10, 20, 30], view: [1, 1, 1], kind },
      finals: { at: [10, 20, 30], height: [1, 2, 3], payload: kind },
    });
    const { boxes: ticks, marks } = shapesOf(lane, 0, [], SPAN, WIDTH);
    expect(ticks.map(({ tone }) => tone)).toEqual(["vote", "vote", "vote"]);
    expect(marks.map(({ tone }) => tone)).toEqual(["final", "final", "final"]);
  });

  it("marks each final block by a form of its payload", () => {
    const lane = laneOf({
      finals: { at: [100, 200, 300], height: [1, 2, 3], payload: ["set", "abort", "odd"] },
    });
    const { marks } = shapesOf(lane, 0, [], SPAN, WIDTH);
    expect(marks.map(({ tone, x }) => [tone, x])).toEqual([
      ["set", 50], ["abort", 100], ["final", 150]]);
    const forms = Object.values(FORMS).map((form) => form.d);
    expect(new Set(forms).size).toBe(forms.length);
  });

  it("paints no more than there are pixels", () => {
    const at = Array.from({ length: 100_000 }, (_, ms) => ms / 100);
    const lane = laneOf({
      views: { at, view: at.map((_, view) => view) },
      votes: { at, view: at.map(() => 1), kind: at.map(() => "notarize") },
    });
    const shapes = shapesOf(lane, 0, [], SPAN, WIDTH);
    expect(boxes("notarize", shapes).length).toBeLessThanOrEqual(2 * WIDTH + 1);
    expect(shapes.boxes.length).toBeLessThan(6_000);
  });

  it("has words for each tone", () => {
    expect(Object.values(WORDS).every((words) => words !== "")).toBe(true);
  });
});

describe("who points at a lane", () => {
  const lane = laneOf({
    node: 3, views: { at: [0, 400], view: [7, 8] },
    votes: { at: [420], view: [8], kind: ["nullify"] },
    finals: { at: [425], height: [2], payload: ["abort"] },
    downs: [[700, 900]],
  });

  it("is told what lies there", () => {
    expect(toldAt(lane, [FAULT], 210, SPAN, WIDTH)).toBe(
      "node 3, 0.420 s \u00b7 view 8 \u00b7 final abort, height 2, 0.425 s \u00b7 "
      + "nullify of view 8, 0.420 s \u00b7 partition halves");
    expect(toldAt(lane, [], 400, SPAN, WIDTH)).toContain("down from 0.700 s");
    expect(toldAt(laneOf(), [], 5, SPAN, WIDTH)).toBe("node 0, 0.010 s");
  });

  it("is told what broke, near to its line", () => {
    const broken = [{ atMs: 500, name: "progress", detail: "nothing final" }];
    expect(brokenAt(broken, 252, SPAN, WIDTH)?.name).toBe("progress");
    expect(brokenAt(broken, 300, SPAN, WIDTH)).toBeUndefined();
  });
});
