/**
 * What the page does, step by step, without a page: events in, the next state and effects out.
 *
 *   idle | ended --start--> claiming --claimed--> on --finish--> ended: finished
 *                              | taken              |- robbed, or the gateway: ended: elsewhere
 *                              '--> ended:          |- a practice piece differs: ended: inexact
 *                                   elsewhere       |- no worker can compute: ended: broken
 *                                                   |- the gateway refuses: ended: refused
 *                                                   '- no gateway, practice done: ended: practised
 *
 *   while on, the net:   joining -> joined -> away -> joining ...; joining -> shut (no gateway)
 *   and each worker:     loading -> checking, piece by piece -> free <-> computing
 *                        loading -> stranded -> loading, once whoever served the page answers
 *                        any -died-> loading, with a new worker, LIVES times in a row
 *   and the early worker: loading -> free <-> computing; gone once another one is free, or it dies
 *
 * Invariants: nothing is computed, and nobody is talked to, unless a person pressed Start and this
 * tab is the one that works; what needs Python is given only to a worker whose practice came out
 * right; a task has one verdict or one drop while its session lives; the gateway is asked for no
 * more tasks than there are workers ready; queue and map have limits.
 */

import { isProof } from "./kinds";
import type { FromNet, GivenTask } from "./protocol";
import {
  CHECKS_KEPT, EARLY, LIVES, QUEUE_MAX, dropped, faultOf, idle, isOn,
  mayWork, readyOf, wanted,
  type Effect, type End, type Event, type Said, type Settings, type Slot, type State,
} from "./state";
import { Turn } from "./turn";

export type Next = readonly [State, readonly Effect[]];

const REST_MS_MIN = 1_000; // shorter rests are saved up: each costs two frames
const REST_MS_MAX = 30_000; // so a long task is not followed by minutes of nothing
const HIDDEN_DUTY_PERCENT_MAX = 50; // who looks elsewhere may need the machine
const NET_AGAIN_MS = 2_000; // after the net worker's first fall; doubled each time
const NET_AGAIN_DOUBLINGS_MAX = 7; // 256 s
const LOAD_AGAIN_MS = 5_000; // a gateway that answers again may have more to do than us
const LOAD_AGAIN_DOUBLINGS_MAX = 6; // 320 s

export function next(state: State, event: Event, nowMs: number): Next {
  const turn = new Turn(state, nowMs);
  take(turn, event);
  if (isOn(turn.state)) endIfPractised(turn);
  if (isOn(turn.state)) {
    dismissEarly(turn);
    joinAgain(turn);
    giveWork(turn);
    tellReady(turn);
  }
  const fault = faultOf(turn.state);
  if (fault !== null) throw new Error(fault);
  return [turn.state, turn.effects];
}

function take(turn: Turn, event: Event): void {
  const { state } = turn;
  switch (event.type) {
    case "start":
      return start(turn);
    case "pause":
    case "resume":
      if (state.run.at === "on") turn.set({ run: { at: "on", isPaused: event.type === "pause" } });
      return;
    case "finish":
      if (isOn(state) || state.run.at === "claiming") end(turn, { type: "finished" });
      return;
    case "hurry":
      loadAgain(turn);
      return join(turn);
    case "settings":
      return choose(turn, event.settings);
    case "surroundings":
      return turn.set({ surroundings: event.surroundings });
    case "claimed":
      if (state.run.at === "claiming") return open(turn);
      return isOn(state) ? undefined : turn.emit({ type: "release" });
    case "taken":
      if (state.run.at === "claiming") end(turn, { type: "elsewhere" });
      return;
    case "robbed":
      if (isOn(state)) end(turn, { type: "elsewhere" });
      return;
    case "woken":
      if (event.timer === "rest") {
        turn.set({ restUntilMs: null });
        return rest(turn);
      }
      return event.timer === "load" ? loadOnceThere(turn) : join(turn);
    case "export":
    case "erase":
      return careForKey(turn, event.type);
    case "net":
      return hearNet(turn, event.message);
    case "net-died":
      return loseNet(turn, event.words);
    case "worker":
      if (isOn(state) && event.slot === EARLY) return hearEarly(turn, event.said);
      if (isOn(state) && event.slot < state.slots.length) hearWorker(turn, event.slot, event.said);
      return;
    case "fault":
      end(turn, { type: "broken", words: event.words });
  }
}

