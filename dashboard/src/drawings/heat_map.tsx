/** Rows of cells: how much of something, of whom, and when. What is not known is left blank. */

import { useState } from "preact/hooks";
import { DASH, Drawing } from "./drawing";
import { levelWords, pathsOf, type Bounds } from "./heat";

export interface HeatRow {
  readonly key: string;
  readonly name: string;
  readonly values: readonly (number | null)[]; // as many as there are columns
  readonly told?: readonly string[]; // what each cell says, if it is more than its value
  readonly end?: string; // at the row's right end; its newest cell, if nothing is said
  readonly isOurs?: boolean;
}

export interface Heat {
  readonly rows: readonly HeatRow[];
  readonly columns: readonly string[]; // oldest first
  readonly bounds: Bounds;
  readonly words: string; // the whole in one sentence
  readonly rowTitle: string; // what a row is
  readonly shown: (value: number) => string;
}

const AIRY_MAX = 24; // rows; more are drawn closer

export function HeatMap({ rows, columns, bounds, words, rowTitle, shown }: Heat) {
  const [at, setAt] = useState<{ key: string; column: number } | null>(null);
  const pointed = at === null ? undefined : rows.find(({ key }) => key === at.key);
  const said = ({ values, told }: HeatRow, column: number): string => {
    const value = values[column];
    return value === null || value === undefined ? DASH : told?.[column] ?? shown(value);
  };
  const table = () => ({
    caption: words, columns: [rowTitle, ...columns],
    rows: rows.map((row) => [row.name, ...columns.map((_, place) => said(row, place))]),
  });
  const below = (
    <>
      <ul class="legend" aria-hidden="true">
        {levelWords(bounds, shown).map((told, level) => (
          <li key={told}><i class={`heat heat-${level}`} />{told}</li>
        ))}
      </ul>
      <p class="readout" aria-hidden="true">
        {pointed === undefined || at === null ? `${columns[0] ?? ""} to ${columns.at(-1) ?? ""}`
          : `${pointed.name}, ${columns[at.column] ?? ""}: ${said(pointed, at.column)}`}
      </p>
    </>
  );
  return (
    <Drawing words={words} table={table} below={below}>
      <div
        class={rows.length > AIRY_MAX ? "heat-map dense" : "heat-map"}
        onPointerLeave={() => setAt(null)}
      >
        {rows.map((row) => (
          <div key={row.key} class={row.isOurs === true ? "heat-row ours" : "heat-row"}>
            <span title={row.name}>{row.name}</span>
            <svg
              viewBox={`0 0 ${Math.max(1, columns.length)} 1`} preserveAspectRatio="none"
              onPointerMove={(event) => setAt({
                key: row.key, column: columnAt(event, columns.length),
              })}
            >
              <rect class="heat-none" width={columns.length} height="1" />
              {pathsOf(row.values, bounds).map(({ level, d }) => (
                <path key={level} class={`heat-${level}`} d={d} />
              ))}
            </svg>
            <span class="figure">{row.end ?? said(row, newest(row.values))}</span>
          </div>
        ))}
      </div>
    </Drawing>
  );
}

function columnAt(event: PointerEvent, count: number): number {
  const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
  const share = (event.clientX - left) / Math.max(1, width);
  return Math.min(count - 1, Math.max(0, Math.floor(share * count)));
}

/** The column of the last one that is known; -1 where none is. */
function newest(values: readonly (number | null)[]): number {
  return values.reduce<number>((last, value, place) => (value === null ? last : place), -1);
}
