/** Answers of a daemon, as its API gives them. */

import type { Advice } from "../src/advice";
import type { Peer, RoundRecord, Status, Told } from "../src/facts";
import { NOTHING_KNOWN, type State } from "../src/state";

export const ME = "aa".repeat(32);
export const OTHERS = ["bb", "cc", "dd"].map((pair) => pair.repeat(32));

export function status(more: Partial<Status> = {}): Status {
  return {
    node_id: ME, peer_id: "12D3KooWme", chain_id: "c4".repeat(32), pid: 7, trainer_pid: 8,
    reachability: { reach: "direct", why: "", seen_at: [], relays: [], punched: [] },
    part: "validator", phase: "training", round: 4, height: 4, vertex_id: "ee".repeat(32),
    loss_nats: 2.5, alarm: null,
    storage: { chain_bytes: 1_000, work_bytes: 500, bytes_max: null, level: "room" },
    copies: { wanted: 3, states: [] }, damaged: [],
    validators: { reachable: 4, total: 4, quorum: 3, stake: 4 },
    trainers: { reachable: 0, total: 0 }, waiting: null,
    decisions: [{ decision: "train", reason: "round 5 is open and a quorum is reachable" }],
    bytes_sent: 1, bytes_received: 2, done: false, ended_because: null, anon_rss_bytes: 3,
    ...more,
  };
}

export function peer(nodeId: string, more: Partial<Peer> = {}): Peer {
  return {
    node_id: nodeId, peer_id: `12D3KooW${nodeId.slice(0, 8)}`, connected: true, relayed: false,
    punched: false, reach: "direct", role: "cloud", part: "validator", faults: {}, height: 4,
    rtt_ms: 1.5, health: null, sees_us: null, shunned_until_round: null, last_seen_s: 0.2, ...more,
  };
}

export function record(height: number, more: Partial<RoundRecord> = {}): RoundRecord {
  return {
    height, training_round: height, vertex_id: "ff".repeat(32), loss_nats: 5 - height / 10,
    certified_by: [ME, ...OTHERS], contributors: [ME, ...OTHERS], voided: [], bytes_sent: 100,
    wall_s: 2, ...more,
  };
}

export function told(name: string, ts: number, fields: Record<string, unknown> = {}): Told {
  return { ts, name, ...fields };
}

export function state(more: Partial<State> = {}): State {
  return {
    ...NOTHING_KNOWN, link: { at: "live" }, status: status(),
    peers: OTHERS.map((id) => peer(id)), ...more,
  };
}

const ASKED = [
  "trainer_lost", "storage_near", "storage_over", "record_damaged", "loss_jumped", "copies_lack",
];

/** Of the events that the page asks for by name, and of some more. */
export const ADVICE: Advice = {
  events: {
    ...Object.fromEntries(ASKED.map((name) => [name, { means: `${name} is`, do: `mend ${name}` }])),
    round_started: { means: "A round has begun", do: "" },
    peer_fault: { means: "It broke a rule", do: "Nothing, if it is rare" },
    peer_refused: { means: "They do not talk", do: "See why" },
  },
  refusals: { "clock-skew": { means: "The clocks differ", do: "Set the clock" } },
};
