"""What became final, cut into rounds: each block belongs to one, and nothing piles up."""

from collections.abc import Sequence

from daa_consensus.bft.effects import Finalized
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    Payload,
    ResultPayload,
    SetPayload,
)
from daa_consensus.committee import Domain
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.ids import BlockId, ChainId, Digest, ValidatorSetRoot, VertexId
from daa_node.agreement.outcomes import RESOLUTIONS_KEPT, Outcomes

CHAIN = ChainId(b"c" * 32)
DOMAIN = Domain(CHAIN, 0, ValidatorSetRoot(b"v" * 32))


def block(view: int, height: int, payload: Payload) -> Block:
    return Block(CHAIN, 0, view, height, BlockId(b"p" * 32), view - 1, payload)


def set_of(view: int, round_number: int) -> Block:
    return block(view, round_number, SetPayload(round_number, (), (), "mean", 0, (), (), ()))


def result(view: int, round_number: int) -> Block:
    payload = ResultPayload(round_number, VertexId(b"x" * 32), Digest(b"r" * 32))
    return block(view, round_number, payload)


def final(*blocks: Block, trailing: Sequence[Block] = ()) -> Finalized:
    newest = [*blocks, *trailing][-1]
    statement = Statement(DOMAIN, Kind.FINALIZE, newest.view, newest.height, newest.id)
    return Finalized(tuple(blocks), Certificate(statement, ()), tuple(trailing))


def test_each_final_block_comes_with_the_round_that_it_ends_and_with_no_other() -> None:
    outcomes = Outcomes(0, None)
    blocks = [
        set_of(1, 1), block(2, 1, EmptyPayload()), result(3, 1), block(4, 1, EmptyPayload()),
        set_of(5, 2), block(6, 2, AbortPayload(2)), set_of(7, 3), result(8, 3),
    ]  # fmt: skip
    for cuts in ([3, 6], [1, 2, 3, 4, 5, 6, 7], [4], [2, 5], []):
        outcomes = Outcomes(0, None)
        ends, begun, found = [*cuts, len(blocks)], 0, []
        for end in ends:
            found += outcomes.note(final(*blocks[begun:end]))
            begun = end
        assert [resolution.round for resolution in found] == [1, 2, 3]
        assert [b for resolution in found for b in resolution.blocks] == blocks
        assert [resolution.result is None for resolution in found] == [False, True, False]
        assert all(r.set_block.payload.round == r.round for r in found)  # type: ignore[union-attr]


def test_what_is_remembered_of_the_past_is_bounded() -> None:
    outcomes = Outcomes(0, None)
    for round_number in range(1, 5 * RESOLUTIONS_KEPT):
        view = 3 * round_number
        (resolution,) = outcomes.note(
            final(
                set_of(view, round_number),
                result(view + 1, round_number),
                trailing=[block(view + 2, round_number, EmptyPayload())],
            )
        )
        assert len(resolution.blocks) == 2
        assert len(resolution.trailing) == 1
    newest = outcomes.resolved_round
    assert outcomes.resolution(newest - RESOLUTIONS_KEPT) is None
    assert outcomes.resolution(newest - RESOLUTIONS_KEPT + 1) is not None
    assert not outcomes.is_decided(newest - 1)
