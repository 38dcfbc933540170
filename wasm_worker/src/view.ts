/** What a person is told in each state: plain words, computed from the state alone. */

import { kindOf } from "./kinds";
import type { JoiningStep, LoadingStep } from "./protocol";
import { reasonOf } from "./reasons";
import { holdOf, mayWork, type End, type State } from "./state";
import { duration, pieces, sentence } from "./words";

export type Phase =
  | "idle" | "claiming" | "loading" | "checking" | "joining" | "waiting" | "working" | "resting"
  | "paused" | "battery" | "busy" | "away" | End["type"];

export type Tone = "calm" | "busy" | "good" | "bad";

/** `why` is why it helps or why it stopped; a button without words is not there. */
export interface View {
  readonly phase: Phase;
  readonly chip: string;
  readonly said: string; // to a screen reader, when it changes
  readonly title: string; // of the tab
  readonly now: string;
  readonly why: string;
  readonly notes: readonly string[];
  readonly tone: Tone;
  readonly progress: number | "moving" | null; // null: there is none
  readonly buttons: Buttons;
}

export interface Buttons {
  readonly start: string | null;
  readonly pause: string | null;
  readonly finish: string | null;
}

const BRAND = "daa-compute";
const LINGER_MS = 2_000; // the next piece is mostly there at once: nobody could read the two words

interface Told {
  readonly chip: string;
  readonly now: string;
  readonly why: string;
  readonly said?: string; // in place of why, where that changes all the time
  readonly tone?: Tone;
  readonly progress?: View["progress"];
  readonly buttons?: Partial<Buttons>;
}

const RUNNING: Partial<Buttons> = { pause: "Pause", finish: "Finish" };

export function viewOf(state: State, nowMs: number): View {
  const phase = phaseOf(state, nowMs);
  const told = TELLERS[phase](state, nowMs);
  return {
    phase,
    chip: told.chip, now: told.now, why: told.why,
    said: GROUPS[phase] ?? `${told.chip}: ${told.now}. ${told.said ?? told.why}`,
    title: `${phase === "idle" ? "Check a model in training" : told.chip} \u00b7 ${BRAND}`,
    notes: notesOf(state),
    tone: told.tone ?? "calm",
    progress: told.progress ?? null,
    buttons: { start: null, pause: null, finish: null, ...told.buttons },
  };
}

export function phaseOf(state: State, nowMs: number): Phase {
  const { run, slots, net, restUntilMs, latest } = state;
  if (run.at === "ended") return run.end.type;
  if (run.at !== "on") return run.at;
  if (run.isPaused) return "paused";
  const hold = holdOf(state);
  if (hold !== null) return hold;
  if (slots.every(({ at }) => at === "loading" || at === "checking" || at === "stranded")) {
    if (slots.some(({ at }) => at === "checking")) return "checking";
    return slots.some(({ at }) => at === "loading") ? "loading" : "away";
  }
  if (net.at === "away") return "away";
  if (net.at !== "joined") return "joining";
  if (slots.some(({ at }) => at === "computing")) return "working";
  if (restUntilMs !== null) return "resting";
  const sinceMs = latest === null ? Infinity : nowMs - latest.atMs;
  return sinceMs < LINGER_MS ? "working" : "waiting";
}

// steps and pieces come and go every second: whoever listens is told of the whole
const HELPING = "Joined. This browser works on pieces as they come.";
const GROUPS: Partial<Record<Phase, string>> = {
  loading: "Loading. Some megabytes come from this address.",
  checking: "Practising, on pieces whose answer is known.",
  joining: "Joining the gateway.",
  waiting: HELPING, working: HELPING, resting: HELPING,
};

const LOADING: Record<LoadingStep, readonly [now: string, share: number]> = {
  python: ["Loading Python", 0.1],
  numpy: ["Loading numpy", 0.3],
  kernels: ["Loading the program that the training machines run, too", 0.45],
};
const LOADED_SHARE = 0.5; // then comes practice

