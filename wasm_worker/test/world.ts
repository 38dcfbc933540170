/** A session under test: a clock of its own, and all effects kept. */

import { next } from "../src/session";
import type { FromNet, GivenTask, ToNet, Version } from "../src/protocol";
import {
  idle, type Effect, type Event, type Said, type Settings, type State,
} from "../src/state";

export const EXPECTED = ["aa", "bb"];
export const VERSION: Version = {
  recompute: "ab", pieces: "cd", pyodide: "0.27.7", numpy: "2.0.2", matmul: "wasm",
};
export const SETTINGS: Settings = {
  dutyPercent: 100, workers: 1, gpu: false, sparesBattery: true, sparesBusy: true,
  savesData: false,
};
export const CALM = { onBattery: false, isBusy: false, isHidden: false };
export const JOINED: FromNet = {
  type: "joined", name: "5e".repeat(32), lifetime: [7, 4, 1], peers: 1,
  gateway: {
    chainId: "c4".repeat(32), nodeId: "0d".repeat(32), peerId: "12D3", protocolVersion: 2,
    site: "517e", address: "/ip4/127.0.0.1/tcp/4001/ws", transport: "ws", wanted: ["dag"],
    sessions: [3, 256],
  },
};

export class World {
  effects: Effect[] = [];

  nowMs = 0;

  state: State;

  constructor(settings: Partial<Settings> = {}) {
    this.state = idle(EXPECTED, { ...SETTINGS, ...settings }, CALM);
  }

  /** Each in its turn; `effects` are those of all of them. */
  do(...events: Event[]): this {
    this.effects = [];
    for (const event of events) {
      const [state, effects] = next(this.state, event, this.nowMs);
      this.state = state;
      this.effects.push(...effects);
    }
    return this;
  }

  get told(): ToNet[] {
    return this.effects.flatMap((effect) => (effect.type === "net" ? [effect.message] : []));
  }

  types(): string[] {
    return this.effects.map(({ type }) => type);
  }

  /** With a worker that has practised, and a session. */
  joined(): this {
    return this.do(press("start"), press("claimed"), ...practised(), net(JOINED));
  }
}

export function press(
  type: "start" | "pause" | "resume" | "finish" | "hurry" | "claimed" | "taken" | "robbed"
  | "export" | "erase",
): Event {
  return { type };
}

export function net(message: FromNet): Event {
  return { type: "net", message };
}

export function worker(said: Said, slot = 0): Event {
  return { type: "worker", slot, said };
}

export function practised(slot = 0, digests = EXPECTED): Event[] {
  return [
    worker({ type: "loaded", version: VERSION }, slot),
    ...digests.map((digest, piece) => worker({ type: "practised", piece, digest, ms: 5 }, slot)),
  ];
}

export function task(id: string, kind = "dag"): GivenTask {
  return { id, kind, parameters: [], blobs: [], deadlineMs: 30_000 };
}

export function given(id: string, kind = "dag"): Event {
  return net({ type: "task", task: task(id, kind) });
}

export function computed(id: string, ms = 5, slot = 0): Event {
  return worker({ type: "computed", task: id, result: [1], ms }, slot);
}

export function left(reason: string, againInMs: number | null): Event {
  return net({ type: "left", reason, words: "", againInMs });
}

export function taken(id: string, agreed: boolean | null): Event {
  return net({ type: "taken", task: id, agreed, lifetime: [8, 5, 1] });
}
