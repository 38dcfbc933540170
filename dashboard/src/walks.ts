/**
 * Rounds, step by step, as this node's events tell of them.
 *
 *     began --train--> sealed --gather--> set --merge--> merged --sign--> final, or aborted
 *
 * A node that does not train has no step `train`. Steps that this page did not hear of are missing.
 */

import { numberIn, textIn, type Told } from "./facts";

export const WALKS_MAX = 12;

export interface Walk {
  readonly round: number;
  readonly beganS: number | null;
  readonly sealedS: number | null;
  readonly setS: number | null;
  readonly mergedS: number | null;
  readonly endedS: number | null;
  readonly end: "final" | "aborted" | null;
  readonly acknowledged: readonly string[]; // whose contribution a quorum has, as they came
  readonly lastCameS: number | null; // the newest of them
  readonly contributors: number | null;
  readonly leftOut: number | null;
  readonly signers: number | null;
  readonly viewsGivenUp: number;
  readonly ownLoss: number | null;
  readonly height: number | null;
}

export type StepName = "train" | "gather" | "merge" | "sign";

export interface Step {
  readonly name: StepName;
  readonly fromS: number;
  readonly toS: number;
  readonly isOpen: boolean;
}

export const STEP_WORDS: Readonly<Record<StepName, string>> = {
  train: "Train",
  gather: "Gather contributions",
  merge: "Merge",
  sign: "Sign and publish",
};

function begun(round: number): Walk {
  return {
    round, beganS: null, sealedS: null, setS: null, mergedS: null, endedS: null, end: null,
    acknowledged: [], lastCameS: null,
    contributors: null, leftOut: null, signers: null, viewsGivenUp: 0,
    ownLoss: null, height: null,
  };
}

/** The newest last; the same array where the event is of no round. */
export function walked(walks: readonly Walk[], event: Told): readonly Walk[] {
  if (event.name === "view_given_up") {
    const newest = walks.at(-1);
    if (newest === undefined || newest.end !== null) return walks;
    return [...walks.slice(0, -1), { ...newest, viewsGivenUp: newest.viewsGivenUp + 1 }];
  }
  const round = numberIn(event, "round");
  if (round === null) return walks;
  const known = walks.find((walk) => walk.round === round);
  const newest = walks.at(-1);
  if (known === undefined && newest !== undefined && round < newest.round) return walks;
  const next = after(known ?? begun(round), event);
  if (next === null) return walks;
  const others = walks.filter((walk) => walk.round !== round);
  return [...others, next].sort((a, b) => a.round - b.round).slice(-WALKS_MAX);
}

function after(walk: Walk, event: Told): Walk | null {
  switch (event.name) {
    case "round_started":
      // a round that begins again has everything before it again
      return { ...begun(walk.round), beganS: event.ts };
    case "update_sealed":
      return { ...walk, sealedS: event.ts, ownLoss: numberIn(event, "loss_nats") };
    case "offer_eligible": {
      const author = textIn(event, "author");
      if (author === "" || walk.acknowledged.includes(author)) return null;
      return { ...walk, acknowledged: [...walk.acknowledged, author], lastCameS: event.ts };
    }
    case "set_decided": {
      const leftOut = event["left_out"];
      return {
        ...walk, setS: event.ts, contributors: numberIn(event, "contributors"),
        leftOut: Array.isArray(leftOut) ? leftOut.length : numberIn(event, "left_out"),
      };
    }
    case "set_executed":
      return { ...walk, mergedS: event.ts };
    case "exec_certified":
      return { ...walk, signers: numberIn(event, "signers") };
    case "round_finalized":
      return {
        ...walk, endedS: event.ts, end: "final", height: numberIn(event, "height"),
        contributors: numberIn(event, "contributors") ?? walk.contributors,
      };
    case "round_aborted":
      return { ...walk, endedS: event.ts, end: "aborted" };
    default:
      return null;
  }
}

/** In their order; the last of a round that is under way is open, and ends now. */
export function stepsOf(walk: Walk, nowS: number): Step[] {
  if (walk.beganS === null) return [];
  const marks: readonly [StepName, number | null][] = [
    ["train", walk.sealedS], ["gather", walk.setS], ["merge", walk.mergedS],
    ["sign", walk.end === "final" ? walk.endedS : null],
  ];
  const steps: Step[] = [];
  let fromS = walk.beganS;
  for (const [at, [name, toS]] of marks.entries()) {
    if (toS !== null) {
      steps.push({ name, fromS, toS: Math.max(fromS, toS), isOpen: false });
      fromS = Math.max(fromS, toS);
    } else if (marks.slice(at + 1).every(([, laterS]) => laterS === null)) {
      // nobody seals where nobody trains: gathering is what is under way once others are heard of
      const open = name === "train" && walk.acknowledged.length > 0 ? "gather" : name;
      const untilS = walk.endedS ?? nowS;
      steps.push({ name: open, fromS, toS: Math.max(fromS, untilS), isOpen: walk.end === null });
      break;
    }
  }
  return steps;
}

/** Who came last, and how long after this node had sealed its own; null where nobody waited. */
export function lastToCome(walk: Walk): { author: string; afterS: number } | null {
  const author = walk.acknowledged.at(-1);
  if (author === undefined || walk.lastCameS === null || walk.sealedS === null) return null;
  const afterS = walk.lastCameS - walk.sealedS;
  return walk.acknowledged.length > 1 && afterS > 0 ? { author, afterS } : null;
}

export function lastsS(walk: Walk, nowS: number): number | null {
  return walk.beganS === null ? null : Math.max(0, (walk.endedS ?? nowS) - walk.beganS);
}
