/**
 * What the page does, step by step, without a page: events in, the next state and effects out.
 *
 *   idle -start-> loading -ready-> working -pause-> paused -resume-> working
 *   working -the last piece is back-> finished
 *   loading | working | paused -finish-> finished
 *   loading | working | paused -the worker fails or dies-> failed -start-> loading
 *   finished -start-> loading
 *
 * Invariants: a piece is with the worker only in working, or in paused until it comes back; every
 * piece counts once; nothing is computed unless a person pressed Start.
 */

import type { FromWorker, LoadingStep, Version } from "./protocol";

export type Phase = "idle" | "loading" | "working" | "paused" | "finished" | "failed";

export interface State {
  readonly phase: Phase;
  readonly step: LoadingStep | null; // of loading
  readonly version: Version | null;
  readonly expected: readonly string[]; // digest of each piece
  readonly asked: number | null; // the piece that the worker has
  readonly results: readonly Result[];
  readonly reason: string | null; // why it failed
}

export interface Result {
  readonly piece: number;
  readonly digest: string;
  readonly agrees: boolean;
  readonly ms: number;
}

export type Event =
  | { readonly type: "start" | "pause" | "resume" | "finish" }
  | { readonly type: "worker"; readonly message: FromWorker }
  | { readonly type: "died"; readonly reason: string };

export type Effect =
  | { readonly type: "spawn" } // a new worker, told to load
  | { readonly type: "ask"; readonly piece: number }
  | { readonly type: "stop" }; // ends the worker and what it computes

export type Next = readonly [State, readonly Effect[]];

export function idle(expected: readonly string[]): State {
  return {
    phase: "idle", step: null, version: null, expected, asked: null, results: [], reason: null,
  };
}

export function next(state: State, event: Event): Next {
  switch (event.type) {
    case "start":
      return isRunning(state) ? [state, []] : started(state);
    case "pause":
      return state.phase === "working" ? [{ ...state, phase: "paused" }, []] : [state, []];
    case "resume":
      return state.phase === "paused" ? withWork({ ...state, phase: "working" }) : [state, []];
    case "finish":
      return isRunning(state) ? ended(state, "finished", null) : [state, []];
    case "died":
      return isRunning(state) ? ended(state, "failed", event.reason) : [state, []];
    case "worker":
      return isRunning(state) ? heard(state, event.message) : [state, []];
  }
}

export function isRunning(state: State): boolean {
  return state.phase === "loading" || state.phase === "working" || state.phase === "paused";
}

function started(state: State): Next {
  return [{ ...idle(state.expected), phase: "loading" }, [{ type: "spawn" }]];
}

function ended(state: State, phase: "finished" | "failed", reason: string | null): Next {
  return [{ ...state, phase, step: null, asked: null, reason }, [{ type: "stop" }]];
}

function heard(state: State, message: FromWorker): Next {
  switch (message.type) {
    case "loading":
      return [{ ...state, step: message.step }, []];
    case "ready":
      return withWork({ ...state, phase: "working", step: null, version: message.version });
    case "failed":
      return ended(state, "failed", message.reason);
    case "done": {
      const expected = state.asked === message.id ? state.expected[message.id] : undefined;
      if (expected === undefined) {
        return ended(state, "failed", `an answer to piece ${message.id}, which was not asked for`);
      }
      const { digest } = message.answer;
      const result = { piece: message.id, digest, agrees: digest === expected, ms: message.ms };
      return withWork({ ...state, asked: null, results: [...state.results, result] });
    }
  }
}

/** Gives the worker its next piece if it may have one; ends if there is none left. */
function withWork(state: State): Next {
  if (state.asked !== null) return [state, []];
  const piece = state.results.length;
  if (piece === state.expected.length) return ended(state, "finished", null);
  if (state.phase !== "working") return [state, []];
  return [{ ...state, asked: piece }, [{ type: "ask", piece }]];
}
