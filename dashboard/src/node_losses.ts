/** Loss by node: how far each one's word of a checkpoint is from what most say of it. */

import type { Bounds } from "./drawings/heat";
import type { HeatRow } from "./drawings/heat_map";
import type { Losses } from "./facts";
import { count, nats, short } from "./words";

/** Nats. Devices round differently by less than the first; a tenth is another model, or a lie. */
export const AWAY_BOUNDS: Bounds = [0.001, 0.005, 0.02, 0.1, 0.5];

export function rowsOf({ nodes, median_nats: medians }: Losses): HeatRow[] {
  return nodes.map(({ node_id: id, mine, losses_nats: losses }) => {
    const away = losses.map((loss, at) => {
      const middle = medians[at] ?? null;
      return loss === null || middle === null ? null : loss - middle;
    });
    return {
      key: id, name: mine ? "this node" : short(id), isOurs: mine,
      end: nats(losses.at(-1) ?? null),
      values: away.map((each) => (each === null ? null : Math.abs(each))),
      told: away.map((each, at) => (each === null ? ""
        : `${nats(losses[at] ?? null)} (${each < 0 ? "\u2212" : "+"}${nats(Math.abs(each))})`)),
    };
  });
}

export function lossWords(losses: Losses): string {
  const last = losses.heights.length - 1, height = losses.heights[last];
  if (height === undefined) return "Nobody has told of a loss yet.";
  const least = losses.least_nats[last] ?? null, greatest = losses.greatest_nats[last] ?? null;
  if (least === null || greatest === null) return `Nobody could measure checkpoint ${height}.`;
  return `Of checkpoint ${height}, ${losses.measured[last]} of `
    + `${count(losses.contributors[last] ?? 0, "contributor")} say what they measured: `
    + `${nats(least)} to ${nats(greatest)} nats, the median `
    + `${nats(losses.median_nats[last] ?? null)}.`;
}
