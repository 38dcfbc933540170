/** Who brought how much of the model: counted from certified sets, not from what anybody claims. */

import { Card, Empty } from "./card";
import type { RoundRecord } from "./facts";
import type { State } from "./state";
import { count, percent, short } from "./words";

export interface Share {
  readonly node: string;
  readonly rounds: number;
  readonly voided: number; // listed, and not merged
  readonly lastHeight: number;
}

/** Most rounds first. */
export function sharesOf(rounds: readonly RoundRecord[]): Share[] {
  const shares = new Map<string, Share>();
  for (const { contributors, voided, height } of rounds) {
    const lost = new Set(voided);
    for (const node of contributors) {
      const before = shares.get(node) ?? { node, rounds: 0, voided: 0, lastHeight: 0 };
      const isVoid = lost.has(node);
      shares.set(node, {
        node, lastHeight: height,
        rounds: before.rounds + (isVoid ? 0 : 1), voided: before.voided + (isVoid ? 1 : 0),
      });
    }
  }
  return [...shares.values()].sort((a, b) => b.rounds - a.rounds || (a.node < b.node ? -1 : 1));
}

const SHOWN_MAX = 12;

export function Contributions({ state }: { state: State }) {
  const told = state.rounds.filter(({ contributors }) => contributors.length > 0);
  const shares = sharesOf(told), me = state.status?.node_id;
  const mine = shares.find(({ node }) => node === me);
  const shown = shares.slice(0, SHOWN_MAX);
  if (mine !== undefined && !shown.includes(mine)) shown.push(mine);
  return (
    <Card
      id="contributions" title="Contributions"
      aside={told.length === 0 ? undefined : `of ${count(told.length, "certified round")}`}
    >
      {shown.length === 0
        ? <Empty>With the first certified round this counts who trained what, and your own
          share.</Empty>
        : (
          <ul class="shares">
            {shown.map(({ node, rounds, voided, lastHeight }) => (
              <li key={node}>
                <p>
                  <b title={node}>{node === me ? "This node" : <code>{short(node)}</code>}</b>
                  <span class="figure">{count(rounds, "round")}</span>
                </p>
                <meter
                  min={0} max={told.length} value={rounds}
                  aria-label={`Share of ${node === me ? "this node" : short(node)}`}
                >
                  {percent(rounds / told.length)}
                </meter>
                <p class="words">
                  {percent(rounds / told.length)} of all, last at height {lastHeight}
                  {voided > 0 && `; ${voided} not merged`}
                </p>
              </li>
            ))}
          </ul>
        )}
    </Card>
  );
}
