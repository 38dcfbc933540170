/** The part of a run's time that is in sight, and how it moves. */

export interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

const LEAST_MS = 20; // closer there is nothing more to see

export function whole(endMs: number): Span {
  return { fromMs: 0, toMs: Math.max(1, endMs) };
}

export function xOf(ms: number, { fromMs, toMs }: Span, width: number): number {
  return ((ms - fromMs) / (toMs - fromMs)) * width;
}

export function msAt(x: number, { fromMs, toMs }: Span, width: number): number {
  return fromMs + (x / Math.max(1, width)) * (toMs - fromMs);
}

/** `times` as much of it in sight, about its middle: 0.5 is closer, 2 wider. */
export function zoomed({ fromMs, toMs }: Span, times: number, endMs: number): Span {
  const least = Math.min(LEAST_MS, whole(endMs).toMs);
  const length = Math.max(least, (toMs - fromMs) * times);
  return within((fromMs + toMs - length) / 2, length, endMs);
}

/** Later by that share of what is in sight; earlier where it is negative. */
export function moved({ fromMs, toMs }: Span, share: number, endMs: number): Span {
  return within(fromMs + share * (toMs - fromMs), toMs - fromMs, endMs);
}

function within(fromMs: number, length: number, endMs: number): Span {
  const end = whole(endMs).toMs;
  if (length >= end) return whole(endMs);
  const from = Math.max(0, Math.min(end - length, fromMs));
  return { fromMs: from, toMs: from + length };
}

/** Where `times`, which ascend, come to `ms` or later. */
export function firstFrom(times: readonly number[], ms: number): number {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) < ms) low = middle + 1;
    else high = middle;
  }
  return low;
}
