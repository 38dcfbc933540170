/** What the node did, newest first, in its own words. */

import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Card, Empty } from "./card";
import type { Told } from "./facts";
import type { Link } from "./state";
import { clock } from "./words";

const SHOWN_MAX = 200;
const FIELD_CHARACTERS_MAX = 120;
const KINDS: readonly (readonly [id: string, title: string, names: RegExp])[] = [
  ["all", "Everything", /./],
  ["decisions", "Decisions and lessons", /^(decision|lesson|policy_adapted)$/],
  ["rounds", "Rounds", /^(round_|set_|update_|exec_|epoch_|checkpoint_|loss_|abort_|job_)/],
  ["agreement", "Agreement", /^(view_|block_|statement_|vote_|quorum_|offer_|evidence_)/],
  ["nodes", "Nodes", /^(peer_|dial_|relay_|hole_|reach|bulk_|standing_|name_|port_)/],
  ["trouble", "Trouble", new RegExp("(_failed|_lost|_refused|_fault|_banned|_damaged|_aborted|"
    + "_jumped|_short|_missing|_over|_skewed)$|^(quarantined|key_elsewhere|past_forked)$")],
];
const [, , TROUBLE] = KINDS[KINDS.length - 1] as (typeof KINDS)[number];

export function LogCard({ events, link }: { events: readonly Told[]; link: Link }) {
  const [kind, setKind] = useState("all");
  // The same until an event comes, also while the page is drawn for another reason.
  const rows = useMemo(() => rowsOf(events, kind), [events, kind]);
  return (
    <Card id="log" title="Log">
      <div class="filter">
        <label for="kind">Show</label>
        <select
          id="kind" value={kind}
          onChange={(event) => setKind((event.currentTarget as HTMLSelectElement).value)}
        >
          {KINDS.map(([id, title]) => <option key={id} value={id}>{title}</option>)}
        </select>
      </div>
      {rows.length === 0
        ? <Empty>{emptyWords(link, kind)}</Empty>
        : (
          <ol class="log scroll" tabindex={0} aria-label="Events, newest first">
            {rows}
          </ol>
        )}
    </Card>
  );
}

// An event is one object for as long as the page has it: its row is made once, and moves down.
const rowOf = new WeakMap<Told, VNode>();
let rowsMade = 0;

function rowsOf(events: readonly Told[], kind: string): VNode[] {
  const names = KINDS.find(([id]) => id === kind)?.[2] ?? /./;
  const shown = events.filter(({ name }) => names.test(name)).slice(-SHOWN_MAX).reverse();
  return shown.map((event) => {
    const row = rowOf.get(event) ?? madeRow(event);
    rowOf.set(event, row);
    return row;
  });
}

function madeRow(event: Told): VNode {
  rowsMade += 1;
  return (
    <li key={rowsMade}>
      <time>{clock(event.ts)}</time>
      <b class={TROUBLE.test(event.name) ? "trouble" : ""}>{event.name.replaceAll("_", " ")}</b>
      <span>{fieldsOf(event)}</span>
    </li>
  );
}

function emptyWords(link: Link, kind: string): string {
  if (link.at === "asking") return "This daemon does not send its events: see `daa-node logs`.";
  return kind === "all" ? "What the node does appears here as it happens."
    : "Nothing of this kind since the page is open.";
}

/** Fields in their order; what is long is cut. */
export function fieldsOf(event: Told): string {
  if (event.name === "decision") return `${event["decision"]}: ${event["reason"]}`;
  return Object.entries(event).filter(([name]) => name !== "ts" && name !== "name")
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${plain(name, value)}`).join(", ");
}

function words(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

function plain(name: string, value: unknown): string {
  if (typeof value === "number") return String(Number(value.toPrecision(6)));
  const text = Array.isArray(value) ? value.map(words).join(" ") || "none" : words(value);
  if (/^[0-9a-f]{40,}$/.test(text)) return text.slice(0, 8);
  if (/peer|relay/.test(name) && /^[0-9a-zA-Z]{40,}$/.test(text)) return text.slice(-8);
  return text.length > FIELD_CHARACTERS_MAX ? `${text.slice(0, FIELD_CHARACTERS_MAX)}\u2026` : text;
}
