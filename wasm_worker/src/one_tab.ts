/** The right to be the one tab of this browser that works: a lock that the browser keeps. */

const LOCK = "daa-compute: the tab that works";

export type Claimed = "claimed" | "taken" | "robbed";

export class OneTab {
  #release: (() => void) | null = null;

  readonly #hear: (what: Claimed) => void;

  constructor(hear: (what: Claimed) => void) {
    this.#hear = hear;
  }

  /** By force it is taken from another tab, which hears that it was robbed. */
  claim(byForce: boolean): void {
    if (!("locks" in navigator)) return this.#hear("claimed"); // the gateway lets one in, too
    const options: LockOptions = byForce ? { steal: true } : { ifAvailable: true };
    let isHeld = false;
    navigator.locks.request(LOCK, options, (lock) => {
      if (lock === null) return this.#hear("taken");
      isHeld = true;
      return new Promise<void>((resolve) => {
        this.#release = resolve;
        this.#hear("claimed");
      });
    }).catch(() => this.#hear(isHeld ? "robbed" : "taken"));
  }

  release(): void {
    this.#release?.();
    this.#release = null;
  }
}
