/**
 * Who brought how much of the model: counted from certified sets, not from what anybody claims.
 *
 * A node that keeps a history tells of all its years, in tokens; else the rounds that it still has
 * in memory are counted here.
 */

import { Card, Empty } from "./card";
import type { Contributed, RoundRecord, Settings } from "./facts";
import type { State } from "./state";
import { count, percent, short, tokens } from "./words";

export interface Share {
  readonly node: string | null; // null: those so long gone that they are one
  readonly rounds: number;
  readonly voided: number; // certified, and not merged
  readonly lastHeight: number | null; // null: it was only ever left out
  readonly share: number; // of all tokens, or of all rounds where these are not known
  readonly notes: readonly string[];
}

/** Most rounds first. */
export function sharesOf(rounds: readonly RoundRecord[]): Share[] {
  const told = rounds.filter(({ contributors }) => contributors.length > 0);
  const shares = new Map<string, Share>();
  for (const { contributors, voided, height } of told) {
    const lost = new Set(voided);
    for (const node of contributors) {
      const before = shares.get(node);
      const merged = (before?.rounds ?? 0) + (lost.has(node) ? 0 : 1);
      shares.set(node, {
        node, rounds: merged, lastHeight: height, share: merged / told.length, notes: [],
        voided: (before?.voided ?? 0) + (lost.has(node) ? 1 : 0),
      });
    }
  }
  return [...shares.values()].sort(
    (a, b) => b.rounds - a.rounds || (a.node ?? "").localeCompare(b.node ?? ""));
}

export function sharesTold({ contributions }: Contributed): Share[] {
  return contributions.map((host) => ({
    node: host.node_id, rounds: host.rounds, voided: host.void, lastHeight: host.last_height,
    share: host.share,
    notes: [
      `${tokens(host.tokens)} tokens`,
      ...Object.entries(host.left_out).map(([why, times]) => `left out ${times} times: ${why}`),
    ],
  }));
}

/** Why there is no more than this, and what to do; null where a history is kept. */
export function whyNoHistory(settings: Settings | null): string | null {
  const isOff = settings?.settings.some(
    ({ key, value }) => key === "history.enabled" && value === false) ?? false;
  return isOff
    ? "These are the rounds in memory alone: for all years, set `history: {enabled: true}` in "
      + "config.yaml, and start the node again."
    : null;
}

const SHOWN_MAX = 12;

export function Contributions({ state }: { state: State }) {
  const { contributed, rounds, settings, status } = state;
  const why = whyNoHistory(settings);
  const shares = contributed === null ? sharesOf(rounds) : sharesTold(contributed);
  const of = contributed?.rounds ?? rounds.filter((each) => each.contributors.length > 0).length;
  const mine = shares.find(({ node }) => node !== null && node === status?.node_id);
  const shown = shares.slice(0, SHOWN_MAX);
  if (mine !== undefined && !shown.includes(mine)) shown.push(mine);
  return (
    <Card
      id="contributions" title="Contributions"
      aside={of === 0 ? undefined : `of ${count(of, "certified round")}`}
    >
      {shown.length === 0
        ? <Empty>With the first certified round this counts who trained what, and your own
          share.</Empty>
        : (
          <ul class="shares">
            {shown.map((share) => (
              <Row key={share.node ?? "others"} share={share} isMine={share === mine} />
            ))}
          </ul>
        )}
      {why !== null && <p class="words">{why}</p>}
    </Card>
  );
}

function Row({ share: told, isMine }: { share: Share; isMine: boolean }) {
  const { node, rounds, voided, lastHeight, share, notes } = told;
  const name = isMine ? "This node" : node === null ? "Others, long gone" : short(node);
  const words = [
    `${percent(share)} of all`, ...notes,
    ...(lastHeight === null ? [] : [`last at height ${lastHeight}`]),
    ...(voided > 0 ? [`${voided} not merged`] : []),
  ];
  return (
    <li>
      <p>
        <b title={node ?? ""}>{isMine || node === null ? name : <code>{name}</code>}</b>
        <span class="figure">{count(rounds, "round")}</span>
      </p>
      <meter min={0} max={1} value={share} aria-label={`Share of ${name}`}>
        {percent(share)}
      </meter>
      <p class="words">{words.join(" \u00b7 ")}</p>
    </li>
  );
}
