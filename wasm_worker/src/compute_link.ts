/** The compute workers by their slots, and the early one: what they are told, say and become. */

import { KNOWN_ANSWERS, taskOf } from "./known_answers";
import { LOAD_MS_MAX, PRACTICE_MS_MAX, Patience, TASK_SLACK_MS } from "./patience";
import type { FromWorker, GivenTask, Matmul, ToWorker } from "./protocol";
import { EARLY, type Said } from "./state";
import { faultIn } from "./words";

const RUNTIME = new URL("pyodide/", document.baseURI).href;

interface Crew {
  readonly worker: Worker;
  readonly patience: Patience;
}

export class ComputeLink {
  readonly #crews = new Map<number, Crew>();

  readonly #hear: (slot: number, said: Said) => void;

  constructor(hear: (slot: number, said: Said) => void) {
    this.#hear = hear;
  }

  spawn(slot: number, matmul: Matmul): void {
    this.#take(slot, new Worker(
      new URL("./compute_worker.ts", import.meta.url), { type: "module" },
    ));
    this.#tell(slot, { type: "load", runtime: RUNTIME, matmul }, LOAD_MS_MAX);
  }

  spawnEarly(): void {
    this.#take(EARLY, new Worker(
      new URL("./proof_worker.ts", import.meta.url), { type: "module" },
    ));
    this.#crews.get(EARLY)?.patience.waitFor(LOAD_MS_MAX);
  }

  #take(slot: number, worker: Worker): void {
    // what a worker before it still had to say is nobody's business any more
    const say = (said: Said): void => {
      if (this.#crews.get(slot)?.worker === worker) this.#hear(slot, said);
    };
    const patience = new Patience((words) => say({ type: "died", words }));
    this.#crews.set(slot, { worker, patience });
    worker.addEventListener("message", ({ data }: MessageEvent<FromWorker>) => {
      if (data.type === "loading") patience.waitFor(LOAD_MS_MAX);
      else patience.end();
      say(said(data));
    });
    worker.addEventListener("error", (event) => {
      event.preventDefault(); // it is told on the page
      say({ type: "died", words: faultIn(event.message) });
    });
    worker.addEventListener("messageerror", () => {
      say({ type: "died", words: "the worker's answer could not be read" });
    });
  }

  kill(slot: number): void {
    const crew = this.#crews.get(slot);
    this.#crews.delete(slot);
    crew?.patience.end();
    crew?.worker.terminate();
  }

  practise(slot: number, piece: number): void {
    const known = KNOWN_ANSWERS[piece];
    if (known === undefined) throw new Error(`there is no practice piece ${piece}`);
    this.#tell(slot, { type: "practice", id: piece, task: taskOf(known) }, PRACTICE_MS_MAX);
  }

  compute(slot: number, { id, deadlineMs, ...task }: GivenTask): void {
    this.#tell(slot, { type: "task", id, task }, deadlineMs + TASK_SLACK_MS);
  }

  #tell(slot: number, message: ToWorker, patienceMs: number): void {
    const crew = this.#crews.get(slot);
    crew?.patience.waitFor(patienceMs);
    crew?.worker.postMessage(message);
  }
}

function said(message: FromWorker): Said {
  switch (message.type) {
    case "loading":
      return { type: "loading", step: message.step };
    case "ready":
      return { type: "loaded", version: message.version };
    case "proves":
      return message;
    case "done":
      return { type: "computed", task: message.id, result: message.result, ms: message.ms };
    case "practised": {
      const { id, answer, ms } = message;
      return { type: "practised", piece: id, digest: answer.digest, ms };
    }
    case "failed":
      return typeof message.id === "string"
        ? { type: "unable", task: message.id, words: message.reason }
        : { type: "useless", words: message.reason };
  }
}
