"""How long round trips to peers took in the last hour, as an answer of bounded size."""

from collections.abc import Mapping, Set
from typing import Any

import trio

from daa_node.network.directory import Directory
from daa_node.network.round_trips import MINUTES_KEPT, RoundTrips
from daa_node.seams import PeerId

PEERS_TOLD_MAX = 64  # rows that a person can tell apart, in some 25 kB


def told_round_trips(directory: Directory, connected: Set[PeerId]) -> Mapping[str, Any]:
    """Members first, then others who are connected; who is gone stays while an hour is not over."""
    now_s, measured = trio.current_time(), list[tuple[bool, bool, PeerId, RoundTrips]]()
    for standing in directory.standings():
        trips, peer_id = standing.round_trips, standing.peer_id
        if trips is not None and trips.has_any(now_s):
            order = not directory.is_member(peer_id), peer_id not in connected
            measured.append((*order, peer_id, trips))
    measured.sort(key=lambda one: one[:3])
    rows = []
    # what the hour was like is told of these alone: of a thousand it takes 30 ms
    for _, is_gone, peer_id, trips in measured[:PEERS_TOLD_MAX]:
        node_id = directory.node_of(peer_id)
        rows.append(
            {
                "node_id": None if node_id is None else node_id.hex(),
                "peer_id": peer_id,
                "connected": not is_gone,
                "rtts_ms": trips.told_ms(now_s),
            }
        )
    return {"minutes": MINUTES_KEPT, "peers": rows, "peers_in_all": len(measured)}
