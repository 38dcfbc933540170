/** What the daemon's API answers, as far as this page reads it; docs/operator-api.md has it all. */

export interface Decision {
  readonly decision: string;
  readonly reason: string;
}

export interface Reachability {
  readonly reach: string;
  readonly why: string;
  readonly seen_at: readonly string[];
  readonly relays: readonly string[];
  readonly punched: readonly string[];
}

export interface Storage {
  readonly chain_bytes: number;
  readonly work_bytes: number;
  readonly bytes_max: number | null;
  readonly level: "room" | "near" | "over";
}

export interface Copies {
  readonly wanted?: number;
  readonly states: readonly {
    height: number; here: boolean; coming: boolean; copies: number | null;
  }[];
}

export interface Status {
  readonly node_id: string;
  readonly peer_id: string;
  readonly chain_id: string;
  readonly pid: number;
  readonly trainer_pid: number | null;
  readonly reachability: Reachability;
  readonly part: string;
  readonly phase: string;
  readonly round: number;
  readonly height: number;
  readonly vertex_id: string;
  readonly loss_nats: number | null;
  readonly alarm: string | null;
  readonly storage: Storage;
  readonly copies: Copies;
  readonly damaged: readonly string[];
  readonly validators: { reachable: number; total: number; quorum: number; stake: number };
  readonly trainers: { reachable: number; total: number };
  readonly waiting: string | null;
  readonly paused?: boolean;
  readonly never_trains?: boolean;
  readonly decisions: readonly Decision[];
  readonly bytes_sent: number;
  readonly bytes_received: number;
  readonly done: boolean;
  readonly ended_because: string | null;
  readonly anon_rss_bytes: number;
}

export interface Health {
  readonly level: string;
  readonly score: number;
  readonly weakest: string;
  readonly would_raise: string | null;
  readonly excluded_because: string | null;
}

export interface SeesUs {
  readonly level: string;
  readonly score: number;
  readonly weakest: string;
  readonly would_raise: string | null;
}

export interface Peer {
  readonly node_id: string | null;
  readonly peer_id: string;
  readonly connected: boolean;
  readonly relayed: boolean;
  readonly punched: boolean;
  readonly dialled?: boolean | null; // whether we opened the connection
  readonly websocket?: boolean | null; // or plain TCP
  readonly reach: string | null;
  readonly why?: string | null; // it is relayed, or cannot be reached
  readonly role: string | null;
  readonly part: string | null;
  readonly never_trains?: boolean;
  readonly faults: Readonly<Record<string, number>>;
  readonly height: number | null;
  readonly rtt_ms: number | null;
  readonly health: Health | null;
  readonly sees_us: SeesUs | null;
  readonly shunned_until_round: number | null;
  readonly last_seen_s: number;
}

/** By the chain: anybody else may connect, under ever new names. */
export function isMember({ part }: Peer): boolean {
  return part !== null && part !== "observer";
}

export interface RoundRecord {
  readonly height: number;
  readonly training_round: number;
  readonly vertex_id: string;
  readonly loss_nats: number | null;
  readonly certified_by: readonly string[];
  readonly contributors: readonly string[];
  readonly voided: readonly string[];
  readonly bytes_sent: number;
  readonly wall_s: number;
}

/** The newest checkpoints, oldest first, with what each stands on. */
export interface Graph {
  readonly vertices: readonly {
    readonly vertex_id: string;
    readonly height: number;
    readonly training_round: number;
    readonly parents: readonly string[];
    readonly rule: string;
    readonly contributions: number;
    readonly voided: number;
    readonly newly_convicted: readonly string[];
  }[];
}

/** What contributors say that they measured of each checkpoint: their word, and no proof. */
export interface Losses {
  readonly heights: readonly number[]; // of what was measured
  readonly contributors: readonly number[];
  readonly measured: readonly number[];
  readonly least_nats: readonly (number | null)[];
  readonly median_nats: readonly (number | null)[];
  readonly greatest_nats: readonly (number | null)[];
  readonly nodes: readonly {
    readonly node_id: string;
    readonly mine: boolean;
    readonly losses_nats: readonly (number | null)[];
  }[];
  readonly nodes_in_all: number;
}

/** As this node measured them: the oldest minute first. */
export interface RoundTrips {
  readonly minutes: number;
  readonly peers: readonly {
    readonly node_id: string | null;
    readonly peer_id: string;
    readonly connected: boolean;
    readonly rtts_ms: readonly (number | null)[];
  }[];
  readonly peers_in_all: number;
}

/** A run that the operator compares with: heights ascend, times add up from its first round. */
export interface OtherRun {
  readonly name: string;
  readonly useful_share: number | null;
  readonly rounds: readonly {
    readonly height: number;
    readonly at_s: number;
    readonly wall_s: number;
    readonly loss_nats: number | null;
  }[];
}

export interface Baseline {
  readonly baseline: OtherRun | null;
  readonly why_not: string | null;
}

export interface MembershipRequest {
  readonly id: string;
  readonly what: string;
  readonly expires_epoch: number;
  readonly approved_weight: number;
  readonly in_chain: boolean;
}

export interface Members {
  readonly epoch: number;
  readonly epoch_rounds: number;
  readonly quorum: number;
  readonly stake: number;
  readonly validators: readonly { node_id: string; stake: number; peer_id: string | null }[];
  readonly waiting: readonly MembershipRequest[];
  readonly asked: readonly MembershipRequest[];
}

export interface Setting {
  readonly key: string;
  readonly value: string | number | boolean | null | object;
  readonly origin: string;
  readonly reloads: boolean; // whether a running daemon takes over another one
}

export interface Settings {
  readonly file: string;
  readonly digest: string; // of what the file says now
  readonly settings: readonly Setting[];
}

/** Of a node that keeps a history: all that each host has ever brought. */
export interface Contributed {
  readonly rounds: number;
  readonly tokens: number;
  readonly contributions: readonly {
    readonly node_id: string | null;
    readonly rounds: number;
    readonly void: number;
    readonly tokens: number;
    readonly share: number;
    readonly last_height: number | null;
    readonly left_out: Readonly<Record<string, number>>;
  }[];
}

/** One line of the event log: its time in seconds, its name, and fields of its own. */
export interface Told {
  readonly ts: number;
  readonly name: string;
  readonly [field: string]: unknown;
}

export function numberIn(event: Told, field: string): number | null {
  const value = event[field];
  return typeof value === "number" ? value : null;
}

export function textIn(event: Told, field: string): string {
  const value = event[field];
  return typeof value === "string" ? value : "";
}
