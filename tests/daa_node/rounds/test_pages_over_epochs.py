"""A page ends where the committee that its reader knows ends, however we came to be past that."""

from typing import cast

from daa_consensus.bft.messages import Block, EmptyPayload, ResultPayload, SetPayload, genesis_block
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.ids import ChainId, Digest, NodeId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.page_server import page_after
from daa_node.checkpoints.pages import PAGE_BLOCKS_MAX
from daa_node.checkpoints.publish import Page
from tests.daa_node.rounds.bare_chain import BareChain

CHAIN = ChainId(b"c" * 32)
GENESIS = genesis_block(CHAIN, VertexId(bytes(32)))
FOUR, FIVE = (
    Committee(tuple(Validator(NodeId(bytes([65 + i]) * 32), 1) for i in range(count)))
    for count in (4, 5)
)


def round_of(parent: Block, number: int, empty_blocks: int = 0) -> list[Block]:
    """One round, an epoch long: its set, empty blocks, its result."""
    epoch, view = number - 1, parent.view + 1
    opened = Block(
        CHAIN, epoch, view, number, parent.id, parent.view,
        SetPayload(number, (), (), "mean", 0, (), (), ()),
    )  # fmt: skip
    blocks = [opened, *above(opened, empty_blocks)]
    top, result = blocks[-1], ResultPayload(number, VertexId(bytes(32)), Digest(bytes(32)))
    return [*blocks, Block(CHAIN, epoch, top.view + 1, number, top.id, top.view, result)]


def above(top: Block, count: int) -> list[Block]:
    """Empty blocks on top of one."""
    blocks: list[Block] = []
    for _ in range(count):
        empty = EmptyPayload()
        top = Block(CHAIN, top.epoch, top.view + 1, top.height, top.id, top.view, empty)
        blocks.append(top)
    return blocks


def final(block: Block, committee: Committee) -> Certificate:
    domain = Domain(CHAIN, block.epoch, committee.root)
    statement = Statement(domain, Kind.FINALIZE, block.view, block.height, block.id)
    return Certificate(statement, tuple((v.node_id, b"s") for v in committee.validators))


async def page(chain: BareChain) -> Page:
    found = await page_after(cast(ChainStore, chain), GENESIS.id)
    assert found is not None
    return found


async def test_an_epoch_that_ended_by_a_later_one_of_its_committee_is_shown_by_that_one() -> None:
    """We missed the end of the first two epochs, and the third has another committee."""
    chain = BareChain(GENESIS, epoch_rounds=1)
    first = round_of(GENESIS, 1)
    second = round_of(first[-1], 2)
    third = round_of(second[-1], 3)
    chain.publish([*first, *second], final(second[-1], FOUR))
    chain.publish(third, final(third[-1], FIVE))
    shown = await page(chain)
    assert shown.blocks == (*first, *second)
    assert shown.certificate == final(second[-1], FOUR)


async def test_a_certificate_from_the_middle_of_an_epoch_is_not_shown_for_its_end() -> None:
    chain = BareChain(GENESIS, epoch_rounds=1)
    first = round_of(GENESIS, 1, empty_blocks=2)
    second = round_of(first[-1], 2)
    chain.publish(first[:1], final(first[0], FOUR))
    chain.publish([*first[1:], *second], final(second[-1], FOUR))
    shown = await page(chain)
    assert shown.certificate.statement.value == shown.blocks[-1].id
    assert shown.blocks == (*first, *second)


async def test_a_long_epoch_whose_end_only_its_own_tail_proves_is_shown_with_that_tail() -> None:
    chain = BareChain(GENESIS, epoch_rounds=1)
    first = round_of(GENESIS, 1, empty_blocks=PAGE_BLOCKS_MAX)
    tail = above(first[-1], 2)
    second = round_of(first[-1], 2)
    chain.publish([*first, *tail], final(tail[-1], FOUR))
    chain.publish(second, final(second[-1], FIVE))
    shown = await page(chain)
    assert shown.blocks == (*first, *tail)
    assert shown.certificate == final(tail[-1], FOUR)
