/** What a session knows, and what it starts with. How it moves is session.ts's. */

import { kindsFor } from "./kinds";
import type {
  Canonical, FromNet, GivenTask, JoiningStep, Lifetime, LoadingStep, Matmul, ToNet, Version,
} from "./protocol";

export const SLOTS_MAX = 2; // a gateway gives nobody more than two tasks at once
export const QUEUE_MAX = 2; // tasks that came before a pause was heard of
export const CHECKS_KEPT = 256; // what the map can show, and then some
export const EARLY = SLOTS_MAX; // the early worker's number, where others have that of their slot
export const LIVES = 3; // workers that may die one after the other, with no task done between

/** What a person has chosen. */
export interface Settings {
  readonly dutyPercent: number; // of the time, 10..100
  readonly workers: number; // 1..SLOTS_MAX
  readonly gpu: boolean;
  readonly sparesBattery: boolean;
  readonly sparesBusy: boolean;
  readonly savesData: boolean;
}

/** What the machine is doing besides. */
export interface Surroundings {
  readonly onBattery: boolean;
  readonly isBusy: boolean;
  readonly isHidden: boolean; // the tab
}

/** Whether it runs at all, and what ended it. */
export type Run =
  | { readonly at: "idle" | "claiming" }
  | { readonly at: "on"; readonly isPaused: boolean }
  | { readonly at: "ended"; readonly end: End };

export type End =
  | { readonly type: "finished" | "elsewhere" | "inexact" | "practised" }
  | { readonly type: "broken"; readonly words: string }
  | { readonly type: "refused"; readonly reason: string; readonly words: string };

/** One compute worker. */
export type Slot =
  | { readonly at: "loading"; readonly step: LoadingStep | null }
  | { readonly at: "stranded" } // nobody answered who had what it still had to load
  | { readonly at: "checking"; readonly piece: number; readonly isAsked: boolean }
  | { readonly at: "free" }
  | { readonly at: "computing"; readonly task: GivenTask };

/** The worker that proves while those with Python load: it goes when one of them is there. */
export type Early =
  | { readonly at: "loading" | "free" }
  | { readonly at: "computing"; readonly task: GivenTask };

export type Joined = Extract<FromNet, { type: "joined" }>;

export type Net =
  | { readonly at: "off" }
  | { readonly at: "joining"; readonly step: JoiningStep | null }
  | { readonly at: "joined"; readonly joined: Joined; readonly told: Told | null }
  | { readonly at: "away"; readonly reason: string; readonly words: string;
      readonly againAtMs: number | null } // null: once it may work again
  | { readonly at: "shut"; readonly reason: string; readonly words: string };

/** The last `ready` that the gateway was sent. */
export interface Told {
  readonly count: number;
  readonly kinds: readonly string[];
}

/** One practice piece that came back. */
export interface Practised {
  readonly slot: number;
  readonly piece: number;
  readonly digest: string;
  readonly agrees: boolean;
  readonly ms: number;
}

/** waiting -> computing -> sent -> agreed | differed; or dropped, from each of the first three. */
export type Mark = "waiting" | "computing" | "sent" | "agreed" | "differed" | "dropped";

export interface Check {
  readonly id: string;
  readonly kind: string;
  readonly mark: Mark;
}

/** The piece that was computed last, and when it was done. */
export interface Latest {
  readonly kind: string;
  readonly atMs: number;
}

export interface Tally {
  readonly sent: number;
  readonly agreed: number;
  readonly differed: number;
}

/** Of the volunteer's key: what was asked of it last. */
export type KeyCare =
  | { readonly at: "quiet" | "exporting" | "exported" | "erasing" | "erased" }
  | { readonly at: "failed"; readonly words: string };

export interface State {
  readonly run: Run;
  readonly settings: Settings;
  readonly surroundings: Surroundings;
  readonly expected: readonly string[]; // digest of each practice piece
  readonly slots: readonly Slot[];
  readonly early: Early | null;
  readonly practice: readonly Practised[];
  readonly version: Version | null;
  readonly lives: number;
  readonly mishap: string | null; // why a worker had to be replaced
  readonly gpuFault: string | null; // why WebGPU is not used though it is ticked
  readonly net: Net;
  readonly isLeaving: boolean; // what the session before still says is not of this one
  readonly netFalls: number; // of the net worker, with no verdict taken between
  readonly reloads: number; // of stranded workers, with none loaded between
  readonly queue: readonly GivenTask[];
  readonly latest: Latest | null;
  readonly debtMs: number; // of rest
  readonly restUntilMs: number | null;
  readonly unfit: readonly string[]; // kinds that failed here
  readonly checks: readonly Check[]; // the newest last
  readonly tally: Tally; // of this visit
  readonly lifetime: Lifetime | null;
  readonly name: string | null; // of the volunteer
  readonly key: KeyCare;
}