function start(turn: Turn): void {
  const { run } = turn.state;
  if (run.at === "on" || run.at === "claiming") return;
  const byForce = run.at === "ended" && run.end.type === "elsewhere";
  turn.set({ run: { at: "claiming" } });
  turn.emit({ type: "claim", byForce });
}

/** Workers load and the net worker dials at the same time. */
function open(turn: Turn): void {
  const { checks, tally, lifetime, name, key, isLeaving, ...before } = turn.state;
  const { expected, settings, surroundings } = before;
  const kept = { checks, tally, lifetime, name, key, isLeaving };
  const run = { at: "on", isPaused: false } as const;
  turn.set({ ...idle(expected, settings, surroundings), ...kept, run, early: { at: "loading" } });
  turn.emit({ type: "spawn-early" });
  for (let slot = 0; slot < settings.workers; slot++) spawn(turn, slot);
  turn.set({ net: { at: "joining", step: null } });
  turn.tell({ type: "join", kinds: [...wanted(turn.state)] });
}

function end(turn: Turn, how: End): void {
  const { state } = turn;
  state.slots.forEach((_, slot) => turn.emit({ type: "kill", slot }));
  if (state.early !== null) turn.emit({ type: "kill", slot: EARLY });
  if (state.net.at === "joining" || state.net.at === "joined") {
    turn.tell({ type: "leave" });
    turn.set({ isLeaving: true });
  }
  turn.emit({ type: "sleep" }, { type: "release" });
  const checks = state.checks.map(dropped);
  turn.set({
    run: { at: "ended", end: how }, slots: [], early: null, queue: [], checks,
    net: { at: "off" }, restUntilMs: null, debtMs: 0,
  });
}

function choose(turn: Turn, settings: Settings): void {
  const before = turn.state.settings;
  turn.set({ settings });
  if (settings.dutyPercent !== before.dutyPercent) turn.set({ debtMs: 0, restUntilMs: null });
  if (!isOn(turn.state)) return;
  if (settings.gpu !== before.gpu) {
    turn.set({ gpuFault: null });
    turn.state.slots.forEach((_, slot) => replace(turn, slot));
  }
  for (let slot = settings.workers; slot < before.workers; slot++) {
    dropOf(turn, slot);
    turn.emit({ type: "kill", slot });
  }
  turn.set({ slots: turn.state.slots.slice(0, settings.workers) });
  for (let slot = before.workers; slot < settings.workers; slot++) spawn(turn, slot);
}

// ---- workers

function spawn(turn: Turn, slot: number): void {
  const { settings, gpuFault, slots, practice } = turn.state;
  const loading: Slot = { at: "loading", step: null };
  turn.set({
    slots: slot < slots.length ? slots.map((each, at) => (at === slot ? loading : each))
      : [...slots, loading],
    practice: practice.filter((each) => each.slot !== slot),
  });
  const matmul = settings.gpu && gpuFault === null ? "webgpu" : "wasm";
  turn.emit({ type: "spawn", slot, matmul });
}

function replace(turn: Turn, slot: number): void {
  dropOf(turn, slot);
  turn.emit({ type: "kill", slot });
  spawn(turn, slot);
}

/** What a worker lacks comes from whom the net worker dials: it finds out who is there. */
function loadOnceThere(turn: Turn): void {
  const { net } = turn.state;
  if (net.at === "away" || net.at === "joining") return waitToLoad(turn);
  turn.set({ reloads: turn.state.reloads + 1 });
  loadAgain(turn);
}

/** Longer each time that it was in vain: whoever we dial may be there, and whoever serves not. */
function waitToLoad(turn: Turn): void {
  const inMs = LOAD_AGAIN_MS * 2 ** Math.min(turn.state.reloads, LOAD_AGAIN_DOUBLINGS_MAX);
  turn.emit({ type: "wake", timer: "load", inMs });
}

function loadAgain(turn: Turn): void {
  turn.state.slots.forEach(({ at }, slot) => {
    if (at === "stranded") replace(turn, slot);
  });
}

