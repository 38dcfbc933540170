/**
 * Keeps the state fresh: by events while they come, and by asking for what they do not tell.
 *
 * A burst of events asks once. Nothing is asked while nobody looks at the page, but for the events.
 */

import { get, NotReached, Refused } from "./asking";
import type { Sent } from "./event_reader";
import type {
  Baseline, Contributed, Graph, Losses, Members, Peer, RoundRecord, RoundTrips, Settings, Status,
  Told,
} from "./facts";
import { follow } from "./following";
import { heard, isBare, NOTHING_KNOWN, type Link, type State } from "./state";

const SOON_MS = 150;
const STATUS_EVERY_MS = 5_000; // with events; without them it is all there is
const STATUS_ALONE_EVERY_MS = 1_000;
const PEERS_EVERY_MS = 10_000; // the daemon asks them in turn
const ROUNDS_EVERY_MS = 5_000;
const ROUNDS_AT_ONCE = 200; // of more the whole is asked for as much more seldom
const TOLD_LATER_MS = 16; // a frame: events that come together are shown together

// names of events after which something else is to be asked for
const OF_PEERS = /^(peer_|standing_changed|hole_|relay_|bulk_|author_shunned)/;
const OF_MEMBERS = /^(epoch_began|block_finalized)$/;
const OF_STATUS = new RegExp(
  "^(round_|decision|quorum_|job_|trainer_|storage_|record_|loss_|quarantined|rejoined|caught_up|"
  + "set_|update_sealed|reachability_)",
);

type Kind = "status" | "peers" | "rounds" | "graph" | "losses" | "roundTrips" | "baseline"
  | "members" | "contributed" | "settings";

const PATHS: Readonly<Record<Kind, string>> = {
  status: "/v1/status", peers: "/v1/peers", rounds: "/v1/rounds", graph: "/v1/checkpoints",
  losses: "/v1/losses", roundTrips: "/v1/round-trips", baseline: "/v1/baseline",
  members: "/v1/validators", contributed: "/v1/contributions", settings: "/v1/settings",
};
const EVERY_MS: Readonly<Record<Kind, number>> = {
  status: STATUS_EVERY_MS, peers: PEERS_EVERY_MS, rounds: ROUNDS_EVERY_MS,
  graph: ROUNDS_EVERY_MS, losses: ROUNDS_EVERY_MS, roundTrips: 15_000, baseline: 600_000,
  members: 15_000, contributed: 15_000, settings: 60_000,
};

const KINDS = Object.keys(PATHS) as Kind[];
// of these nothing is new before a round is over, and events say when one is
const BY_ROUND: ReadonlySet<Kind> = new Set<Kind>(["rounds", "graph", "losses"]);

export class Store {
  state: State = NOTHING_KNOWN;
  private readonly token: string;
  private readonly tell: (state: State) => void;
  private readonly stop = new AbortController();
  private readonly askedMs: Record<Kind, number> = {
    status: 0, peers: 0, rounds: 0, graph: 0, losses: 0, roundTrips: 0, baseline: 0, members: 0,
    contributed: 0, settings: 0,
  };
  private readonly due = new Set<Kind>();
  private isLearning = true; // what this daemon answers
  // what this daemon does not answer; a history only where its settings say so
  private readonly missing = new Set<Kind>(["contributed"]);
  private paths: object = {};
  private readonly asking = new Set<Kind>();
  private telling: ReturnType<typeof setTimeout> | null = null;
  private timer: ReturnType<typeof setInterval> | null = null;

  constructor(token: string, tell: (state: State) => void) {
    this.token = token;
    this.tell = tell;
  }

  start(): void {
    void this.ask("status");
    void this.learn();
    void follow(this.token, {
      onOpen: () => this.opened(),
      onSent: (sent) => this.take(sent),
      onAway: () => this.lost(),
      onEnd: (status) => this.setLink(status === 401 ? { at: "refused" } : { at: "asking" }),
    }, this.stop.signal);
    this.timer = setInterval(() => this.look(), SOON_MS);
  }

  end(): void {
    this.stop.abort();
    if (this.timer !== null) clearInterval(this.timer);
    if (this.telling !== null) clearTimeout(this.telling);
  }

  /** Somebody has just changed something: its answer is wanted at once. */
  refresh(...kinds: Kind[]): void {
    for (const kind of kinds) void this.ask(kind);
  }

  /** What this daemon answers: a question that it does not know is not asked. */
  private async learn(): Promise<void> {
    try {
      const { answer } = await get<{ paths: object }>("/openapi.json", this.token);
      this.paths = answer.paths;
      for (const kind of KINDS) if (!(PATHS[kind] in answer.paths)) this.missing.add(kind);
    } catch {
      // then each path tells by itself
    }
    this.isLearning = false;
  }

  /** Whether the daemon is gone, or this line alone, its next answer tells. */
  private lost(): void {
    if (this.state.link.at === "live") this.setLink({ at: "connecting" });
    void this.ask("status");
  }

