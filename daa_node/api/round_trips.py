"""How long round trips to peers took in the last hour, as an answer of bounded size."""

from collections.abc import Container, Mapping, Set
from typing import Any

import trio

from daa_dag.ids import NodeId
from daa_node.network.directory import Directory
from daa_node.network.round_trips import MINUTES_KEPT, RoundTrips
from daa_node.seams import PeerId

PEERS_TOLD_MAX = 64  # rows that a person can tell apart, in some 25 kB


def told_round_trips(
    directory: Directory, connected: Set[PeerId], validators: Container[NodeId]
) -> Mapping[str, Any]:
    """Members first, of them those who vote: of trainers there may be any number.

    Then others who are connected; who is gone stays while an hour is not over.
    """
    measured = list[tuple[bool, bool, bool, PeerId, RoundTrips]]()
    now_s = trio.current_time()
    for standing in directory.standings():
        trips, peer_id = standing.round_trips, standing.peer_id
        if trips is not None and trips.has_any(now_s):
            is_other = not directory.is_member(peer_id)
            votes_not = directory.node_of(peer_id) not in validators
            measured.append((is_other, votes_not, peer_id not in connected, peer_id, trips))
    measured.sort(key=lambda one: one[:4])
    rows = []
    # what the hour was like is told of these alone: of a thousand it takes 30 ms
    for _, _, is_gone, peer_id, trips in measured[:PEERS_TOLD_MAX]:
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