function hearWorker(turn: Turn, at: number, said: Said): void {
  const { state } = turn;
  const slot = state.slots[at]!;
  switch (said.type) {
    case "loading":
      if (slot.at === "loading") turn.setSlot(at, { at: "loading", step: said.step });
      return;
    case "loaded":
      turn.set({ version: said.version, reloads: 0 });
      return turn.setSlot(at, { at: "checking", piece: 0, isAsked: false });
    case "practised":
      return judge(turn, at, said);
    case "computed":
      if (slot.at !== "computing" || slot.task.id !== said.task) return;
      turn.setSlot(at, { at: "free" });
      turn.set({ lives: LIVES });
      return hand(turn, slot.task, said);
    case "unable":
      if (slot.at !== "computing" || slot.task.id !== said.task) return;
      turn.setSlot(at, { at: "free" });
      return giveUp(turn, slot.task, said.words);
    case "proves":
      return; // that is the early worker's word
    case "stranded":
      if (slot.at !== "loading") return;
      turn.setSlot(at, { at: "stranded" });
      return waitToLoad(turn);
    case "useless":
      if (!state.settings.gpu || state.gpuFault !== null) {
        return end(turn, { type: "broken", words: said.words });
      }
      turn.set({ gpuFault: said.words });
      return state.slots.forEach((_, slot) => replace(turn, slot));
    case "died":
      if (state.lives <= 1) return end(turn, { type: "broken", words: said.words });
      turn.set({ lives: state.lives - 1, mishap: said.words });
      return replace(turn, at);
  }
}

/** It is there for a quick beginning: whatever befalls it, the others come anyway. */
function hearEarly(turn: Turn, said: Said): void {
  const { early } = turn.state;
  if (early === null) return;
  if (said.type === "proves") return turn.set({ early: { at: "free" } });
  if (said.type === "died" || said.type === "useless" || said.type === "stranded") {
    if (early.at === "computing") drop(turn, early.task.id);
    turn.set({ early: null });
    return turn.emit({ type: "kill", slot: EARLY });
  }
  if (said.type !== "computed" && said.type !== "unable") return;
  if (early.at !== "computing" || early.task.id !== said.task) return;
  turn.set({ early: { at: "free" } });
  if (said.type === "computed") return hand(turn, early.task, said);
  giveUp(turn, early.task, said.words);
}

/** Its result to the gateway, unless the task has gone to others with a session that is over. */
function hand(turn: Turn, task: GivenTask, said: Extract<Said, { type: "computed" }>): void {
  const { state } = turn;
  turn.set({ latest: { kind: task.kind, atMs: turn.nowMs } });
  owe(turn, said.ms);
  if (state.checks.find(({ id }) => id === task.id)?.mark !== "computing") return;
  turn.tell({ type: "verdict", task: task.id, result: said.result, spentMs: said.ms });
  turn.mark(task.id, "sent");
  turn.set({ tally: { ...state.tally, sent: state.tally.sent + 1 } });
}

/** Its kind cannot be done here. */
function giveUp(turn: Turn, task: GivenTask, words: string): void {
  drop(turn, task.id);
  turn.set({ unfit: [...turn.state.unfit, task.kind], mishap: words });
  if (wanted(turn.state).length === 0) end(turn, { type: "broken", words });
}

function judge(turn: Turn, at: number, said: Extract<Said, { type: "practised" }>): void {
  const { slots, expected, practice } = turn.state;
  const slot = slots[at]!;
  if (slot.at !== "checking" || !slot.isAsked || slot.piece !== said.piece) {
    const words = `an answer to practice piece ${said.piece + 1}, which was not asked for`;
    return end(turn, { type: "broken", words });
  }
  const { piece, digest, ms } = said;
  const agrees = digest === expected[piece];
  turn.set({ practice: [...practice, { slot: at, piece, digest, agrees, ms }] });
  if (!agrees) return end(turn, { type: "inexact" });
  const isLast = piece + 1 === expected.length;
  turn.setSlot(at, isLast ? { at: "free" }
    : { at: "checking", piece: piece + 1, isAsked: false });
}

/** After work comes rest, so that the share of time is the one that was chosen. */
function owe(turn: Turn, spentMs: number): void {
  const { settings, surroundings, debtMs, slots } = turn.state;
  const most = surroundings.isHidden ? HIDDEN_DUTY_PERCENT_MAX : 100;
  const duty = Math.min(settings.dutyPercent, most) / 100;
  turn.set({ debtMs: debtMs + (spentMs * (1 / duty - 1)) / slots.length });
  rest(turn);
}