export type Event =
  | { readonly type: "start" | "pause" | "resume" | "finish" | "hurry" }
  | { readonly type: "settings"; readonly settings: Settings }
  | { readonly type: "surroundings"; readonly surroundings: Surroundings }
  | { readonly type: "claimed" | "taken" | "robbed" } // the right to be the one tab that works
  | { readonly type: "woken"; readonly timer: Timer }
  | { readonly type: "export" | "erase" }
  | { readonly type: "net"; readonly message: FromNet }
  | { readonly type: "net-died"; readonly words: string }
  | { readonly type: "worker"; readonly slot: number; readonly said: Said }
  | { readonly type: "fault"; readonly words: string }; // of the page itself

/** What a compute worker said, or what became of it. */
export type Said =
  | { readonly type: "loading"; readonly step: LoadingStep }
  | { readonly type: "loaded"; readonly version: Version }
  | { readonly type: "proves" }
  | { readonly type: "practised"; readonly piece: number; readonly digest: string;
      readonly ms: number }
  | { readonly type: "computed"; readonly task: string; readonly result: readonly Canonical[];
      readonly ms: number }
  | { readonly type: "unable"; readonly task: string; readonly words: string }
  | { readonly type: "stranded" } // it could not load: nobody answers at the page's address
  | { readonly type: "useless"; readonly words: string } // it could not load, or not practise
  | { readonly type: "died"; readonly words: string };

export type Timer = "rest" | "again" | "load";

export type Effect =
  | { readonly type: "claim"; readonly byForce: boolean }
  | { readonly type: "release" }
  | { readonly type: "spawn"; readonly slot: number; readonly matmul: Matmul }
  | { readonly type: "spawn-early" }
  | { readonly type: "kill"; readonly slot: number }
  | { readonly type: "practise"; readonly slot: number; readonly piece: number }
  | { readonly type: "compute"; readonly slot: number; readonly task: GivenTask }
  | { readonly type: "net"; readonly message: ToNet }
  | { readonly type: "wake"; readonly timer: Timer; readonly inMs: number } // replaces its like
  | { readonly type: "sleep" } // no timer wakes any more
  | { readonly type: "save"; readonly file: string; readonly name: string };

export function idle(
  expected: readonly string[], settings: Settings, surroundings: Surroundings,
): State {
  return {
    run: { at: "idle" }, settings, surroundings, expected,
    slots: [], early: null, practice: [], version: null, lives: LIVES, mishap: null, gpuFault: null,
    net: { at: "off" }, isLeaving: false, netFalls: 0, reloads: 0,
    queue: [], latest: null, debtMs: 0, restUntilMs: null, unfit: [],
    checks: [], tally: { sent: 0, agreed: 0, differed: 0 }, lifetime: null, name: null,
    key: { at: "quiet" },
  };
}

export function isOn(state: State): boolean {
  return state.run.at === "on";
}

/** Why it rests though nobody pressed Pause. */
export type Hold = "battery" | "busy";

export function holdOf({ settings, surroundings }: State): Hold | null {
  if (settings.sparesBattery && surroundings.onBattery) return "battery";
  if (settings.sparesBusy && surroundings.isBusy) return "busy";
  return null;
}

/** Whether anything may be computed, but for a short rest. */
export function mayWork(state: State): boolean {
  return state.run.at === "on" && !state.run.isPaused && holdOf(state) === null;
}

/** How many workers have practised. */
export function readyOf({ slots }: State): number {
  return slots.filter(({ at }) => at === "free" || at === "computing").length;
}

/** Kinds of tasks that it takes. */
export function wanted({ settings, unfit }: State): readonly string[] {
  return kindsFor(settings.savesData, unfit);
}

/** What becomes of it once the session is over. */
export function dropped<C extends { readonly mark: Mark }>(check: C): C {
  const isOpen = check.mark === "waiting" || check.mark === "computing";
  return isOpen ? { ...check, mark: "dropped" } : check;
}

/** Which invariant does not hold, in words; null if all do. */
export function faultOf(state: State): string | null {
  const { slots, early, queue, net, checks } = state;
  const inHand = [...slots, early]
    .flatMap((slot) => (slot?.at === "computing" ? [slot.task] : []));
  const ids = [...queue, ...inHand].map(({ id }) => id);
  const isIdle = slots.length === 0 && queue.length === 0 && early === null;
  if (!isOn(state) && !isIdle) return "work, and nobody started it";
  if (!isOn(state) && net.at !== "off" && net.at !== "shut") return "a session nobody started";
  if (isOn(state) && slots.length !== state.settings.workers) return "workers nobody asked for";
  if (new Set(ids).size < ids.length) return "a task in two places";
  if (queue.length > QUEUE_MAX || checks.length > CHECKS_KEPT) return "too much is kept";
  if (net.at === "joined" && (net.told?.count ?? 0) > slots.length) return "too much asked for";
  return null;
}
