/** Held-out loss as the nodes measured it: curves over time, and a row of cells a node. */

import type { Heat } from "../drawings/heat_map";
import type { Line } from "../drawings/lines";
import { thinned } from "../drawings/thinned";
import { count } from "../words";
import type { Lane } from "./story";

const LINES_MAX = 4; // more cannot be told apart
const COLUMNS_MAX = 48;
const POINTS_MAX = 1_000;

interface Point {
  readonly ms: number;
  readonly nats: number;
}

/** One curve a node; of more than can be told apart, the lowest, the middle and the highest. */
export function curvesOf(lanes: readonly Lane[], endMs: number): Line[] {
  const measured = lanes.filter(({ losses }) => losses.at.length > 0);
  if (measured.length <= LINES_MAX) {
    return measured.map((lane) => ({
      name: `node ${lane.node}`,
      points: thinned(pointsOf(lane), POINTS_MAX).map(({ ms, nats }) => [ms, nats]),
    }));
  }
  const cells = measured.map((lane) => cellsOf(lane, POINTS_MAX / 4, endMs));
  const names = ["lowest", "middle", "highest"] as const;
  return names.map((name) => ({
    name: `${name} of ${measured.length} nodes`,
    points: Array.from({ length: POINTS_MAX / 4 }, (_, at) => {
      const values = cells.flatMap((own) => own[at] ?? []).sort((a, b) => a - b);
      const place = { lowest: 0, middle: values.length >> 1, highest: values.length - 1 }[name];
      return [((at + 1) * endMs) / (POINTS_MAX / 4), values[place]] as const;
    }).flatMap(([ms, nats]) => (nats === undefined ? [] : [[ms, nats] as const])),
  }));
}

/** A row a node that measured, a column a height, or the newest of a few heights. */
export function heatOf(lanes: readonly Lane[]): Heat | null {
  const measured = lanes.filter(({ losses }) => losses.at.length > 0);
  const heights = [...new Set(measured.flatMap(({ losses }) => losses.height))]
    .sort((a, b) => a - b);
  if (heights.length === 0) return null;
  const shown = thinned(heights, COLUMNS_MAX);
  const values = measured.flatMap(({ losses }) => losses.nats);
  const low = least(values), high = -least(values.map((value) => -value));
  const bound = (sixths: number): number => low + ((high - low) * sixths) / 6;
  return {
    rows: measured.map(({ node, losses }) => {
      const byHeight = new Map(losses.height.map((height, at) => (
        [height, losses.nats[at] ?? null])));
      return {
        key: String(node), name: `node ${node}`,
        values: shown.map((height) => byHeight.get(height) ?? null),
      };
    }),
    columns: shown.map((height) => `height ${height}`),
    bounds: [bound(1), bound(2), bound(3), bound(4), bound(5)],
    words: `Held-out loss of ${count(measured.length, "node")} by height: ${high.toFixed(4)} at `
      + `the highest, ${low.toFixed(4)} at the lowest.`,
    rowTitle: "Node",
    shown: (value) => value.toFixed(4),
  };
}

/** Of all curves, in one sentence. */
export function wordsOf(lines: readonly Line[]): string {
  const told = lines.flatMap(({ name, points }) => {
    const first = points[0], last = points.at(-1);
    return first === undefined || last === undefined ? []
      : [`${name} from ${first[1].toFixed(4)} to ${last[1].toFixed(4)}`];
  });
  return `Held-out loss in nats a token over virtual time: ${told.join(", ")}.`;
}

/** By stretches of time: the newest loss of each, or null. */
function cellsOf(lane: Lane, columns: number, endMs: number): (number | null)[] {
  const cells: (number | null)[] = Array.from({ length: columns }, () => null);
  for (const { ms, nats } of pointsOf(lane)) {
    const at = Math.floor((ms * columns) / Math.max(1, endMs));
    cells[Math.min(columns - 1, at)] = nats;
  }
  return cells;
}

function pointsOf({ losses }: Lane): Point[] {
  return losses.at.map((ms, at) => ({ ms, nats: losses.nats[at] ?? 0 }));
}

function least(values: readonly number[]): number {
  return values.reduce((found, value) => Math.min(found, value), Infinity);
}
