/** What a person is told in each state: plain words, computed from the state alone. */

import type { LoadingStep } from "./protocol";
import type { Phase, State } from "./session";

export interface View {
  readonly phase: string;
  readonly now: string;
  readonly why: string;
  readonly tone: "calm" | "good" | "bad";
  readonly share: number | null; // of the pieces, 0..1; null while it cannot be told
  readonly start: string | null; // the button's words; null hides it
  readonly pause: string | null;
  readonly finish: string | null;
}

const PHASES: Record<Phase, string> = {
  idle: "Ready",
  loading: "Loading",
  working: "Working",
  paused: "Paused",
  finished: "Finished",
  failed: "Stopped by an error",
};

const STEPS: Record<LoadingStep, string> = {
  python: "Loading Python",
  numpy: "Loading numpy",
  kernels: "Loading the daemon's program",
};

const NOT_JOINED = "This page is not joined to a network, so nobody was told.";

export function viewOf(state: State, parametersOf: (piece: number) => number): View {
  const total = state.expected.length;
  const count = state.results.length;
  const rest = {
    phase: PHASES[state.phase], share: count / total,
    tone: "calm", start: null, pause: null, finish: null,
  } as const;
  switch (state.phase) {
    case "idle":
      return {
        ...rest, start: "Start",
        now: "Nothing runs yet",
        why: `Start loads Python and works on ${total} practice pieces, for a few seconds.`,
      };
    case "loading":
      return {
        ...rest, share: null, finish: "Cancel",
        now: STEPS[state.step ?? "python"],
        why: "It comes with the very program that the daemons run: so the bits can be the same.",
      };
    case "working":
      return {
        ...rest, pause: "Pause", finish: "Finish",
        now: `Piece ${count + 1} of ${total}: ${grouped(parametersOf(count))} parameters`,
        why: "The answer to a practice piece is known. It shows that this browser computes as "
          + "exactly as any other machine, before its word may count.",
      };
    case "paused":
      return {
        ...rest, pause: "Resume", finish: "Finish",
        now: `Paused after ${count} of ${total} pieces`,
        why: "Nothing is computed until you resume.",
      };
    case "finished":
      return { ...rest, start: "Start again", ...verdict(state) };
    case "failed":
      return {
        ...rest, tone: "bad", start: "Try again",
        now: "It could not go on",
        why: state.version === null ? `${state.reason}.`
          : `${state.reason}. Nothing is lost but the piece in hand.`,
      };
  }
}

function verdict({ results, expected }: State): Pick<View, "now" | "why" | "tone"> {
  const wrong = results.filter(({ agrees }) => !agrees).length;
  if (wrong > 0) {
    return {
      tone: "bad",
      now: `${wrong} of ${results.length} pieces came out different`,
      why: "This browser or this computer does not compute exactly. It should not check others' "
        + "work. Please report it, with the version below.",
    };
  }
  if (results.length === 0) {
    return { tone: "calm", now: "Finished before the first piece", why: "Nothing was computed." };
  }
  if (results.length < expected.length) {
    return {
      tone: "calm",
      now: `Finished after ${results.length} of ${expected.length} pieces, the same bits in all`,
      why: `The piece in hand was dropped. ${NOT_JOINED}`,
    };
  }
  return {
    tone: "good",
    now: `All ${results.length} pieces are the same, bit for bit`,
    why: `This browser computes exactly as the daemons do. ${NOT_JOINED}`,
  };
}

export function grouped(count: number): string {
  return count.toLocaleString("en");
}

/** The middle one, in milliseconds. */
export function medianMs(times: readonly number[]): string {
  const sorted = [...times].sort((a, b) => a - b);
  const middle = sorted[Math.floor(sorted.length / 2)];
  return middle === undefined ? "\u2013" : `${Math.round(middle)} ms`;
}
