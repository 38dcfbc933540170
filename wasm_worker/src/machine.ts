/** What the browser tells of the computer: its power, how busy it is, its graphics adapter. */

import type { Surroundings } from "./state";

const CALM_MS = 10_000; // a state of pressure counts once it has lasted so long

/** What is known of the machine; a person is told what is not. */
export interface Machine {
  readonly tellsBattery: boolean;
  readonly tellsPressure: boolean;
  readonly cores: number;
  readonly adapter: Adapter | null; // null: not known yet
}

/** A graphics adapter that is worth using, by name; or why there is none. */
export type Adapter =
  | { readonly isReal: true; readonly name: string }
  | { readonly isReal: false; readonly words: string };

interface Battery extends EventTarget {
  readonly charging: boolean;
}

interface PressureObserving {
  observe(source: "cpu", options: { sampleInterval: number }): Promise<void>;
}

type PressureState = "nominal" | "fair" | "serious" | "critical";

interface PressureMaker {
  new (hear: (records: readonly { state: PressureState }[]) => void): PressureObserving;
}

type Hear = (surroundings: Surroundings) => void;

/** Watches what changes, and tells of each change. */
export class Watch {
  #now: Surroundings = { onBattery: false, isBusy: false, isHidden: document.hidden };

  #calm: ReturnType<typeof setTimeout> | undefined;

  readonly #hear: Hear;

  constructor(hear: Hear) {
    this.#hear = hear;
  }

  get now(): Surroundings {
    return this.#now;
  }

  /** What the browser is able to tell. */
  async start(): Promise<Pick<Machine, "tellsBattery" | "tellsPressure">> {
    document.addEventListener("visibilitychange", () => {
      this.#note({ isHidden: document.hidden });
    });
    return { tellsBattery: await this.#battery(), tellsPressure: await this.#pressure() };
  }

  async #battery(): Promise<boolean> {
    const asked = navigator as { getBattery?: () => Promise<Battery> };
    const battery = await asked.getBattery?.().catch(refused);
    if (!battery) return false;
    const note = (): void => this.#note({ onBattery: !battery.charging });
    battery.addEventListener("chargingchange", note);
    note();
    return true;
  }

  async #pressure(): Promise<boolean> {
    const maker = (globalThis as { PressureObserver?: PressureMaker }).PressureObserver;
    if (maker === undefined) return false;
    const observer = new maker((records) => {
      const state = records.at(-1)?.state;
      if (state === undefined) return;
      clearTimeout(this.#calm);
      this.#calm = setTimeout(() => this.#note({ isBusy: isPressing(state) }), CALM_MS);
    });
    return (await observer.observe("cpu", { sampleInterval: 2_000 }).then(() => true, refused))
      ?? false;
  }

  #note(change: Partial<Surroundings>): void {
    const after = { ...this.#now, ...change };
    const isNew = JSON.stringify(after) !== JSON.stringify(this.#now);
    this.#now = after;
    if (isNew) this.#hear(after);
  }
}

/** The worker itself presses, too: what counts is only that hardly anything is left. */
export function isPressing(state: PressureState): boolean {
  return state === "critical";
}

/** A browser may refuse to tell; whatever else goes wrong is a fault. */
function refused(error: unknown): undefined {
  if (error instanceof DOMException) return undefined;
  throw error;
}

const SOFTWARE = /swiftshader|llvmpipe|lavapipe|software|basic render/i;

export async function adapterOf(gpu: GPU | undefined): Promise<Adapter> {
  const adapter = await gpu?.requestAdapter().catch(refused);
  if (!adapter) return { isReal: false, words: "this browser offers no graphics adapter" };
  const info = adapter.info as GPUAdapterInfo & { readonly isFallbackAdapter?: boolean };
  const parts = [info.description, info.vendor, info.architecture, info.device];
  const name = info.description || parts.filter(Boolean).join(" ") || "a graphics adapter";
  if (info.isFallbackAdapter || parts.some((part) => SOFTWARE.test(part))) {
    return { isReal: false, words: `the adapter is software (${name}): slower than without it` };
  }
  return { isReal: true, name };
}
