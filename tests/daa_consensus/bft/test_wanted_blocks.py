"""Blocks that are missing: whoever keeps one to itself is not asked for ever."""

from daa_consensus.bft.catch_up import WantedBlocks
from daa_consensus.bft.effects import FetchBlock
from daa_dag.ids import BlockId
from tests.daa_consensus.bft.simulation import node_id

BLOCK = BlockId(b"b" * 32)
HOLDERS = tuple(node_id(index) for index in range(5))


def test_every_holder_comes_first_once_while_a_block_does_not_come() -> None:
    wanted = WantedBlocks()
    asked = wanted.begin(BLOCK, HOLDERS)
    for _ in range(4):
        asked += wanted.again()
    assert {fetch.holders[0] for fetch in asked} == set(HOLDERS)
    assert all(set(fetch.holders) == set(HOLDERS) for fetch in asked)


def test_views_that_pass_quickly_do_not_start_with_the_same_holder_again() -> None:
    wanted = WantedBlocks()
    firsts = set()
    for _ in HOLDERS:
        (fetch,) = wanted.begin(BLOCK, HOLDERS)
        firsts.add(fetch.holders[0])
        wanted.clear()
    assert firsts == set(HOLDERS)


def test_a_block_that_came_is_not_asked_for_again_and_nobody_need_hold_one() -> None:
    wanted = WantedBlocks()
    assert wanted.begin(BLOCK, ()) == [FetchBlock(BLOCK, ())]
    assert wanted.again() == [FetchBlock(BLOCK, ())]
    assert wanted.end(BLOCK)
    assert wanted.again() == []
    assert not wanted.end(BLOCK)
