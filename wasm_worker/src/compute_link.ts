/** The compute workers by their slots, and the early one: what they are told, say and become. */

import { KNOWN_ANSWERS, taskOf } from "./known_answers";
import { LOAD_MS_MAX, PRACTICE_MS_MAX, Patience, TASK_SLACK_MS } from "./patience";
import type { FromWorker, GivenTask, Matmul, ToWorker } from "./protocol";
import { EARLY, type Said } from "./state";
import { faultIn } from "./words";

const ANSWER_MS_MAX = 10_000; // after that whoever served the page counts as gone
const RUNTIME = new URL("pyodide/", document.baseURI).href;

interface Crew {
  readonly worker: Worker;
  readonly patience: Patience;
  isLoaded: boolean;
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
    const crew: Crew = { worker, patience, isLoaded: false };
    const fail = async (failure: Said): Promise<void> => {
      patience.end(); // a stranded one says nothing, for as long as it takes
      say(crew.isLoaded || await answers() ? failure : { type: "stranded" });
    };
    this.#crews.set(slot, crew);
    worker.addEventListener("message", ({ data }: MessageEvent<FromWorker>) => {
      if (data.type === "failed") return void fail(said(data));
      if (data.type === "loading") patience.waitFor(LOAD_MS_MAX);
      else patience.end();
      if (data.type !== "loading") crew.isLoaded = true;
      say(said(data));
    });
    worker.addEventListener("error", (event) => {
      event.preventDefault(); // it is told on the page
      void fail({ type: "died", words: faultIn(event.message) });
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

/** Whether whoever served the page is still there. */
async function answers(): Promise<boolean> {
  const request = { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS_MAX) } as const;
  try {
    return (await fetch(document.baseURI, request)).status < 500; // from there it is a proxy's word
  } catch {
    return false; // that is the answer: fetch fails where nobody does
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
