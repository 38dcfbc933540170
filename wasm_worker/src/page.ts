/** The page itself: shows the session's state, and carries out its effects on a worker. */

import { KNOWN_ANSWERS, byteGpt, parameterCount, taskOf } from "./known_answers";
import type { FromWorker, Matmul, ToWorker } from "./protocol";
import { Patience } from "./patience";
import { idle, next, type Effect, type Event, type Result, type State } from "./session";
import { grouped, medianMs, viewOf } from "./view";

const MATMUL: Matmul = "wasm";
const RUNTIME = new URL("pyodide/", document.baseURI).href;
const DIGITS_SHOWN = 16;

let state: State = idle(KNOWN_ANSWERS.map(({ digest }) => digest));
let worker: Worker | null = null;

function element<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found as T;
}

function parametersOf(piece: number): number {
  const known = KNOWN_ANSWERS[piece];
  return known === undefined ? 0 : parameterCount(byteGpt(known));
}

const patience = new Patience((reason) => happen({ type: "died", reason }));

function happen(event: Event): void {
  const [after, effects] = next(state, event);
  state = after;
  effects.forEach(carryOut);
  show();
}

function carryOut(effect: Effect): void {
  switch (effect.type) {
    case "spawn":
      worker = spawned();
      tell({ type: "load", runtime: RUNTIME, matmul: MATMUL });
      return;
    case "ask": {
      const known = KNOWN_ANSWERS[effect.piece];
      if (known !== undefined) tell({ type: "task", id: effect.piece, task: taskOf(known) });
      return;
    }
    case "stop":
      patience.end();
      worker?.terminate();
      worker = null;
  }
}

function tell(message: ToWorker): void {
  patience.waitFor(message.type);
  worker?.postMessage(message);
}

function spawned(): Worker {
  const made = new Worker(new URL("./compute_worker.ts", import.meta.url), { type: "module" });
  // what an earlier worker still had to say is nobody's business any more
  const die = (reason: string): void => {
    if (worker === made) happen({ type: "died", reason });
  };
  made.addEventListener("message", ({ data }: MessageEvent<FromWorker>) => {
    if (worker !== made) return;
    if (data.type === "loading") patience.waitFor("load");
    else patience.end();
    happen({ type: "worker", message: data });
  });
  made.addEventListener("error", (event) => {
    die(event.message || "The worker could not be started");
  });
  made.addEventListener("messageerror", () => {
    die("The worker's answer could not be read");
  });
  return made;
}

function show(): void {
  const view = viewOf(state, parametersOf);
  if (document.body.dataset["phase"] !== state.phase) {
    // a screen reader is told of phases: pieces may take a few hundredths of a second
    write("said", `${view.phase}: ${view.now}. ${view.why}`);
  }
  document.body.dataset["phase"] = state.phase;
  document.body.dataset["tone"] = view.tone;
  write("phase", view.phase);
  write("now", view.now);
  write("why", view.why);
  const progress = element<HTMLProgressElement>("progress");
  if (view.share === null) progress.removeAttribute("value");
  else progress.value = view.share;
  showButtons({ start: view.start, pause: view.pause, finish: view.finish });
  write("done", `${state.results.length}`);
  write("agreed", `${state.results.filter(({ agrees }) => agrees).length}`);
  write("time", medianMs(state.results.map(({ ms }) => ms)));
  element("pieces").replaceChildren(...state.results.map(rowOf));
  if (state.version !== null) {
    const { recompute, pyodide, numpy } = state.version;
    write("version", `recompute.py ${recompute}, Pyodide ${pyodide}, numpy ${numpy}`);
  }
}

function write(id: string, words: string): void {
  const at = element(id);
  if (at.textContent !== words) at.textContent = words;
}

function showButtons(buttons: Record<string, string | null>): void {
  const focused = document.activeElement;
  for (const [id, words] of Object.entries(buttons)) {
    element(id).hidden = words === null;
    if (words !== null) write(id, words);
  }
  // a keyboard keeps its place: from a button that goes to one that comes
  if (focused instanceof HTMLButtonElement && focused.hidden) {
    document.querySelector<HTMLElement>(".buttons button:not([hidden])")?.focus();
  }
}

function rowOf({ piece, digest, agrees, ms }: Result): HTMLTableRowElement {
  const row = document.createElement("tr");
  row.dataset["digest"] = digest;
  const cells = [
    `${piece + 1}`, agrees ? "same" : "different", `${Math.round(ms)} ms`,
    grouped(parametersOf(piece)), digest.slice(0, DIGITS_SHOWN),
  ];
  row.append(...cells.map((words) => {
    const cell = document.createElement("td");
    cell.textContent = words;
    return cell;
  }));
  return row;
}

element("start").addEventListener("click", () => happen({ type: "start" }));
element("pause").addEventListener("click", () => {
  happen({ type: state.phase === "paused" ? "resume" : "pause" });
});
element("finish").addEventListener("click", () => happen({ type: "finish" }));
show();
