/** The network from here: each node's way and distance now, and its round trips of an hour. */

import { useMemo } from "preact/hooks";
import { Card, Empty } from "./card";
import { HeatMap } from "./drawings/heat_map";
import { Star } from "./drawings/star";
import type { Peer, RoundTrips } from "./facts";
import { hourOf, neighboursOf, RTT_BOUNDS, starWords } from "./topology";
import { milliseconds } from "./words";

export function TopologyCard(
  { peers, roundTrips }: { peers: readonly Peer[] | null; roundTrips: RoundTrips | null },
) {
  const neighbours = useMemo(() => neighboursOf(peers ?? []), [peers]);
  const hour = useMemo(
    () => (roundTrips === null ? null : hourOf(roundTrips, Date.now() / 1_000)), [roundTrips]);
  const hidden = roundTrips === null ? 0 : roundTrips.peers_in_all - roundTrips.peers.length;
  return (
    <Card
      id="topology" title="Network from here"
      aside="as this node measures it; others have their own view"
    >
      {neighbours.length === 0
        ? <Empty>Each node that this one is connected with stands here: the farther from the
          middle, the longer its round trip.</Empty>
        : (
          <Star
            peers={neighbours} bounds={RTT_BOUNDS} words={starWords(neighbours)}
            shown={milliseconds}
          />
        )}
      {hour !== null && hour.rows.length > 0 && (
        <>
          <h3>Round trips in the last hour</h3>
          <HeatMap {...hour} bounds={RTT_BOUNDS} rowTitle="Node" shown={milliseconds} />
          {hidden > 0 && <p class="words">{hidden} more were measured, and are not drawn.</p>}
        </>
      )}
    </Card>
  );
}
