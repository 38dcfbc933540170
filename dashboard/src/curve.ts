/** Points of the loss plot: as many as a screen can show, and none that would hide another. */

import { thinned } from "./drawings/thinned";
import type { RoundRecord } from "./facts";
import type { Walk } from "./walks";

export const POINTS_MAX = 2_000;

export interface Curve {
  readonly heights: number[];
  readonly heldOut: (number | null)[];
  readonly own: (number | null)[]; // this node's training loss, as far as the page has heard
}

export function curveOf(rounds: readonly RoundRecord[], walks: readonly Walk[]): Curve {
  const kept = thinned(rounds, POINTS_MAX);
  const own = new Map(walks.flatMap(({ height, ownLoss }) => (
    height === null || ownLoss === null ? [] : [[height, ownLoss] as const])));
  return {
    heights: kept.map(({ height }) => height),
    heldOut: kept.map(({ loss_nats: loss }) => loss),
    own: kept.map(({ height }) => own.get(height) ?? null),
  };
}

/** For whoever does not see the plot. */
export function curveWords({ heights, heldOut }: Curve): string {
  const points = heights.flatMap((height, at) => {
    const loss = heldOut[at];
    return loss === null || loss === undefined ? [] : [{ height, loss }];
  });
  const [first] = points, last = points.at(-1);
  if (first === undefined || last === undefined) return "No loss was measured yet.";
  if (points.length === 1) return `Held-out loss ${last.loss.toFixed(4)} at height ${last.height}.`;
  const [best] = [...points].sort((a, b) => a.loss - b.loss);
  return `Held-out loss: ${first.loss.toFixed(4)} at height ${first.height}, `
    + `${last.loss.toFixed(4)} at height ${last.height}. `
    + `The lowest is ${best?.loss.toFixed(4)}, at height ${best?.height}.`;
}
