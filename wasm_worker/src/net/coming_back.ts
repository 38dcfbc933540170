/** When to come back by itself, if at all: with growing pauses, and not all pages at once. */

const FIRST_MS = 4_000;
const LONGEST_MS = 600_000;
/** Reasons that pass by themselves: docs/volunteers.md, and what the network does. */
const PASSING: ReadonlySet<string> = new Set([
  "full", "address-full", "silent", "idle", "ended", "unreachable", "lost",
]);

/** `attempt` counts from 0 since the last session that did some work; `chance` is in [0, 1). */
export function againInMs(reason: string, attempt: number, chance: number): number | null {
  if (!PASSING.has(reason)) return null;
  const fullMs = Math.min(LONGEST_MS, FIRST_MS * 2 ** attempt);
  return Math.round(fullMs * (1 + chance) / 2);
}
