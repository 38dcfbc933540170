/** Runs side by side, as figures of the drawings: adaptive against naive, first of all. */

import type { Line } from "../drawings/lines";
import type { Pair } from "../drawings/pairs";
import type { Part, ShareRow } from "../drawings/shares";
import { count } from "../words";
import type { Sides } from "./story";

const FIGURES: Readonly<Record<string, string>> = {
  virtual_s: "Virtual time, s",
  rounds: "Rounds",
  aborted: "Rounds aborted",
  crashes: "Crashes",
  round_s_mean: "Mean round, s",
  tokens_per_s: "Certified tokens a second",
  goodput: "Goodput: tokens a second, over those without faults",
  participation: "Participation in rounds",
  compute_utilisation: "Time in inner steps",
  useful_utilisation: "Time in steps that were certified",
  left_out: "Contributions left out",
  loss_nats: "Held-out loss at the end, nats",
  "loss_nats, same time": "Held-out loss after the same time, nats",
};

export const PARTS: readonly Part[] = [
  { name: "training", style: "work" },
  { name: "waiting", style: "wait" },
  { name: "sealing, merging, checking", style: "merge" },
  { name: "catching up, paused or down", style: "away" },
];
const PART_OF: Readonly<Record<string, number>> = {
  training: 0, waiting: 1, sealing: 2, merging: 2, checking: 2, catching_up: 3, paused: 3, down: 3,
};

export function figureName(name: string): string {
  const [group, of] = name.includes(": ") ? name.split(": ", 2) : ["", name];
  const told = FIGURES[of ?? ""] ?? of ?? name;
  return group === "" ? told : `${group}: ${told.charAt(0).toLowerCase()}${told.slice(1)}`;
}

/** Those that are zero on every side tell nothing. */
export function pairsOf({ figures }: Sides): Pair[] {
  return figures.filter(({ sides }) => sides.some((side) => side !== null && side[0] !== 0))
    .map(({ name, isShare, sides, over }) => {
      const shown = isShare ? (value: number) => `${number(100 * value)} %` : number;
      return {
        name: figureName(name), shown,
        values: sides.map((side) => (side === null ? null : side[0])),
        note: sides.map((side, at) => [
          side !== null && side[1] !== side[2] ? rangeOf(side, isShare) : "",
          timesOf(over[at] ?? null),
        ].filter((part) => part !== "").join(" ")),
      };
    });
}

function rangeOf(
  [, least, greatest]: readonly [number, number, number], isShare: boolean,
): string {
  const [from, to] = [least, greatest].map((value) => number(isShare ? 100 * value : value));
  return `(${from} to ${to})`;
}

/** How often the first side's figure goes into another's; it goes once into itself. */
function timesOf(ratio: number | null): string {
  return ratio === null || ratio === 1 ? "" : `\u00d7 ${number(ratio)}`;
}

export function curvesOf({ names, losses }: Sides): Line[] {
  return losses.flatMap(({ atMs, nats }, at) => (nats.length === 0 ? [] : [{
    name: names[at] ?? "", points: nats.map((loss, point) => [atMs[point] ?? 0, loss] as const),
  }]));
}

/** One row a class of nodes and side. */
export function timesRows({ names, times }: Sides): ShareRow[] {
  return times.flatMap(({ group, sides }) => sides.flatMap((shares, at) => {
    if (shares === null) return [];
    const own = PARTS.map(() => 0);
    for (const [name, share] of Object.entries(shares)) {
      const part = PART_OF[name] ?? PARTS.length - 1;
      own[part] = (own[part] ?? 0) + share;
    }
    return [{ name: `${group}, ${names[at] ?? ""}`, shares: own }];
  }));
}

/** Which runs these are: `2 seeds each`, or one of each. */
export function asideOf({ names, seeds }: Sides): string {
  const most = Math.max(...seeds.map((own) => own.length));
  return most > 1
    ? `means over ${count(most, "seed")}; in brackets least and greatest; \u00d7: over ${names[0]}`
    : `seed ${seeds[0]?.[0] ?? 0}; \u00d7: over ${names[0]}`;
}

export function wordsOf(sides: Sides): string {
  const told = pairsOf(sides).filter(({ name }) => name === FIGURES.tokens_per_s
    || name === FIGURES["loss_nats, same time"]);
  return [`${sides.names.join(" against ")} in ${count(pairsOf(sides).length, "figure")}`,
    ...told.map(({ name, values, shown }) => `${name}: ${sides.names.map((side, at) => {
      const value = values[at] ?? null;
      return `${side} ${value === null ? "unknown" : shown(value)}`;
    }).join(", ")}`)].join(". ") + ".";
}

/** Three digits or more, no exponents. */
function number(value: number): string {
  if (Number.isInteger(value) || Math.abs(value) >= 1_000) {
    return Math.round(value).toLocaleString("en");
  }
  return Math.abs(value) >= 10 ? value.toFixed(1) : String(Number(value.toPrecision(3)));
}
