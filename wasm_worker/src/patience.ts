/** How long the page waits for a worker that says nothing: a hung one is as bad as a dead one. */

export const LOAD_MS_MAX = 600_000; // 17 MB over a quarter of a megabit a second
export const PRACTICE_MS_MAX = 120_000; // the largest piece takes a second, a hundred times less
export const TASK_SLACK_MS = 60_000; // beyond the deadline, after which nobody wants the result
const SLEPT_MS = 30_000; // a timer as late as that: the computer slept, and so did the worker

export class Patience {
  #timer: ReturnType<typeof setTimeout> | undefined;

  readonly #lost: (reason: string) => void;

  /** `lost` is called, with the reason, if nothing ends the wait in time. */
  constructor(lost: (reason: string) => void) {
    this.#lost = lost;
  }

  waitFor(limitMs: number): void {
    this.end();
    const sinceMs = Date.now();
    this.#timer = setTimeout(() => {
      if (Date.now() - sinceMs > limitMs + SLEPT_MS) return this.waitFor(limitMs);
      const minutes = Math.round(limitMs / 60_000);
      const long = minutes === 1 ? "a minute" : `${minutes} minutes`;
      this.#lost(`a worker has said nothing for ${long}`);
    }, limitMs);
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}
