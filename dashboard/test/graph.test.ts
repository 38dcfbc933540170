import { describe, expect, it } from "vitest";
import { checkpointsOf, disputesByRound, DRAWN_MAX, graphWords } from "../src/graph";
import type { Graph } from "../src/facts";
import { walked, type Walk } from "../src/walks";
import { OTHERS, record, state, status, told } from "./told";

const [ANNE = "", BERT = ""] = OTHERS;

function vertex(height: number, more: Partial<Graph["vertices"][number]> = {}) {
  return {
    vertex_id: `${height}`.padStart(2, "0").repeat(32), height, training_round: height,
    parents: height === 0 ? [] : [`${height - 1}`.padStart(2, "0").repeat(32)], rule: "mean",
    contributions: 4, voided: 0, newly_convicted: [], ...more,
  };
}

function graph(...vertices: Graph["vertices"]): Graph {
  return { vertices };
}

function walkOf(...names: string[]): readonly Walk[] {
  return names.reduce<readonly Walk[]>(
    (walks, name, at) => walked(walks, told(name, at, { round: 3, contributors: 3 })), []);
}

describe("what is drawn", () => {
  it("has the parents that the daemon tells of, and whose state is here", () => {
    const copies = { wanted: 3, states: [{ height: 1, here: true, coming: false, copies: 2 }] };
    const both = checkpointsOf(state({
      graph: graph(vertex(0), vertex(1), vertex(2, { parents: ["x", "y"] })),
      status: status({ copies }),
    }));
    expect(both.map(({ parents }) => parents.length)).toEqual([0, 1, 2]);
    expect(both.map(({ isSnapshot }) => isSnapshot)).toEqual([false, true, false]);
    expect(both.map(({ contributions }) => contributions)).toEqual([null, 4, 4]);
  });

  it("is a chain where the daemon tells of rounds alone", () => {
    const rounds = [record(0, { vertex_id: "a" }), record(1, { vertex_id: "b" })];
    expect(checkpointsOf(state({ rounds })).map(({ id, parents }) => [id, parents])).toEqual([
      ["a", []], ["b", ["a"]],
    ]);
  });

  it("is the newest ones alone", () => {
    const many = Array.from({ length: DRAWN_MAX + 9 }, (_, height) => vertex(height));
    const drawn = checkpointsOf(state({ graph: graph(...many) }));
    expect(drawn).toHaveLength(DRAWN_MAX);
    expect(drawn.at(-1)?.height).toBe(DRAWN_MAX + 8);
  });
});

describe("the first checkpoint of all", () => {
  it("is nobody's contribution, and no quarrel is about it", () => {
    const copy = told("copy_found", 1, { round: 1, author: ANNE });
    const [genesis, first] = checkpointsOf(state({
      graph: graph(vertex(0, { training_round: 1 }), vertex(1, { voided: 2 })), events: [copy],
    }));
    expect(genesis).toMatchObject({ contributions: null, disputes: [], left: 0 });
    expect(first).toMatchObject({ contributions: 4, left: 2 });
    expect(first?.disputes).toHaveLength(1);
  });
});

describe("the step under way", () => {
  const drawn = (...names: string[]) => checkpointsOf(state({
    graph: graph(vertex(1), vertex(2)), walks: walkOf("round_started", ...names),
  })).slice(2);

  it("is there from the set on, as decided and then as merged", () => {
    expect(drawn()).toEqual([]);
    expect(drawn("set_decided")[0]).toMatchObject({ height: 3, state: "decided" });
    expect(drawn("set_decided", "set_executed")[0]).toMatchObject({
      state: "merged", parents: [vertex(2).vertex_id], contributions: 3,
    });
  });

  it("is gone once the round is over, however it ends", () => {
    expect(drawn("set_decided", "set_executed", "round_finalized")).toEqual([]);
    expect(drawn("set_decided", "round_aborted")).toEqual([]);
  });
});

describe("disputes", () => {
  it("stand at the round that they are about, each once", () => {
    const copy = told("copy_found", 1, { round: 2, author: ANNE });
    const events = [copy, copy, told("verdict_given", 2, {
      round: 2, author: ANNE, convicted: BERT,
    }), told("peer_left", 3, { round: 2 })];
    expect(disputesByRound(events).get(2)).toHaveLength(2);
    const [, second] = checkpointsOf(state({ graph: graph(vertex(1), vertex(2)), events }));
    expect(second?.disputes[0]).toContain("a copy of another's");
  });

  it("are also what the chain says: who is convicted from there on", () => {
    const [one] = checkpointsOf(state({ graph: graph(vertex(5, { newly_convicted: [BERT] })) }));
    expect(one?.disputes).toEqual([`${BERT.slice(0, 8)} is convicted, and excluded`]);
  });
});

describe("the words beside it", () => {
  it("say how far it goes, what merges, what is disputed and what is coming", () => {
    const words = graphWords(checkpointsOf(state({
      graph: graph(vertex(1), vertex(2, { parents: ["x", "y"], newly_convicted: [BERT] })),
      walks: walkOf("round_started", "set_decided", "set_executed"),
    })));
    expect(words).toBe("The newest 2 certified checkpoints, up to height 2; 1 of them merge "
      + "several; 1 disputed; one more is merged and not certified yet.");
    expect(graphWords([])).toBe("No checkpoint is known yet.");
  });
});
