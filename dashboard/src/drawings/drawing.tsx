/**
 * What all drawings have: a picture, one sentence for who does not see it, and its figures as a
 * table. They are pure: figures in, elements out, so that any page may have them.
 */

import type { ComponentChildren, RefObject } from "preact";
import { useState } from "preact/hooks";
import "./drawings.css";

export const DASH = "\u2013"; // where a figure is not known

export interface Table {
  readonly caption: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[]; // the first cell of each names it
}

/** `table` is asked for once somebody opens it: thousands of cells cost nothing before. */
export function Drawing(
  { words, table, children, below, sideways }: {
    words: string; table: () => Table; children: ComponentChildren; below?: ComponentChildren;
    sideways?: RefObject<HTMLDivElement | null>; // what scrolls, where it is wider than its place
  },
) {
  const [isOpen, setOpen] = useState(false);
  const picture = <div role="img" aria-label={words}>{children}</div>;
  return (
    <figure class="drawing">
      {sideways === undefined ? picture : (
        <div
          class="sideways" ref={sideways} tabIndex={0} role="group"
          aria-label="A drawing that is wider than its place"
        >
          {picture}
        </div>
      )}
      {below}
      <details class="figures" onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary><span>As a table</span></summary>
        {isOpen && <Figures table={table()} />}
      </details>
    </figure>
  );
}

function Figures({ table: { caption, columns, rows } }: { table: Table }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption class="unseen">{caption}</caption>
        <thead>
          <tr>{columns.map((name) => <th key={name} scope="col">{name}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map(([name, ...cells], at) => (
            <tr key={`${at} ${name}`}>
              <th scope="row">{name}</th>
              {cells.map((cell, place) => <td key={columns[place + 1]}>{cell}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
