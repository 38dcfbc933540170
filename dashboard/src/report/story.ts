/** What `simnet report` tells this page: simnet/results/run_story.py writes it. Times are in ms. */

export interface Lane {
  readonly node: number;
  readonly liar: string | null;
  readonly views: { readonly at: readonly number[]; readonly view: readonly number[] };
  readonly votes: {
    readonly at: readonly number[];
    readonly view: readonly number[];
    readonly kind: readonly string[];
  };
  readonly finals: {
    readonly at: readonly number[];
    readonly height: readonly number[];
    readonly payload: readonly string[];
  };
  readonly losses: {
    readonly at: readonly number[];
    readonly height: readonly number[];
    readonly nats: readonly number[];
  };
  readonly downs: readonly (readonly [fromMs: number, toMs: number])[];
}

export interface Fault {
  readonly fromMs: number;
  readonly toMs: number;
  readonly kind: string;
  readonly detail: string;
  readonly nodes: readonly number[];
}

export interface Broken {
  readonly atMs: number;
  readonly name: string;
  readonly detail: string;
}

export interface Invariant {
  readonly name: string;
  readonly verdict: string;
  readonly holds: boolean;
  readonly detail: string;
}

export interface NodeRow {
  readonly node: number;
  readonly liar: string | null;
  readonly views: number;
  readonly votes: number;
  readonly nullified: number;
  readonly finals: number;
  readonly rounds: number;
  readonly downMs: number;
  readonly faults: number;
  readonly lossNats: number | null;
}

export interface Round {
  readonly height: number;
  readonly firstMs: number;
  readonly lastMs: number;
  readonly nodes: number;
  readonly contributors: number;
  readonly vertices: readonly string[];
}

export interface Router {
  readonly node: number;
  readonly nat: string;
  readonly passage: string;
  readonly rounds: number | null;
  readonly relays: number;
  readonly relayedWith: readonly number[];
  readonly punchedWith: readonly number[];
}

/** Runs side by side; each list but `figures` and `times` has as many items as there are names. */
export interface Sides {
  readonly factor: string;
  readonly names: readonly string[];
  readonly seeds: readonly (readonly number[])[];
  readonly figures: readonly {
    readonly name: string;
    readonly isShare: boolean;
    readonly sides: readonly (readonly [mean: number, least: number, greatest: number] | null)[];
    readonly over: readonly (number | null)[]; // the first side's, seed by seed
  }[];
  readonly losses: readonly {
    readonly atMs: readonly number[];
    readonly nats: readonly number[];
  }[];
  readonly times: readonly {
    readonly group: string;
    readonly sides: readonly (Readonly<Record<string, number>> | null)[];
  }[];
  readonly broken: readonly (readonly string[])[];
}

export interface Story {
  readonly scenario: string;
  readonly ok: boolean;
  readonly endMs: number;
  readonly figures: {
    readonly seed: number;
    readonly fidelity: string;
    readonly nodes: number;
    readonly virtual_s: number;
    readonly wall_s: number;
    readonly cpu_s: number;
    readonly trace_hash: string;
    readonly roots: readonly string[];
  };
  readonly invariants: readonly Invariant[];
  readonly sometimes: readonly { readonly name: string; readonly hits: number }[];
  readonly lanes: readonly Lane[];
  readonly lanesLeftOut: number;
  readonly marksLeftOut: number;
  readonly broken: readonly Broken[];
  readonly faults: readonly Fault[];
  readonly faultsLeftOut: number;
  readonly nodes: readonly NodeRow[];
  readonly nodesLeftOut: number;
  readonly rounds: readonly Round[];
  readonly roundsLeftOut: number;
  readonly routers: readonly Router[];
  readonly measured: readonly (readonly [name: string, value: string])[];
  readonly file: string;
  readonly again: string;
  readonly sides: Sides | null;
  readonly licenses: string;
}