const JOINING: Record<JoiningStep, string> = {
  keys: "Opening the key of this browser",
  gateway: "Asking the gateway where to dial",
  dial: "Dialling the gateway",
  hello: "Introducing this browser to the gateway",
};

const TELLERS: Record<Phase, (state: State, nowMs: number) => Told> = {
  idle: () => ({
    chip: "Ready", now: "Nothing runs yet",
    why: "Start asks the gateway for pieces to check. Meanwhile it loads about 17 MB from this "
      + "address, and practises for a few seconds.",
    buttons: { start: "Start" },
  }),
  claiming: () => ({
    chip: "Starting", now: "Looking for other tabs of this page",
    why: "One tab of a browser works, however many are open.",
    progress: "moving", buttons: { finish: "Cancel" },
  }),
  loading: (state) => {
    const step = state.slots.find((slot) => slot.at === "loading")?.step ?? "python";
    const [now, share] = LOADING[step];
    return {
      chip: "Loading", now, tone: "busy", progress: share,
      buttons: provesEarly(state) ? RUNNING : { finish: "Cancel" },
      why: "It is the very program that the training machines run: so results can be the same "
        + "to the last bit.",
    };
  },
  checking: ({ practice, expected, settings }) => {
    const count = Math.min(practice.length, settings.workers * expected.length - 1);
    const share = practice.length / (settings.workers * expected.length);
    return {
      chip: "Practising", tone: "busy", buttons: RUNNING,
      now: `Practice piece ${count + 1} of ${settings.workers * expected.length}`,
      why: "Its answer is known. It shows that this browser computes exactly, before its word "
        + "may count.",
      progress: LOADED_SHARE + share * (1 - LOADED_SHARE),
    };
  },
  joining: ({ net }) => ({
    chip: "Joining", tone: "busy", progress: "moving", buttons: RUNNING,
    now: JOINING[(net.at === "joining" ? net.step : null) ?? "keys"],
    why: "The gateway is the machine that served this page. It gives out pieces, and takes what "
      + "comes out, signed by this browser.",
  }),
  waiting: () => ({
    chip: "Waiting", tone: "busy", buttons: RUNNING,
    now: "Waiting for a piece",
    why: "This browser is ready. Pieces come as the training goes on, and are shared among "
      + "all who help.",
  }),
  working: working,
  resting: ({ settings, surroundings }) => ({
    chip: "Resting", tone: "busy", buttons: RUNNING, now: "A short rest",
    why: surroundings.isHidden ? "A tab that nobody looks at works half of the time at most."
      : `You chose that it works ${settings.dutyPercent} % of the time.`,
  }),
  paused: (state) => ({
    chip: "Paused", now: "Paused by you", buttons: { pause: "Resume", finish: "Finish" },
    why: afterPause(state, "Nothing is computed until you resume."),
  }),
  battery: (state) => ({
    chip: "On battery", now: "Paused while the computer runs on battery",
    why: afterPause(state, "It goes on at the mains. You can change that below."),
    buttons: RUNNING,
  }),
  busy: (state) => ({
    chip: "Computer busy", now: "Paused while the computer is busy with other things",
    why: afterPause(state, "It goes on by itself. You can change that below."),
    buttons: RUNNING,
  }),
  away: away,
  finished: ({ tally }) => ({
    chip: "Finished", tone: tally.sent > 0 ? "good" : "calm", buttons: { start: "Start again" },
    now: tally.sent > 0 ? `Finished. You checked ${pieces(tally.sent)}: thank you`
      : "Finished before the first piece",
    why: "Nothing runs any more. What was in hand was given back, and others do it.",
  }),
  practised: ({ practice }) => ({
    chip: "Practice only", tone: "good", buttons: { start: "Try again" },
    now: `All ${practice.length} practice pieces are the same, bit for bit`,
    why: "This browser computes as exactly as the training machines. But there is no gateway at "
      + "this address to join, so nobody was told.",
  }),
  inexact: ({ practice }) => ({
    chip: "Not exact", tone: "bad", buttons: { start: "Try again" },
    now: `Practice piece ${practice.length} came out different`,
    why: "This browser or this computer does not compute exactly, so it should not check others' "
      + "work. Please report it, with the version below.",
  }),
  elsewhere: () => ({
    chip: "Elsewhere", buttons: { start: "Work here instead" },
    now: "Another tab or window works with the key of this browser",
    why: "Only one at a time can. Nothing is wrong: leave it there, or move the work here.",
  }),
  broken: ({ run, mishap }) => ({
    chip: "Stopped by an error", tone: "bad", buttons: { start: "Try again" },
    now: "It could not go on",
    why: `${sentence(endWords(run, "words") || mishap || "The reason is not known")} Nothing is `
      + "lost but the piece in hand. If it happens again, please report it, with the version "
      + "below.",
  }),
  refused: ({ run }) => {
    const { title, advice } = reasonOf(endWords(run, "reason"));
    const words = endWords(run, "words");
    return {
      chip: "Not joined", tone: "bad", buttons: { start: "Start again" },
      now: title, why: words === "" ? advice : `${advice} (It said: ${words}.)`,
    };
  },
};

