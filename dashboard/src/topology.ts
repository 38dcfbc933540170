/** Where the others are, as this node sees it: by which way each is reached, and how far it is. */

import type { Bounds } from "./drawings/heat";
import type { HeatRow } from "./drawings/heat_map";
import type { Neighbour, Way } from "./drawings/star";
import { isMember, type Peer, type RoundTrips } from "./facts";
import { clock, count, milliseconds, short } from "./words";

/** Milliseconds: a machine or a house, a city, a country, a continent, an ocean, and worse. */
export const RTT_BOUNDS: Bounds = [5, 20, 50, 100, 200];
export const DRAWN_MAX = 64;

export function wayOf(peer: Peer): Way {
  if (!peer.connected) return "gone";
  if (peer.punched) return "punched";
  if (peer.relayed) return "relayed";
  const isInward = peer.dialled === false || (peer.dialled == null && peer.reach === "unreachable");
  return isInward ? "inward" : "direct";
}

/** Members first; strangers that have gone are not drawn. */
export function neighboursOf(peers: readonly Peer[]): Neighbour[] {
  return peers.filter((peer) => peer.connected || isMember(peer))
    .sort((a, b) => Number(isMember(b)) - Number(isMember(a)) || (a.peer_id < b.peer_id ? -1 : 1))
    .slice(0, DRAWN_MAX)
    .map((peer) => ({
      key: peer.peer_id, name: short(peer.node_id ?? peer.peer_id.slice(-8)), way: wayOf(peer),
      rttMs: peer.connected ? peer.rtt_ms : null,
    }));
}

const WAYS_SAID: readonly (readonly [Way, string])[] = [
  ["direct", "reached directly"], ["inward", "by connections that they opened"],
  ["relayed", "through a relay"], ["punched", "through a hole in a router"], ["gone", "gone"],
];

export function starWords(neighbours: readonly Neighbour[]): string {
  const ways = WAYS_SAID.flatMap(([way, said]) => {
    const number = neighbours.filter((one) => one.way === way).length;
    return number === 0 ? [] : [`${number} ${said}`];
  });
  const measured = neighbours.flatMap(({ rttMs }) => (rttMs === null ? [] : [rttMs]));
  const range = measured.length === 0 ? "" : ` Round trips take ${milliseconds(
    Math.min(...measured))} to ${milliseconds(Math.max(...measured))}.`;
  return `${count(neighbours.length, "node")}: ${ways.join(", ")}.${range}`;
}

export interface Hour {
  readonly rows: readonly HeatRow[];
  readonly columns: readonly string[];
  readonly words: string;
}

/** `nowS`: when the newest minute was told of. */
export function hourOf({ minutes, peers }: RoundTrips, nowS: number): Hour {
  const rows = peers.map(({ node_id, peer_id, connected, rtts_ms: values }) => {
    const newest = connected ? values.reduce((last, ms) => ms ?? last, null) : null;
    return {
      key: peer_id, name: short(node_id ?? peer_id.slice(-8)), values,
      end: newest === null ? (connected ? "\u2013" : "gone") : milliseconds(newest),
    };
  });
  const columns = Array.from({ length: minutes }, (_, at) => (
    clock(nowS - 60 * (minutes - 1 - at)).slice(0, 5)));
  return { rows, columns, words: hourWords(peers) };
}

function hourWords(peers: RoundTrips["peers"]): string {
  const all = peers.flatMap(({ rtts_ms }) => rtts_ms.filter((ms) => ms !== null));
  if (all.length === 0) return "No round trip was measured in the last hour.";
  const sorted = [...all].sort((a, b) => a - b);
  const middle = sorted[Math.floor(sorted.length / 2)] ?? 0, slowest = sorted.at(-1) ?? 0;
  return `Round trips to ${count(peers.length, "node")} in the last hour, by the minute: `
    + `${milliseconds(middle)} in the middle, ${milliseconds(slowest)} at the most.`;
}
