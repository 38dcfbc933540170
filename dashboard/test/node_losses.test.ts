import { describe, expect, it } from "vitest";
import { levelOf } from "../src/drawings/heat";
import type { Losses } from "../src/facts";
import { AWAY_BOUNDS, lossWords, rowsOf } from "../src/node_losses";
import { ME, OTHERS } from "./told";

const [ANNE = ""] = OTHERS;

function losses(more: Partial<Losses> = {}): Losses {
  return {
    heights: [0, 1], contributors: [2, 2], measured: [2, 1], least_nats: [5.5, 4.2],
    median_nats: [5.5, 4.2], greatest_nats: [5.7, 4.2], nodes_in_all: 2,
    nodes: [
      { node_id: ME, mine: true, losses_nats: [5.5, 4.2] },
      { node_id: ANNE, mine: false, losses_nats: [5.7, null] },
    ],
    ...more,
  };
}

describe("rows of losses", () => {
  it("say how far each is from the median, either way, and this node by name", () => {
    const [mine, other] = rowsOf(losses({ median_nats: [5.75, 4.2] }));
    expect(mine).toMatchObject({ name: "this node", isOurs: true, end: "4.2000" });
    expect(mine?.values[0]).toBeCloseTo(0.25);
    expect(mine?.told?.[0]).toBe("5.5000 (\u22120.2500)");
    expect(other?.values[1]).toBeNull();
  });

  it("have the palest colour for what devices round differently", () => {
    const [, other] = rowsOf(losses({ nodes: [
      { node_id: ME, mine: true, losses_nats: [5.5, 4.2] },
      { node_id: ANNE, mine: false, losses_nats: [5.5002, 4.7] },
    ] }));
    expect(other?.values.map((away) => levelOf(away ?? 0, AWAY_BOUNDS))).toEqual([0, 5]);
  });
});

describe("the words beside them", () => {
  it("are of the newest checkpoint that was measured", () => {
    expect(lossWords(losses())).toBe("Of checkpoint 1, 1 of 2 contributors say what they "
      + "measured: 4.2000 to 4.2000 nats, the median 4.2000.");
  });

  it("are there where nobody measured, and before the first", () => {
    expect(lossWords(losses({ least_nats: [5, null], greatest_nats: [5, null] })))
      .toBe("Nobody could measure checkpoint 1.");
    expect(lossWords(losses({ heights: [] }))).toBe("Nobody has told of a loss yet.");
  });
});