  private opened(): void {
    this.setLink({ at: "live" });
    // whatever was missed is in these
    for (const kind of KINDS) this.due.add(kind);
  }

  private take({ event: name, data }: Sent): void {
    let fields: Partial<Told>;
    try {
      fields = JSON.parse(data) as Partial<Told>;
    } catch {
      return; // nothing of ours
    }
    const event: Told = { ts: Date.now() / 1_000, ...fields, name };
    this.set(heard(this.state, event));
    if (OF_STATUS.test(event.name)) this.due.add("status");
    if (OF_PEERS.test(event.name)) this.due.add("peers");
    if (OF_MEMBERS.test(event.name)) this.due.add("members");
    if (event.name === "config_reloaded") this.due.add("settings");
    if (event.name === "round_finalized") this.due.add("graph").add("losses");
    if (event.name === "events_missed") for (const kind of BY_ROUND) this.due.add(kind);
    if (event.name === "events_missed") this.due.add("status");
  }

  /** Whatever is due, and was not asked for a moment ago. */
  private look(): void {
    if (document.hidden || this.state.link.at === "refused") return;
    const nowMs = Date.now();
    if (this.state.rounds.some(isBare)) this.due.add("rounds");
    // one question is enough while nobody answers
    const isAlone = this.isLearning || this.state.link.at === "away";
    for (const kind of isAlone ? ["status" as const] : KINDS) {
      const sinceMs = nowMs - this.askedMs[kind];
      const everyMs = this.everyMs(kind);
      const isDue = BY_ROUND.has(kind) && this.state.link.at === "live"
        ? this.due.has(kind) && sinceMs > everyMs
        : sinceMs > everyMs || (this.due.has(kind) && sinceMs > 3 * SOON_MS);
      if (isDue && !this.missing.has(kind)) void this.ask(kind);
    }
  }

  private everyMs(kind: Kind): number {
    const { link, rounds } = this.state;
    if (kind === "status" && link.at !== "live") return STATUS_ALONE_EVERY_MS;
    const share = kind === "rounds" ? Math.max(1, rounds.length / ROUNDS_AT_ONCE) : 1;
    return share * EVERY_MS[kind];
  }

  private async ask(kind: Kind): Promise<void> {
    if (this.asking.has(kind)) return;
    this.asking.add(kind);
    this.askedMs[kind] = Date.now();
    this.due.delete(kind);
    try {
      const { answer, aheadS } = await get<unknown>(PATHS[kind], this.token);
      this.answered(kind, answer);
      if (aheadS !== this.state.aheadS) this.set({ ...this.state, aheadS });
    } catch (fault) {
      this.failed(kind, fault);
    } finally {
      this.asking.delete(kind);
    }
  }

  private answered(kind: Kind, answer: unknown): void {
    if (this.stop.signal.aborted) return;
    switch (kind) {
      case "status":
        this.set({ ...this.state, status: answer as Status });
        if (this.state.link.at === "away") this.setLink({ at: "connecting" });
        return;
      case "peers":
        return this.set({ ...this.state, peers: (answer as { peers: Peer[] }).peers });
      case "rounds":
        return this.set({ ...this.state, rounds: (answer as { rounds: RoundRecord[] }).rounds });
      case "graph":
        return this.set({ ...this.state, graph: answer as Graph });
      case "losses":
        return this.set({ ...this.state, losses: answer as Losses });
      case "roundTrips":
        return this.set({ ...this.state, roundTrips: answer as RoundTrips });
      case "baseline":
        return this.set({ ...this.state, baseline: answer as Baseline });
      case "members":
        return this.set({ ...this.state, members: answer as Members });
      case "contributed":
        return this.set({ ...this.state, contributed: answer as Contributed });
      case "settings":
        return this.setSettings(answer as Settings);
      default:
        kind satisfies never;
    }
  }

  private setSettings(settings: Settings): void {
    const keeps = settings.settings.some(
      ({ key, value }) => key === "history.enabled" && value === true);
    if (keeps && PATHS.contributed in this.paths) this.missing.delete("contributed");
    this.set({ ...this.state, settings });
  }

  private failed(kind: Kind, fault: unknown): void {
    if (this.stop.signal.aborted) return;
    if (fault instanceof Refused && fault.status === 401) this.setLink({ at: "refused" });
    else if (fault instanceof Refused && fault.status === 404) this.missing.add(kind);
    else if (fault instanceof NotReached && this.state.link.at !== "live" && kind === "status") {
      this.setLink({ at: "away", why: fault.message });
    }
  }

  private setLink(link: Link): void {
    this.set({ ...this.state, link });
  }

  private set(state: State): void {
    this.state = state;
    this.telling ??= setTimeout(() => {
      this.telling = null;
      this.tell(this.state);
    }, TOLD_LATER_MS);
  }
}
