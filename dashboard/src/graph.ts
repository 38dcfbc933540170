/** The checkpoint graph as it is drawn: what the daemon tells of it, and the round under way. */

import type { Checkpoint } from "./drawings/dag";
import type { RoundRecord, Status, Told } from "./facts";
import { numberIn, textIn } from "./facts";
import type { State } from "./state";
import type { Walk } from "./walks";
import { count, nats, short } from "./words";

export const DRAWN_MAX = 32;

/** Newest last, with the step that is under way, if its set is decided. */
export function checkpointsOf(
  { graph, rounds, walks, events, status }: Pick<
    State, "graph" | "rounds" | "walks" | "events" | "status">,
): Checkpoint[] {
  const records = new Map(rounds.map((record) => [record.vertex_id, record]));
  const disputes = disputesByRound(events);
  const vertices = graph?.vertices ?? chainOf(rounds);
  const drawn = vertices.slice(-DRAWN_MAX).map((vertex): Checkpoint => {
    const record = records.get(vertex.vertex_id);
    const own = [
      ...(disputes.get(vertex.training_round) ?? []),
      ...vertex.newly_convicted.map((node) => `${short(node)} is convicted, and excluded`),
    ];
    return {
      id: vertex.vertex_id, parents: vertex.parents, height: vertex.height, state: "certified",
      isSnapshot: hasState(status, vertex.height), disputes: vertex.height === 0 ? [] : own,
      contributions: vertex.height === 0 ? null : vertex.contributions, left: vertex.voided,
      about: [
        `Checkpoint ${vertex.height}, ${short(vertex.vertex_id)}`,
        ...(record === undefined ? [] : [`loss ${nats(record.loss_nats)}`]), ...own,
      ].join("\n"),
    };
  });
  const newest = drawn.at(-1), walk = walks.at(-1);
  const coming = newest === undefined || walk === undefined ? null : comingOf(newest, walk);
  return coming === null ? drawn : [...drawn, coming];
}

/** Where the daemon tells of no graph: each round stands on the one before. */
function chainOf(rounds: readonly RoundRecord[]) {
  return rounds.map((record, at) => ({
    vertex_id: record.vertex_id, height: record.height, training_round: record.training_round,
    parents: rounds[at - 1] === undefined ? [] : [rounds[at - 1]?.vertex_id ?? ""],
    contributions: record.contributors.length, voided: record.voided.length,
    newly_convicted: [] as string[],
  }));
}

/** No quorum has signed it: it may still come to nothing. */
function comingOf(newest: Checkpoint, walk: Walk): Checkpoint | null {
  if (walk.setS === null || walk.end !== null) return null;
  const state = walk.mergedS === null ? "decided" : "merged";
  return {
    id: `round ${walk.round}`, parents: [newest.id], height: newest.height + 1, state,
    isSnapshot: false, disputes: [], contributions: walk.contributors, left: 0,
    about: `Round ${walk.round}: ${state === "decided" ? "its set is decided"
      : "merged here, and not certified yet"}`,
  };
}

function hasState(status: Status | null, height: number): boolean {
  return status?.copies.states.some((one) => one.height === height && one.here) ?? false;
}

/** What this page has heard of quarrels about contributions. */
export function disputesByRound(events: readonly Told[]): Map<number, string[]> {
  const found = new Map<number, string[]>();
  for (const event of events) {
    const words = disputeIn(event), round = numberIn(event, "round");
    if (words === null || round === null) continue;
    const before = found.get(round) ?? [];
    if (!before.includes(words)) found.set(round, [...before, words]);
  }
  return found;
}

function disputeIn(event: Told): string | null {
  const author = short(textIn(event, "author"));
  switch (event.name) {
    case "verdict_given":
      return `a verdict of this node's about ${author}: ${short(textIn(event, "convicted"))} is `
        + "guilty";
    case "copy_found":
      return `${author} sent a copy of another's contribution`;
    case "author_shunned":
      return `${author} shows no work that can be checked`;
    default:
      return null;
  }
}

/** For whoever does not see the graph. */
export function graphWords(vertices: readonly Checkpoint[]): string {
  const certified = vertices.filter(({ state }) => state === "certified");
  const last = certified.at(-1), coming = vertices.find(({ state }) => state !== "certified");
  if (last === undefined) return "No checkpoint is known yet.";
  const disputed = vertices.filter(({ disputes }) => disputes.length > 0).length;
  const merges = vertices.filter(({ parents }) => parents.length > 1).length;
  return [
    `The newest ${count(certified.length, "certified checkpoint")}, up to height ${last.height}`,
    merges === 0 ? "each stands on the one before" : `${merges} of them merge several`,
    ...(disputed > 0 ? [`${disputed} disputed`] : []),
    ...(coming === undefined ? [] : [
      coming.state === "merged" ? "one more is merged and not certified yet"
        : "the set of one more is decided",
    ]),
  ].join("; ") + ".";
}
