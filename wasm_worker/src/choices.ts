/** What a person has chosen, kept from visit to visit where the browser allows it. */

import { SLOTS_MAX, type Settings } from "./state";

export const DUTY_PERCENT_MIN = 10;
const KEPT_AS = "daa-compute settings";

export type Keeper = Pick<Storage, "getItem" | "setItem">;

export function defaults(savesData: boolean): Settings {
  return {
    dutyPercent: 100, workers: 1, gpu: false, sparesBattery: true, sparesBusy: true, savesData,
  };
}

/** What was kept, as far as it makes sense; the rest as it would be without. */
export function recall(keeper: Keeper | null, otherwise: Settings): Settings {
  const text = keeper?.getItem(KEPT_AS) ?? null;
  if (text === null) return otherwise;
  let kept: unknown;
  try {
    kept = JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return otherwise; // whatever wrote it, it was not this page
    throw error;
  }
  if (typeof kept !== "object" || kept === null) return otherwise;
  const isGood = (name: string, value: unknown): boolean => {
    switch (name) {
      case "dutyPercent":
        return Number.isInteger(value) && Number(value) >= DUTY_PERCENT_MIN && Number(value) <= 100;
      case "workers":
        return Number.isInteger(value) && Number(value) >= 1 && Number(value) <= SLOTS_MAX;
      default:
        return Object.hasOwn(otherwise, name) && typeof value === "boolean";
    }
  };
  const good = Object.entries(kept).filter(([name, value]) => isGood(name, value));
  return { ...otherwise, ...Object.fromEntries(good) };
}

/** False if the browser refuses. */
export function keep(keeper: Keeper | null, settings: Settings): boolean {
  try {
    keeper?.setItem(KEPT_AS, JSON.stringify(settings));
  } catch (error) {
    if (error instanceof DOMException) return false; // full, or not allowed
    throw error;
  }
  return keeper !== null;
}

/** The browser's storage; null where even asking for it is refused. */
export function keeperOf(window: { readonly localStorage: Storage }): Keeper | null {
  try {
    return window.localStorage;
  } catch (error) {
    if (error instanceof DOMException) return null;
    throw error;
  }
}
