"""What an author keeps of what the lot has drawn of it, to show and to open."""

import pytest

from daa_dag.ids import Digest
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS
from daa_node.errors import StorageFailed
from tests.daa_node.disputes.little_court import (
    BEFORE,
    NAMES,
    SEGMENT_STEPS,
    World,
    state_root,
)

LIAR, _, THIRD, FOURTH = NAMES


async def test_nothing_counts_as_let_go_while_our_chain_cannot_be_read() -> None:
    """Whoever tidied by a list without it would delete what our drawn work goes on from."""
    world = World(chains_cannot_be_read=True)
    world.decide(*NAMES)
    with pytest.raises(StorageFailed):
        await world.members[THIRD].disputes.kept()
    world.chains_cannot_be_read = False
    assert Digest(BEFORE) in {Digest(root) for root in await world.members[THIRD].disputes.kept()}


async def test_what_was_drawn_of_us_is_kept_as_long_as_disputes_may_take() -> None:
    """And what that continues at once, else it would go with the rounds that we were away."""
    world = World()
    world.decide(*NAMES)
    ends = {state_root(THIRD, 0), state_root(THIRD, SEGMENT_STEPS), Digest(BEFORE)}
    assert {Digest(root) for root in await world.members[THIRD].disputes.kept()} == ends
    for round_ in range(2, DISPUTE_ROUNDS + 2):
        world.decide(FOURTH, LIAR, round_=round_)
    assert await world.members[THIRD].disputes.kept() == set()
