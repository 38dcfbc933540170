/**
 * The other nodes: who is here, how each is reached, how far away it is, and why one is gone.
 *
 * Roles are written out: on a narrow screen rows are blocks, and a browser forgets what they were.
 */

import { Card, Empty } from "./card";
import { WAY_WORDS } from "./drawings/star";
import { isMember, type Peer } from "./facts";
import type { Gone, State } from "./state";
import { wayOf } from "./topology";
import { count, milliseconds, NOTHING, seconds, short } from "./words";

export const OTHERS_SHOWN_MAX = 30; // who is no member: anybody may connect, under ever new names
const RTT_MS_SHOWN_MIN = 20; // on one machine all are near, and look so

const COLUMNS = ["Node", "Now", "Reached", "Round trip", "Height", "Standing here"];

/** Members first, and all of them: others push none of these out of sight. */
export function rowsOf(peers: readonly Peer[]): { members: Peer[]; others: Peer[] } {
  const sorted = [...peers].sort(
    (a, b) => Number(b.connected) - Number(a.connected)
      || (a.node_id ?? a.peer_id).localeCompare(b.node_id ?? b.peer_id),
  );
  return {
    members: sorted.filter(isMember),
    others: sorted.filter((peer) => !isMember(peer)).slice(0, OTHERS_SHOWN_MAX),
  };
}

export function PeersCard({ state, nowS }: { state: State; nowS: number }) {
  const peers = state.peers ?? [], { members, others } = rowsOf(peers);
  const shown = [...members, ...others], unseen = peers.length - shown.length;
  const measured = members.length > 0 ? members : others;
  const farthestMs = Math.max(RTT_MS_SHOWN_MIN, ...measured.map(({ rtt_ms: ms }) => ms ?? 0));
  const here = peers.filter(({ connected }) => connected).length;
  return (
    <Card
      id="nodes" title="Nodes"
      aside={peers.length === 0 ? undefined : `${here} of ${peers.length} connected`}
    >
      {peers.length === 0
        ? <Empty>Each node that this one meets stands here: how it is reached, how far away it is,
          and how it does its work.</Empty>
        : (
          <table class="nodes" role="table">
            <thead role="rowgroup">
              <tr role="row">
                {COLUMNS.map((name) => (
                  <th key={name} scope="col" role="columnheader">{name}</th>
                ))}
              </tr>
            </thead>
            <tbody role="rowgroup">
              {shown.map((peer) => (
                <Row
                  key={peer.peer_id} peer={peer} farthestMs={farthestMs}
                  why={whyGone(peer, state.gone.get(peer.peer_id), nowS)}
                />
              ))}
            </tbody>
          </table>
        )}
      {unseen > 0 && (
        <p class="words">And {unseen} more that are no members: see `daa-node peers`.</p>
      )}
    </Card>
  );
}

function Row({ peer, farthestMs, why }: { peer: Peer; farthestMs: number; why: string }) {
  const id = peer.node_id ?? peer.peer_id;
  return (
    <tr role="row" class={peer.connected ? "" : "gone"}>
      <th scope="row" role="rowheader">
        <code title={id}>{short(peer.node_id ?? peer.peer_id.slice(-8))}</code>
        <small>{peer.part ?? "not known"}</small>
      </th>
      <td role="cell" data-label="Now">
        <span class={`mark ${peer.connected ? "good" : "bad"}`}>
          {peer.connected ? "connected" : "gone"}
        </span>
        {!peer.connected && (
          <small>{why}</small>
        )}
      </td>
      <td role="cell" data-label="Reached">
        {wayTo(peer)}
        {peer.why != null && <small>{peer.why}</small>}
      </td>
      <td role="cell" data-label="Round trip">
        <RoundTrip ms={peer.connected ? peer.rtt_ms : null} farthestMs={farthestMs} />
      </td>
      <td role="cell" data-label="Height" class="figure">{peer.height ?? NOTHING}</td>
      <td role="cell" data-label="Standing here"><Standing peer={peer} /></td>
    </tr>
  );
}

function whyGone(peer: Peer, gone: Gone | undefined, nowS: number): string {
  if (gone === undefined) return `no connection, seen ${seconds(peer.last_seen_s)} ago`;
  return `${gone.why}, ${seconds(Math.max(0, nowS - gone.atS))} ago`;
}

/** A bar that says how far, in the measure of the farthest, and the figure beside it. */
function RoundTrip({ ms, farthestMs }: { ms: number | null; farthestMs: number }) {
  if (ms === null) return <>{NOTHING}</>;
  const share = Math.min(100, Math.max(3, (100 * ms) / farthestMs));
  return (
    <span class="rtt">
      <i aria-hidden="true"><i style={{ width: `${share}%` }} /></i>
      {milliseconds(ms)}
    </span>
  );
}

function Standing({ peer }: { peer: Peer }) {
  const { health, shunned_until_round: shunned } = peer;
  const faults = Object.values(peer.faults).reduce((sum, each) => sum + each, 0);
  const notes = [
    ...(health !== null && health.level !== "priority" && health.would_raise !== null
      ? [health.excluded_because ?? `would raise it: ${health.would_raise}`] : []),
    ...(shunned !== null ? [`its work is not taken before round ${shunned}`] : []),
    ...(faults > 0 ? [count(faults, "fault")] : []),
  ];
  return (
    <>
      {health === null ? "not known yet" : `${health.level} ${health.score.toFixed(2)}`}
      {notes.map((note) => <small key={note}>{note}</small>)}
    </>
  );
}

function wayTo(peer: Peer): string {
  const way = wayOf(peer);
  if (way !== "gone") return `${WAY_WORDS[way]}${peer.websocket === true ? ", WebSocket" : ""}`;
  return peer.reach === null ? NOTHING : `last: ${peer.reach}`;
}
