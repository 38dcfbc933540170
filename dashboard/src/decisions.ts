/** What the loop decided and learned, one line each: the newest last. */

import { numberIn, textIn, type Told } from "./facts";
import { seconds, sentence } from "./words";

export const DECISIONS_MAX = 200;

export type Turn = "decided" | "learned" | "adapted";

export interface DecisionLine {
  readonly atS: number;
  readonly turn: Turn;
  readonly what: string;
  readonly why: string;
}

/** The same list where the event is of something else. */
export function withDecision(
  lines: readonly DecisionLine[], event: Told,
): readonly DecisionLine[] {
  const line = lineOf(event);
  return line === null ? lines : [...lines.slice(1 - DECISIONS_MAX), line];
}

function lineOf(event: Told): DecisionLine | null {
  switch (event.name) {
    case "decision":
      return {
        atS: event.ts, turn: "decided", what: textIn(event, "decision"),
        why: sentence(textIn(event, "reason")),
      };
    case "lesson": {
      const why = lessonOf(event);
      return why === "" ? null : {
        atS: event.ts, turn: "learned", what: `round ${numberIn(event, "round") ?? "?"}`, why,
      };
    }
    case "policy_adapted":
      return {
        atS: event.ts, turn: "adapted", what: `after round ${numberIn(event, "round") ?? "?"}`,
        why: sentence(textIn(event, "reason")),
      };
    default:
      return null;
  }
}

/** The forecast beside what came of it; empty where nothing was measured. */
function lessonOf(event: Told): string {
  const expected = secondsIn(event["expected"], "trained_s");
  const trained = secondsIn(event["happened"], "trained_s");
  const spread = secondsIn(event["happened"], "spread_s");
  return [
    ...(trained === null ? [] : [expected === null ? `Training took ${seconds(trained)}.`
      : `Training took ${seconds(trained)}, ${seconds(expected)} were expected.`]),
    ...(spread === null ? [] : [`The last contribution came ${seconds(spread)} after most.`]),
  ].join(" ");
}

function secondsIn(value: unknown, name: string): number | null {
  const found = typeof value === "object" && value !== null
    ? (value as Record<string, unknown>)[name] : null;
  return typeof found === "number" ? found : null;
}