function working({ slots, latest }: State): Told {
  const tasks = slots.flatMap((slot) => (slot.at === "computing" ? [slot.task] : []));
  const kind = kindOf(tasks[0]?.kind ?? latest?.kind ?? "");
  return {
    chip: "Working", tone: "busy", progress: "moving", buttons: RUNNING,
    now: `${kind?.now ?? "Computing a piece"}${tasks.length > 1 ? ", and one piece more" : ""}`,
    why: kind?.why ?? "What comes out is compared with what others find.",
  };
}

function away({ net }: State, nowMs: number): Told {
  // else a worker found out that the gateway is gone, before the connection did
  const { title, advice } = reasonOf(net.at === "away" ? net.reason : "unreachable");
  const againAtMs = net.at === "away" ? net.againAtMs : null;
  const leftS = againAtMs === null ? 0 : Math.max(0, Math.ceil((againAtMs - nowMs) / 1000));
  return {
    chip: "Away", tone: "bad", now: title, said: advice,
    why: againAtMs === null ? advice : `${advice} Next try in ${duration(leftS)}.`,
    buttons: { start: "Try now", finish: "Finish" },
  };
}

function provesEarly({ early, net }: State): boolean {
  return early !== null && early.at !== "loading" && net.at === "joined";
}

function afterPause({ slots, early }: State, otherwise: string): string {
  return [...slots, early].some((slot) => slot?.at === "computing")
    ? `The piece in hand is finished first. ${otherwise}` : otherwise;
}

function endWords(run: State["run"], which: "reason" | "words"): string {
  if (run.at !== "ended") return "";
  const { end } = run;
  if (end.type === "refused") return end[which];
  return end.type === "broken" && which === "words" ? end.words : "";
}

function notesOf(state: State): string[] {
  const { gpuFault, mishap, run, tally, unfit } = state;
  const notes: string[] = [];
  if (run.at !== "on") return notes;
  if (provesEarly(state) && mayWork(state)) {
    notes.push("Joined. Signatures, history and parts of the saved model are being checked "
      + "already: they need no Python.");
  }
  if (gpuFault !== null) notes.push(`WebGPU is not used: ${sentence(gpuFault)}`);
  if (unfit.length > 0) {
    const titles = unfit.map((id) => kindOf(id)?.title ?? id).join(", ");
    notes.push(`This browser could not do: ${titles}. ${sentence(mishap ?? "")}`.trim());
  } else if (mishap !== null) {
    notes.push(`A worker had to be started anew: ${sentence(mishap)}`);
  }
  if (tally.differed > 0) {
    notes.push(`${pieces(tally.differed)} came to another result than the right one: the gateway `
      + "refuses this browser for a day.");
  }
  return notes;
}
