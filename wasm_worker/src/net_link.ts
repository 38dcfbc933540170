/** The net worker: what the page tells it, and what it says or becomes. */

import type { FromNet, ToNet } from "./protocol";
import { faultIn } from "./words";

export class NetLink {
  #worker: Worker | null = null;

  readonly #hear: (message: FromNet) => void;

  readonly #died: (words: string) => void;

  constructor(hear: (message: FromNet) => void, died: (words: string) => void) {
    this.#hear = hear;
    this.#died = died;
  }

  /** What is for a session goes nowhere without a worker: the session has ended with it. */
  tell(message: ToNet): void {
    const begins = ["join", "export", "erase"].includes(message.type);
    if (begins) this.#worker ??= this.#spawned();
    this.#worker?.postMessage(message);
  }

  #spawned(): Worker {
    const worker = new Worker(new URL("./net/net_worker.ts", import.meta.url), { type: "module" });
    const die = (words: string): void => {
      worker.terminate();
      if (this.#worker !== worker) return;
      this.#worker = null;
      this.#died(words);
    };
    worker.addEventListener("message", ({ data }: MessageEvent<FromNet>) => {
      if (this.#worker === worker) this.#hear(data);
    });
    worker.addEventListener("error", (event) => {
      event.preventDefault(); // it is told on the page
      die(faultIn(event.message));
    });
    worker.addEventListener("messageerror", () => die("the worker's words could not be read"));
    return worker;
  }
}
