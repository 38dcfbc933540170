/** What a whole was spent on: a bar of parts a row, all of the same length. */

import "./bars.css";
import { Drawing } from "./drawing";

/** Each has a pattern of its own beside its colour. */
export type PartStyle = "work" | "wait" | "merge" | "away";

export interface Part {
  readonly name: string;
  readonly style: PartStyle;
}

export interface ShareRow {
  readonly name: string;
  readonly shares: readonly number[]; // as many as there are parts; 1 in all at the most
}

export function Shares(
  { parts, rows, words }: {
    parts: readonly Part[]; rows: readonly ShareRow[]; words: string;
  },
) {
  const table = () => ({
    caption: words, columns: ["Of", ...parts.map(({ name }) => name)],
    rows: rows.map(({ name, shares }) => [
      name, ...parts.map((_, at) => percentOf(shares[at] ?? 0)),
    ]),
  });
  const below = (
    <ul class="legend" aria-hidden="true">
      {parts.map(({ name, style }) => (
        <li key={name}><i class={`share share-${style}`} />{name}</li>
      ))}
    </ul>
  );
  return (
    <Drawing words={words} table={table} below={below}>
      <div class="shares-of">
        {rows.map(({ name, shares }) => (
          <div key={name} class="share-row">
            <span>{name}</span>
            <div class="share-bar">
              {parts.map((part, at) => (
                <i
                  key={part.name} class={`share share-${part.style}`}
                  title={`${part.name}: ${percentOf(shares[at] ?? 0)}`}
                  style={{ width: `${100 * (shares[at] ?? 0)}%` }}
                />
              ))}
            </div>
          </div>
        ))}
      </div>
    </Drawing>
  );
}

function percentOf(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}
