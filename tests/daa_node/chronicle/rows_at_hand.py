"""Rounds of a history, short to write."""

from typing import Any

from daa_dag.ids import NodeId, VertexId
from daa_node.chronicle.rows import Contributed, LeftOut, RoundRow

ALICE, BOB, CAROL = (NodeId(bytes([n]) * 32) for n in (0xA1, 0xB0, 0xCA))


def member(node: NodeId, tokens: int = 1000, counts: bool = True) -> Contributed:
    return Contributed(node, tokens, 10, 500, counts)


def a_round(height: int, *members: Contributed, **more: Any) -> RoundRow:
    """Of Alice and Bob, unless somebody else is named."""
    told: dict[str, Any] = {
        "height": height,
        "round": height,
        "vertex_id": VertexId(height.to_bytes(32)),
        "signers": 3,
        "contributors": members or (member(ALICE), member(BOB)),
        "ended_s": 1_000_000.0 + 60 * height,
        "loss_nats": 3.0 - height / 100,
        "wall_s": 55.5,
        "sent_bytes": 2000,
    }
    return RoundRow(**{**told, **more})


def left_out(number: int, node: NodeId, why: str = "late") -> LeftOut:
    return LeftOut(number, node, why)
