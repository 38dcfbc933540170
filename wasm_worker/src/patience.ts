/** How long the page waits for a worker that says nothing: a hung one is as bad as a dead one. */

const LOAD_MS_MAX = 600_000; // 17 MB over a quarter of a megabit a second
const TASK_MS_MAX = 120_000; // the largest task takes a few seconds, a hundred times less

export class Patience {
  #timer: ReturnType<typeof setTimeout> | undefined;

  readonly #lost: (reason: string) => void;

  /** `lost` is called, with the reason, if nothing ends the wait in time. */
  constructor(lost: (reason: string) => void) {
    this.#lost = lost;
  }

  waitFor(what: "load" | "task"): void {
    this.end();
    const limitMs = what === "load" ? LOAD_MS_MAX : TASK_MS_MAX;
    const reason = `The worker has said nothing for ${limitMs / 60_000} minutes`;
    this.#timer = setTimeout(() => this.#lost(reason), limitMs);
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}
