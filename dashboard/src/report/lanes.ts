/**
 * The shapes of a timeline: what is painted of each node, where, and in which tone.
 *
 * A lane shows views as shades, votes as ticks of three rows, final blocks as marks above them,
 * time without the process as a grey box, and faults as a band over all of it. What falls where a
 * mark of its own kind is already is left out: it would be painted over.
 */

import type { Broken, Fault, Lane } from "./story";
import { firstFrom, msAt, xOf, type Span } from "./span";

export const LANE_PX = 30, TOP_PX = 22, LABEL_PX = 74;

export type Tone =
  | "view-even" | "view-odd" | "proposal" | "notarize" | "nullify" | "finalize" | "vote"
  | "set" | "result" | "abort" | "empty" | "final" | "down" | "fault" | "broken";

export interface Box {
  readonly tone: Tone;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** A form of `FORMS` about its middle. */
export interface Mark {
  readonly tone: Tone;
  readonly x: number;
  readonly y: number;
}

export interface Shapes {
  readonly boxes: readonly Box[];
  readonly marks: readonly Mark[];
}

/** As SVG paths, for the legend and the canvas. Each has a form of its own beside its tone. */
export const FORMS: Readonly<Partial<Record<Tone, { d: string; isFilled: boolean }>>> = {
  set: { d: "M0-4L4 0L0 4L-4 0Z", isFilled: false },
  result: { d: "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0Z", isFilled: true },
  abort: { d: "M-3.5-3.5L3.5 3.5M3.5-3.5L-3.5 3.5", isFilled: false },
  empty: { d: "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0Z", isFilled: false },
  final: { d: "M-3-3H3V3H-3Z", isFilled: false },
};

export const WORDS: Readonly<Record<Tone, string>> = {
  "view-even": "view, even", "view-odd": "view, odd",
  proposal: "proposal", notarize: "notarize", nullify: "nullify", finalize: "finalize",
  vote: "another vote",
  set: "final set", result: "final result", abort: "final abort", empty: "final, empty",
  final: "another final block", down: "no process", fault: "fault", broken: "broken",
};

// of a lane, in pixels from its top
const VIEW = { y: 3, height: 25 };
const TICKS: Readonly<Record<"proposal" | "notarize" | "finalize" | "nullify" | "vote", {
  y: number; height: number; width: number;
}>> = {
  proposal: { y: 14, height: 14, width: 2 },
  notarize: { y: 14, height: 5, width: 1.5 },
  finalize: { y: 19, height: 4.5, width: 1.5 },
  nullify: { y: 23.5, height: 4.5, width: 1.5 },
  vote: { y: 14, height: 5, width: 1.5 },
};
const FINAL_Y = 9;
const VOTES_APART = 1, FINALS_APART = 2; // pixels; what lies closer covers each other

export function voteTone(kind: string): keyof typeof TICKS {
  return Object.hasOwn(TICKS, kind) ? kind as keyof typeof TICKS : "vote";
}

export function finalTone(payload: string): Tone {
  return Object.hasOwn(FORMS, payload) ? payload as Tone : "final";
}

/** Of the lane in that row; `faults` are those of its node. */
export function shapesOf(
  lane: Lane, row: number, faults: readonly Fault[], span: Span, width: number,
): Shapes {
  const top = TOP_PX + row * LANE_PX;
  const boxes: Box[] = [], marks: Mark[] = [];
  const box = (tone: Tone, from: number, to: number, y: number, height: number, least: number) => {
    const left = Math.max(0, xOf(from, span, width)), right = Math.min(width, xOf(to, span, width));
    if (right < 0 || left > width || right < left) return;
    boxes.push({ tone, x: left, y: top + y, width: Math.max(least, right - left), height });
  };
  addViews(lane, span, (tone, from, to) => box(tone, from, to, VIEW.y, VIEW.height, 0.5));
  for (const [from, to] of lane.downs) {
    if (to >= span.fromMs && from <= span.toMs) box("down", from, to, 2, 26, 1);
  }
  const drawn = new Map<Tone, number>();
  const isNew = (tone: Tone, x: number, apart: number): boolean => {
    const seen = x - (drawn.get(tone) ?? -apart) < apart;
    if (!seen) drawn.set(tone, x);
    return !seen;
  };
  const { votes, finals } = lane;
  for (let i = firstFrom(votes.at, span.fromMs); i < votes.at.length; i += 1) {
    const tone = voteTone(votes.kind[i] ?? ""), x = xOf(votes.at[i] ?? 0, span, width);
    if (x > width) break;
    if (!isNew(tone, x, VOTES_APART)) continue;
    const { y, height, width: thick } = TICKS[tone];
    boxes.push({ tone, x: x - thick / 2, y: top + y, width: thick, height });
  }
  for (let i = firstFrom(finals.at, span.fromMs); i < finals.at.length; i += 1) {
    const tone = finalTone(finals.payload[i] ?? ""), x = xOf(finals.at[i] ?? 0, span, width);
    if (x > width) break;
    if (isNew(tone, x, FINALS_APART)) marks.push({ tone, x, y: top + FINAL_Y });
  }
  for (const { fromMs, toMs } of faults) {
    if (toMs >= span.fromMs && fromMs <= span.toMs) box("fault", fromMs, toMs, 0, LANE_PX - 2, 1);
  }
  return { boxes, marks };
}

function addViews(
  { views: { at, view } }: Lane, span: Span, add: (tone: Tone, from: number, to: number) => void,
): void {
  const pixel = (span.toMs - span.fromMs) / 2_000; // narrower ones are one shade
  let open: { tone: Tone; from: number } | null = null;
  for (let i = Math.max(0, firstFrom(at, span.fromMs) - 1); i < at.length; i += 1) {
    const from = at[i] ?? 0;
    if (from > span.toMs) break;
    if (open !== null && from - open.from < pixel) continue;
    if (open !== null) add(open.tone, open.from, from);
    open = { tone: (view[i] ?? 0) % 2 === 0 ? "view-even" : "view-odd", from };
  }
  if (open !== null) add(open.tone, open.from, span.toMs);
}

/** What lies there, in words, for who points at it. */
export function toldAt(
  lane: Lane, faults: readonly Fault[], x: number, span: Span, width: number,
): string {
  const ms = msAt(x, span, width), near = 6 * (span.toMs - span.fromMs) / Math.max(1, width);
  const words: string[] = [];
  const { views, votes, finals } = lane;
  const inView = firstFrom(views.at, ms + 1) - 1;
  if (inView >= 0) words.push(`view ${views.view[inView] ?? ""}`);
  const final = nearest(finals.at, ms, near);
  if (final !== null) {
    words.push(`final ${finals.payload[final] ?? ""}, height ${finals.height[final] ?? ""}, `
      + inSeconds(finals.at[final] ?? 0));
  }
  const vote = nearest(votes.at, ms, near);
  if (vote !== null) {
    words.push(`${votes.kind[vote] ?? ""} of view ${votes.view[vote] ?? ""}, `
      + inSeconds(votes.at[vote] ?? 0));
  }
  for (const [from, to] of lane.downs) {
    if (ms >= from - near && ms <= to + near) words.push(`down from ${inSeconds(from)}`);
  }
  for (const { fromMs, toMs, kind, detail } of faults) {
    if (ms >= fromMs - near && ms <= toMs + near) words.push(`${kind} ${detail}`.trim());
  }
  return [`node ${lane.node}, ${inSeconds(ms)}`, ...words].join(" \u00b7 ");
}

/** What broke at that moment. */
export function brokenAt(
  broken: readonly Broken[], x: number, span: Span, width: number,
): Broken | undefined {
  return broken.find(({ atMs }) => Math.abs(xOf(atMs, span, width) - x) < 4);
}

function nearest(times: readonly number[], ms: number, near: number): number | null {
  const after = firstFrom(times, ms);
  const [best] = [after - 1, after].filter((at) => at >= 0 && at < times.length)
    .map((at) => ({ at, off: Math.abs((times[at] ?? 0) - ms) }))
    .sort((a, b) => a.off - b.off);
  return best !== undefined && best.off <= near ? best.at : null;
}

export function inSeconds(ms: number): string {
  return `${(ms / 1_000).toFixed(3)} s`;
}