/** What is done meanwhile, by another worker, is rested for afterwards. */
function rest(turn: Turn): void {
  const { debtMs, restUntilMs } = turn.state;
  if (debtMs < REST_MS_MIN || restUntilMs !== null) return;
  const inMs = Math.min(debtMs, REST_MS_MAX);
  turn.set({ debtMs: 0, restUntilMs: turn.nowMs + inMs });
  turn.emit({ type: "wake", timer: "rest", inMs });
}

/** What of a worker's task the gateway has to be told, and the map. */
function dropOf(turn: Turn, at: number): void {
  const slot = turn.state.slots[at];
  if (slot?.at === "computing") drop(turn, slot.task.id);
}

function drop(turn: Turn, id: string): void {
  const mark = turn.state.checks.find((each) => each.id === id)?.mark;
  if (mark === "dropped" || mark === "sent") return;
  turn.mark(id, "dropped");
  if (turn.state.net.at === "joined") turn.tell({ type: "drop", task: id });
}

function dropQueue(turn: Turn): void {
  const { queue } = turn.state;
  turn.set({ queue: [] });
  queue.forEach(({ id }) => drop(turn, id));
}

// ---- the net

function join(turn: Turn): void {
  if (turn.state.net.at !== "away") return;
  turn.set({ net: { at: "joining", step: null } });
  turn.tell({ type: "join", kinds: [...wanted(turn.state)] });
}

function hearNet(turn: Turn, message: FromNet): void {
  const { state } = turn;
  switch (message.type) {
    case "exported":
      turn.set({ key: { at: "exported" } });
      return turn.emit({ type: "save", file: message.file, name: message.name });
    case "erased":
      return turn.set({ key: { at: "erased" }, name: null, lifetime: null });
    case "failed":
      return turn.set({ key: { at: "failed", words: message.reason } });
  }
  if (message.type === "left" || message.type === "joining") turn.set({ isLeaving: false });
  if (!isOn(state) || (state.isLeaving && message.type !== "joining")) return;
  switch (message.type) {
    case "joining":
      if (state.net.at === "joining") turn.set({ net: { at: "joining", step: message.step } });
      return;
    case "joined": {
      const { name, lifetime } = message;
      const net = { at: "joined", joined: message, told: null } as const;
      return turn.set({ net, name, lifetime });
    }
    case "task":
      return receive(turn, message.task);
    case "taken":
      return hearTaken(turn, message);
    case "left":
      return leave(turn, message);
  }
}

function receive(turn: Turn, task: GivenTask): void {
  const { state } = turn;
  if (state.net.at !== "joined" || state.checks.some(({ id }) => id === task.id)) return;
  const check = { id: task.id, kind: task.kind, mark: "waiting" } as const;
  turn.set({ checks: [...state.checks, check].slice(-CHECKS_KEPT) });
  const isFull = state.queue.length === QUEUE_MAX;
  const restMs = (state.restUntilMs ?? turn.nowMs) - turn.nowMs;
  if (isFull || restMs > task.deadlineMs / 2 || !wanted(state).includes(task.kind)) {
    return drop(turn, task.id);
  }
  turn.set({ queue: [...state.queue, task] });
}

function hearTaken(turn: Turn, taken: Extract<FromNet, { type: "taken" }>): void {
  turn.set({ lifetime: taken.lifetime, netFalls: 0 });
  const known = turn.state.checks.find(({ id }) => id === taken.task);
  if (taken.agreed === null || known?.mark !== "sent") return;
  turn.mark(taken.task, taken.agreed ? "agreed" : "differed");
  const { sent, agreed, differed } = turn.state.tally;
  turn.set({
    tally: taken.agreed ? { sent, agreed: agreed + 1, differed }
      : { sent, agreed, differed: differed + 1 },
  });
}

