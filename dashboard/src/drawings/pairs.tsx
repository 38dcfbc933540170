/** Figures of two things or a few, side by side: a bar each, in the measure of the greatest. */

import "./bars.css";
import { DASH, Drawing } from "./drawing";

export interface Pair {
  readonly name: string;
  readonly values: readonly (number | null)[]; // as many as there are sides
  readonly shown: (value: number) => string;
  readonly note?: readonly string[]; // of each side, what stands behind its figure
}

export function Pairs(
  { sides, pairs, words }: {
    sides: readonly string[]; // four at the most can be told apart
    pairs: readonly Pair[];
    words: string; // the whole in one sentence
  },
) {
  const table = () => ({
    caption: words, columns: ["Figure", ...sides],
    rows: pairs.map((pair) => [pair.name, ...sides.map((_, at) => figureOf(pair, at))]),
  });
  const below = (
    <ul class="legend" aria-hidden="true">
      {sides.map((side, at) => <li key={side}><i class={`pair-bar side-${at}`} />{side}</li>)}
    </ul>
  );
  return (
    <Drawing words={words} table={table} below={below}>
      <div class="pairs">
        {pairs.map((pair) => (
          <div key={pair.name} class="pair">
            <span>{pair.name}</span>
            <div>
              {sides.map((side, at) => (
                <p key={side} title={side}>
                  <i
                    class={`pair-bar side-${at}`}
                    style={{ width: `${widthOf(pair.values, at)}%` }}
                  />
                  <span class="figure">{figureOf(pair, at)}</span>
                </p>
              ))}
            </div>
          </div>
        ))}
      </div>
    </Drawing>
  );
}

/** In percent of the room that bars have; figures stand behind them. */
export function widthOf(values: readonly (number | null)[], at: number): number {
  const most = Math.max(0, ...values.map((value) => Math.abs(value ?? 0)));
  return most === 0 ? 0 : (100 * Math.abs(values[at] ?? 0)) / most;
}

function figureOf({ values, shown, note }: Pair, at: number): string {
  const value = values[at] ?? null, behind = note?.[at] ?? "";
  return value === null ? DASH : `${shown(value)}${behind === "" ? "" : ` ${behind}`}`;
}
