/** The loop's log: what it decided and why, what it learned, and what it changed for that. */

import { Card, Empty } from "./card";
import type { DecisionLine, Turn } from "./decisions";
import { clock } from "./words";

const TURNS: Readonly<Record<Turn, string>> = {
  decided: "decided", learned: "learned", adapted: "changed its ways",
};

export function DecisionsCard({ lines }: { lines: readonly DecisionLine[] }) {
  return (
    <Card id="decisions" title="Decisions of the loop" aside="newest first">
      {lines.length === 0
        ? <Empty>What this node decides in each round, and why, is written down here as it
          happens.</Empty>
        : (
          <ol class="log scroll" tabIndex={0} aria-label="Decisions, newest first">
            {[...lines].reverse().map((line, at) => (
              <li key={lines.length - at}>
                <time>{clock(line.atS)}</time>
                <b>{TURNS[line.turn]}{line.turn === "decided" ? `: ${line.what}` : ""}</b>
                <span>{line.turn === "decided" ? line.why : `${line.what}: ${line.why}`}</span>
              </li>
            ))}
          </ol>
        )}
    </Card>
  );
}