function leave(turn: Turn, left: Extract<FromNet, { type: "left" }>): void {
  const { reason, words, againInMs } = left;
  lose(turn);
  turn.set({ net: { at: "off" } });
  if (reason === "idle" && !mayWork(turn.state)) {
    return turn.set({ net: { at: "away", reason, words, againAtMs: null } });
  }
  if (againInMs !== null) {
    turn.set({ net: { at: "away", reason, words, againAtMs: turn.nowMs + againInMs } });
    return turn.emit({ type: "wake", timer: "again", inMs: againInMs });
  }
  if (reason === "elsewhere") return end(turn, { type: "elsewhere" });
  if (reason === "no-gateway") return turn.set({ net: { at: "shut", reason, words } });
  end(turn, { type: "refused", reason, words });
}

/** The worker of the session has ended by itself: the next one is started a little later. */
function loseNet(turn: Turn, words: string): void {
  if (turn.state.key.at === "exporting" || turn.state.key.at === "erasing") {
    turn.set({ key: { at: "failed", words } });
  }
  if (!isOn(turn.state)) return;
  const falls = turn.state.netFalls;
  const againInMs = NET_AGAIN_MS * 2 ** Math.min(falls, NET_AGAIN_DOUBLINGS_MAX);
  turn.set({ netFalls: falls + 1 });
  leave(turn, { type: "left", reason: "net-worker", words, againInMs });
}

/** What was in hand has gone to others. Workers finish it, for they cannot be told to stop. */
function lose(turn: Turn): void {
  turn.set({ queue: [], checks: turn.state.checks.map(dropped) });
}

function careForKey(turn: Turn, what: "export" | "erase"): void {
  if (what === "erase" && isOn(turn.state)) end(turn, { type: "finished" });
  turn.set({ key: { at: what === "export" ? "exporting" : "erasing" } });
  turn.tell({ type: what });
}

// ---- after each event

function endIfPractised(turn: Turn): void {
  const { net, slots } = turn.state;
  if (net.at === "shut" && slots.every(({ at }) => at === "free" || at === "computing")) {
    end(turn, { type: "practised" });
    turn.set({ net });
  }
}

function dismissEarly(turn: Turn): void {
  const { early } = turn.state;
  if (early === null || early.at === "computing" || readyOf(turn.state) === 0) return;
  turn.set({ early: null });
  turn.emit({ type: "kill", slot: EARLY });
}

/** Whose place went to others in a pause asks for another one when it goes on. */
function joinAgain(turn: Turn): void {
  const { net } = turn.state;
  if (net.at === "away" && net.againAtMs === null && mayWork(turn.state)) join(turn);
}

function giveWork(turn: Turn): void {
  if (!mayWork(turn.state)) return dropQueue(turn);
  turn.state.slots.forEach((slot, at) => {
    if (slot.at === "checking" && !slot.isAsked) {
      turn.setSlot(at, { ...slot, isAsked: true });
      turn.emit({ type: "practise", slot: at, piece: slot.piece });
    }
    const [task, ...queue] = turn.state.queue;
    if (slot.at !== "free" || task === undefined || turn.state.restUntilMs !== null) return;
    turn.set({ queue });
    turn.setSlot(at, { at: "computing", task });
    turn.mark(task.id, "computing");
    turn.emit({ type: "compute", slot: at, task });
  });
  const { early, queue: [task, ...queue], restUntilMs } = turn.state;
  if (early?.at !== "free" || restUntilMs !== null || !isProof(task?.kind ?? "")) return;
  turn.set({ queue, early: { at: "computing", task: task! } });
  turn.mark(task!.id, "computing");
  turn.emit({ type: "compute", slot: EARLY, task: task! });
}

function tellReady(turn: Turn): void {
  const { net, early, restUntilMs } = turn.state;
  if (net.at !== "joined") return;
  const ready = readyOf(turn.state);
  const proves = ready === 0 && early !== null && early.at !== "loading";
  const able = proves ? 1 : ready;
  const count = mayWork(turn.state) && restUntilMs === null ? able : 0;
  const kinds = wanted(turn.state).filter((kind) => !proves || isProof(kind));
  const before = net.told ?? { count: 0, kinds };
  if (before.count === count && (count === 0 || `${before.kinds}` === `${kinds}`)) return;
  turn.set({ net: { ...net, told: { count, kinds } } });
  turn.tell({ type: "ready", count: count as 0 | 1 | 2, kinds: [...kinds] });
}
