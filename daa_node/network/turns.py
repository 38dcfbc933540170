"""When each node does what all of them do now and then, and whom it asks: by turns of its own."""

from collections.abc import Iterable

from daa_dag.ids import NodeId, digest_of
from daa_node.seams import PeerId


def share_of(peer_id: PeerId) -> float:
    """From 0 to 1, spread evenly over peers: the part of a period that this one waits first."""
    return int.from_bytes(digest_of(peer_id.encode())[:4]) / 2**32


def in_turn_of(me: NodeId, nodes: Iterable[NodeId]) -> list[NodeId]:
    """Whom `me` asks, where any of them will do.

    In one order for all, hundreds that look on would ask one member, and wait for its share.
    """
    return sorted(nodes, key=lambda node: digest_of(me + node))
