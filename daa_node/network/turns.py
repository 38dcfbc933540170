"""When each node does what all of them do now and then: at a time of its own."""

from daa_dag.ids import digest_of
from daa_node.seams import PeerId


def share_of(peer_id: PeerId) -> float:
    """From 0 to 1, spread evenly over peers: the part of a period that this one waits first."""
    return int.from_bytes(digest_of(peer_id.encode())[:4]) / 2**32
