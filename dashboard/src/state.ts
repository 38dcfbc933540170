/** All that the page knows, and how what it hears changes that. Pure: no clock, no network. */

import type {
  Baseline, Contributed, Graph, Losses, Members, Peer, RoundRecord, RoundTrips, Settings, Status,
  Told,
} from "./facts";
import { isMember, numberIn, textIn } from "./facts";
import { withDecision, type DecisionLine } from "./decisions";
import { walked, type Walk } from "./walks";

export const EVENTS_MAX = 500;
export const GONE_MAX = 1_000; // strangers come and go as they like
export const ROUNDS_MAX = 1_024; // as many as the daemon tells of

/** How the page stands with its daemon. */
export type Link =
  | { readonly at: "connecting" }
  | { readonly at: "live" }
  | { readonly at: "asking" } // this daemon has no events: the page asks again and again
  | { readonly at: "away"; readonly why: string }
  | { readonly at: "refused" };

/** Why and when a peer left, as the daemon told it. */
export interface Gone {
  readonly why: string;
  readonly atS: number;
}

export interface State {
  readonly link: Link;
  readonly aheadS: number; // this browser's clock, of the daemon's
  readonly status: Status | null;
  readonly peers: readonly Peer[] | null;
  readonly rounds: readonly RoundRecord[];
  readonly graph: Graph | null; // null: not told yet, or a daemon that does not tell it
  readonly losses: Losses | null; // as above
  readonly roundTrips: RoundTrips | null; // as above
  readonly baseline: Baseline | null; // as above
  readonly members: Members | null;
  readonly contributed: Contributed | null; // null: this node keeps no history
  readonly settings: Settings | null;
  readonly events: readonly Told[]; // the newest last
  readonly walks: readonly Walk[];
  readonly decisions: readonly DecisionLine[];
  readonly gone: ReadonlyMap<string, Gone>; // by peer id
}

export const NOTHING_KNOWN: State = {
  link: { at: "connecting" }, aheadS: 0, status: null, peers: null, rounds: [], graph: null,
  losses: null, roundTrips: null, baseline: null, members: null,
  contributed: null, settings: null, events: [], walks: [], decisions: [], gone: new Map(),
};

/** After one more event. */
export function heard(state: State, event: Told): State {
  return {
    ...state,
    events: [...state.events.slice(1 - EVENTS_MAX), event],
    walks: walked(state.walks, event),
    decisions: withDecision(state.decisions, event),
    gone: leftOrCame(state.gone, event, state.peers ?? []),
    peers: state.peers === null ? null : withPeer(state.peers, event),
    rounds: event.name === "round_finalized" ? withRound(state.rounds, event) : state.rounds,
    status: state.status === null ? null : quickly(state.status, event),
  };
}

function leftOrCame(gone: State["gone"], event: Told, peers: readonly Peer[]): State["gone"] {
  if (event.name !== "peer_left" && event.name !== "peer_joined") return gone;
  const next = new Map(gone);
  const peerId = textIn(event, "peer_id");
  next.delete(peerId);
  if (event.name === "peer_left") next.set(peerId, { why: textIn(event, "reason"), atS: event.ts });
  if (next.size > GONE_MAX) next.delete(oldestOf(next, peers));
  return next;
}

/** A stranger, if there is one: why a member has left is not forgotten for those. */
function oldestOf(gone: State["gone"], peers: readonly Peer[]): string {
  const members = new Set(peers.filter(isMember).map(({ peer_id: id }) => id));
  const names = [...gone.keys()];
  return names.find((id) => !members.has(id)) ?? names[0] ?? "";
}

/** Who has left or come is shown so before the daemon is asked, which may take it two seconds. */
function withPeer(peers: readonly Peer[], event: Told): readonly Peer[] {
  if (event.name !== "peer_left" && event.name !== "peer_joined") return peers;
  const peerId = textIn(event, "peer_id"), connected = event.name === "peer_joined";
  return peers.map((peer) => (peer.peer_id === peerId ? { ...peer, connected } : peer));
}

/** What an event says already, before the daemon is asked for all of it. */
function quickly(status: Status, event: Told): Status {
  switch (event.name) {
    case "round_finalized":
      return {
        ...status,
        height: numberIn(event, "height") ?? status.height,
        round: numberIn(event, "round") ?? status.round,
        loss_nats: numberIn(event, "loss_nats"),
      };
    case "quorum_wait":
      return {
        ...status,
        waiting: event["waiting"] === true
          ? `${event["reachable"]} of ${event["total"]} reachable, waiting: a quorum needs `
            + `${event["quorum"]}`
          : null,
      };
    case "job_ended":
      return { ...status, phase: "done", done: true, ended_because: textIn(event, "reason") };
    case "trainer_lost":
      return { ...status, trainer_pid: null };
    default:
      return status;
  }
}

function withRound(rounds: readonly RoundRecord[], event: Told): readonly RoundRecord[] {
  const height = numberIn(event, "height");
  if (height === null || (rounds.at(-1)?.height ?? -1) >= height) return rounds;
  const record: RoundRecord = {
    height,
    training_round: numberIn(event, "round") ?? height,
    vertex_id: textIn(event, "vertex_id"),
    loss_nats: numberIn(event, "loss_nats"),
    certified_by: [], contributors: [], voided: [], // who they are comes with the next full answer
    bytes_sent: numberIn(event, "bytes_sent") ?? 0,
    wall_s: numberIn(event, "wall_s") ?? 0,
  };
  return [...rounds.slice(1 - ROUNDS_MAX), record];
}

/** Whether its certificate and contributors are still to be asked for. */
export function isBare(record: RoundRecord): boolean {
  return record.height > 0 && record.contributors.length === 0;
}

/** The round under way, if there is one. */
export function underWay(state: State): Walk | null {
  const newest = state.walks.at(-1);
  return newest !== undefined && newest.end === null && newest.beganS !== null ? newest : null;
}
