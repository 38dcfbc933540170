/** This run beside another one, from the same height on: loss over time, and the time of rounds. */

import type { Line } from "./drawings/lines";
import { thinned } from "./drawings/thinned";
import type { OtherRun, RoundRecord } from "./facts";
import type { Walk } from "./walks";
import { nats, percent, seconds } from "./words";

const POINTS_MAX = 500;

export interface Timed {
  readonly height: number;
  readonly atS: number; // rounds alone, from the first that is compared
  readonly wallS: number;
  readonly loss: number | null;
}

export interface Compared {
  readonly own: readonly Timed[];
  readonly other: readonly Timed[];
  readonly fromHeight: number; // both clocks begin with the end of this one
}

/** Of this node's own rounds the newest in a row that it has walked; null: none to compare. */
export function compared(rounds: readonly RoundRecord[], other: OtherRun): Compared | null {
  let first = rounds.length;
  while (first > 0 && (rounds[first - 1]?.wall_s ?? 0) > 0) first -= 1;
  const mine = rounds.slice(first).map((record) => ({
    height: record.height, wallS: record.wall_s, loss: record.loss_nats,
  }));
  const theirs = other.rounds.map((each) => ({
    height: each.height, wallS: each.wall_s, loss: each.loss_nats, atS: each.at_s,
  }));
  const [ownFirst] = mine, [otherFirst] = theirs;
  if (ownFirst === undefined || otherFirst === undefined) return null;
  const fromHeight = Math.max(ownFirst.height, otherFirst.height) - 1;
  let passedS = 0;
  const own = mine.filter(({ height }) => height > fromHeight).map((each) => {
    passedS += each.wallS;
    return { ...each, atS: passedS };
  });
  const beganS = theirs.filter(({ height }) => height <= fromHeight).at(-1)?.atS
    ?? otherFirst.atS - otherFirst.wallS;
  const beside = theirs.filter(({ height }) => height > fromHeight)
    .map((each) => ({ ...each, atS: each.atS - beganS }));
  return own.length === 0 || beside.length === 0 ? null : { own, other: beside, fromHeight };
}

export interface Unit {
  readonly seconds: number;
  readonly name: string;
}

/** In which an axis as long as the longer of both has figures that a person reads. */
export function unitOf({ own, other }: Compared): Unit {
  const longestS = Math.max(own.at(-1)?.atS ?? 0, other.at(-1)?.atS ?? 0);
  if (longestS < 600) return { seconds: 1, name: "s" };
  return longestS < 36_000 ? { seconds: 60, name: "min" } : { seconds: 3_600, name: "h" };
}

export function lossLines(both: Compared, name: string): Line[] {
  const { own, other } = both, unit = unitOf(both);
  const line = (title: string, rounds: readonly Timed[]): Line => ({
    name: title,
    points: thinned(rounds, POINTS_MAX).flatMap(({ atS, loss }) => (
      loss === null ? [] : [[atS / unit.seconds, loss]])),
  });
  return [line("this network", own), line(name, other)];
}

export function timeLines({ own, other }: Compared, name: string): Line[] {
  const line = (title: string, rounds: readonly Timed[]): Line => ({
    name: title,
    points: thinned(rounds, POINTS_MAX).map(({ height, wallS }) => [height, wallS]),
  });
  return [line("this network", own), line(name, other)];
}

/** How long each took to the lowest loss that both have come to. */
export function lossWords({ own, other, fromHeight }: Compared): string {
  const lowest = (rounds: readonly Timed[]): number => Math.min(
    Infinity, ...rounds.flatMap(({ loss }) => (loss === null ? [] : [loss])));
  const target = Math.max(lowest(own), lowest(other));
  const when = (rounds: readonly Timed[]): number | undefined => rounds.find(
    ({ loss }) => loss !== null && loss <= target)?.atS;
  const ownS = when(own), otherS = when(other);
  if (!Number.isFinite(target) || ownS === undefined || otherS === undefined) {
    return "One of the two has no losses yet.";
  }
  return `To a loss of ${nats(target)} this network took ${seconds(ownS)} of rounds from height `
    + `${fromHeight} on, the other run ${seconds(otherS)}.`;
}

export function timeWords({ own, other }: Compared): string {
  const mean = (rounds: readonly Timed[]): string => seconds(
    rounds.reduce((sum, { wallS }) => sum + wallS, 0) / rounds.length);
  return `A round took ${mean(own)} here, ${mean(other)} in the other run, on average.`;
}

/** Of the rounds that this page has heard of whole: how much of their time this node trained. */
export function trainingShare(walks: readonly Walk[]): number | null {
  const whole = walks.flatMap(({ beganS, sealedS, endedS, end }) => (
    end === "final" && beganS !== null && sealedS !== null && endedS !== null && endedS > beganS
      ? [{ trainedS: sealedS - beganS, lastedS: endedS - beganS }] : []));
  if (whole.length === 0) return null;
  const trainedS = whole.reduce((sum, each) => sum + each.trainedS, 0);
  return trainedS / whole.reduce((sum, each) => sum + each.lastedS, 0);
}

export function shareWords(walks: readonly Walk[], other: OtherRun): string {
  const own = trainingShare(walks);
  return [
    ...(own === null ? [] : [`This node trained in ${percent(own)} of the newest rounds' time.`]),
    ...(other.useful_share === null ? [] : [
      `The nodes of the other run spent ${percent(other.useful_share)} of theirs in steps that `
        + "counted."]),
  ].join(" ");
}
