"""What the lot has drawn, and which states others have to see for it."""

from types import SimpleNamespace
from typing import Any, cast

from daa_dag.ids import Digest, NodeId
from daa_node.disputes.decided_sets import Drawn
from daa_node.spot_checks.lot import Draw

ROOTS = tuple(Digest(bytes([index]) * 32) for index in range(6))


def test_a_drawn_segment_shows_its_ends_and_those_of_the_round_and_no_other_state() -> None:
    offer = cast(Any, SimpleNamespace(snapshot_roots=ROOTS))
    drawn = Drawn(Draw(offer, 2, (NodeId(bytes(32)),)), cast(Any, None), None, 4)
    assert drawn.states == {ROOTS[0], ROOTS[2], ROOTS[3], ROOTS[5]}
