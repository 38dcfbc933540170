/** What is said, no faster than a gateway takes it. */

const FRAMES_PER_S = 3, FRAMES_BURST = 16; // a gateway takes 4 and 32
const BYTES_PER_S = 48 * 1024, BYTES_BURST = 256 * 1024; // 64 and 512 KiB
export const WAITING_MAX = 64; // two verdicts, and the taps of an impatient person

/** Something that fills steadily, up to a limit. */
class Bucket {
  readonly #perMs: number;
  readonly #max: number;
  #left: number;
  #atMs: number;

  constructor(perS: number, max: number, nowMs: number) {
    this.#perMs = perS / 1000;
    this.#max = max;
    this.#left = max;
    this.#atMs = nowMs;
  }

  /** How long until so much may be taken. */
  waitMs(amount: number, nowMs: number): number {
    this.#left = Math.min(this.#max, this.#left + (nowMs - this.#atMs) * this.#perMs);
    this.#atMs = nowMs;
    return this.#left >= amount ? 0 : Math.ceil((amount - this.#left) / this.#perMs);
  }

  take(amount: number): void {
    this.#left -= amount;
  }
}

export class Outbox {
  readonly #send: (frame: Uint8Array) => void;
  readonly #frames: Bucket;
  readonly #bytes: Bucket;
  readonly #waiting: Uint8Array[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(send: (frame: Uint8Array) => void) {
    this.#send = send;
    this.#frames = new Bucket(FRAMES_PER_S, FRAMES_BURST, performance.now());
    this.#bytes = new Bucket(BYTES_PER_S, BYTES_BURST, performance.now());
  }

  /** False when too much waits already. */
  say(frame: Uint8Array): boolean {
    if (this.#waiting.length === WAITING_MAX) return false;
    this.#waiting.push(frame);
    if (this.#timer === undefined) this.#sendWhatMay();
    return true;
  }

  /** What waits is not sent any more. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#waiting.length = 0;
  }

  #sendWhatMay(): void {
    this.#timer = undefined;
    for (let first = this.#waiting[0]; first !== undefined; first = this.#waiting[0]) {
      const nowMs = performance.now();
      const waitMs = Math.max(
        this.#frames.waitMs(1, nowMs), this.#bytes.waitMs(first.length, nowMs),
      );
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.#sendWhatMay(), waitMs);
        return;
      }
      this.#frames.take(1);
      this.#bytes.take(first.length);
      this.#waiting.shift();
      this.#send(first);
    }
  }
}
