/** Settings that a running daemon takes over, and what a person has typed for them. Pure. */

import type { Setting } from "./facts";

export type Value = Setting["value"];

/** As it stands in a field; nothing is no limit. */
export function typed(value: Value): string {
  return value === null || typeof value === "object" ? "" : String(value);
}

/** What the words say, or undefined for what is no number. */
export function numberFrom(words: string): number | null | undefined {
  const text = words.trim();
  if (text === "") return null;
  const value = Number(text);
  return /^-?[0-9.]+(e[0-9]+)?$/i.test(text) && Number.isFinite(value) ? value : undefined;
}

export interface Wanted {
  readonly changes: Readonly<Record<string, number | null>>;
  readonly faults: readonly string[]; // keys whose words are no number
}

export function wanted(
  settings: readonly Setting[], words: Readonly<Record<string, string>>,
): Wanted {
  const changes: Record<string, number | null> = {}, faults: string[] = [];
  for (const { key, value, reloads } of settings) {
    const text = words[key];
    if (!reloads || text === undefined || text.trim() === typed(value)) continue;
    const number = numberFrom(text);
    if (number === undefined) faults.push(key);
    else changes[key] = number;
  }
  return { changes, faults };
}

export function told(value: Value): string {
  if (value === null) return "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
