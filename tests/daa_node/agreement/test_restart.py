"""What a machine starts from after a restart: where the chain on disk ends, and its own votes."""

from collections.abc import AsyncGenerator, Sequence

import pytest

from daa_consensus.bft.messages import (
    Block,
    EmptyPayload,
    Payload,
    ResultPayload,
    SetPayload,
    genesis_block,
)
from daa_consensus.bft.safety import Record
from daa_consensus.bft.state import Restored
from daa_consensus.committee import Domain
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import ChainId, Digest, NodeId, ValidatorSetRoot, VertexId
from daa_node.agreement.recovery import StoredCertificate
from daa_node.agreement.recovery import restored as restored_of
from daa_node.errors import StorageFailed

CHAIN = ChainId(b"c" * 32)
ME = NodeId(b"m" * 32)
GENESIS = genesis_block(CHAIN, VertexId(b"g" * 32))
EPOCH_ROUNDS = 2


def on(parent: Block, epoch: int, view: int, payload: Payload) -> Block:
    height = payload.round if isinstance(payload, SetPayload) else parent.height
    return Block(CHAIN, epoch, view, height, parent.id, parent.view, payload)


def set_of(round_: int) -> SetPayload:
    return SetPayload(round_, (), (), "mean", 0, (), (), ())


def result_of(round_: int) -> ResultPayload:
    return ResultPayload(round_, VertexId(b"x" * 32), Digest(b"r" * 32))


SET_1 = on(GENESIS, 0, 1, set_of(1))
RESULT_1 = on(SET_1, 0, 2, result_of(1))
SET_2 = on(RESULT_1, 0, 3, set_of(2))
RESULT_2 = on(SET_2, 0, 4, result_of(2))  # ends the epoch


def domain(epoch: int) -> Domain:
    return Domain(CHAIN, epoch, ValidatorSetRoot(b"v" * 32))


def said(kind: Kind, block: Block | None, epoch: int, view: int, height: int = 0) -> Signed:
    value = None if block is None else block.id
    return Signed(Statement(domain(epoch), kind, view, height, value), ME, b"signature")


async def restored(
    path: Sequence[Block], words: Sequence[Signed] = (), blocks: Sequence[Block] = ()
) -> tuple[Restored, Block | None]:
    """From a chain on disk, oldest first, whose last block is final by its own certificate."""

    async def path_down() -> AsyncGenerator[Block, None]:
        for block in reversed(path):
            yield block

    newest = path[-1]
    statement = Statement(
        domain(newest.epoch), Kind.FINALIZE, newest.view, newest.height, newest.id
    )
    certificate = None if newest == GENESIS else Certificate(statement, ())
    kept = [
        StoredCertificate((0, 9), Certificate(said(Kind.EXEC, GENESIS, 0, 0).statement, ()), None)
    ]
    return await restored_of(path_down(), certificate, EPOCH_ROUNDS, kept, blocks, words)


async def test_a_round_that_is_decided_and_not_closed_is_open_whatever_lies_above_its_set() -> None:
    empty = on(SET_1, 0, 5, EmptyPayload())
    for path in ([GENESIS, SET_1], [GENESIS, SET_1, empty]):
        state, open_set = await restored(path)
        assert (state.tip, state.tip_open, open_set) == (path[-1], True, SET_1)


async def test_a_closed_round_leaves_nothing_open() -> None:
    for path in ([GENESIS], [GENESIS, SET_1, RESULT_1]):
        state, open_set = await restored(path)
        assert (state.tip, state.tip_open, open_set) == (path[-1], False, None)
        assert (state.proof is None) == (path == [GENESIS])


async def test_empty_blocks_above_an_epochs_last_one_are_its_proof_and_no_tip() -> None:
    tail = [on(RESULT_2, 0, 6, EmptyPayload())]
    tail.append(on(tail[0], 0, 7, EmptyPayload()))
    state, _ = await restored([GENESIS, SET_1, RESULT_1, SET_2, RESULT_2, *tail])
    assert state.tip == RESULT_2
    assert state.proof is not None
    assert state.proof[1] == tuple(tail)


async def test_an_empty_block_of_the_next_epoch_is_chain_and_no_proof_of_the_last_one() -> None:
    empty = on(RESULT_2, 1, 5, EmptyPayload())
    state, _ = await restored([GENESIS, SET_1, RESULT_1, SET_2, RESULT_2, empty])
    assert state.tip == empty
    assert state.proof is not None
    assert state.proof[1] == ()


async def test_a_chain_that_ends_before_its_genesis_is_a_damaged_disk() -> None:
    with pytest.raises(StorageFailed):
        await restored([on(SET_1, 0, 5, EmptyPayload())])


async def test_own_votes_are_those_of_the_newest_slot_with_the_block_that_was_proposed() -> None:
    proposed = on(RESULT_2, 1, 5, set_of(3))
    words = [
        said(Kind.NOTARIZE, RESULT_2, 0, 9),  # a later view, of an epoch before
        said(Kind.PROPOSAL, proposed, 1, 5),
        said(Kind.NULLIFY, None, 1, 5),
        said(Kind.EXEC, SET_1, 0, 0, height=1),
        said(Kind.EXEC, SET_2, 0, 0, height=2),
    ]
    state, _ = await restored([GENESIS], words, [RESULT_2, proposed])
    assert state.record == Record(1, 5, proposed=proposed.id, nullified=True)
    assert state.own_messages == tuple(words[1:3])
    assert state.own_block == proposed
    assert state.executed == 2
    assert state.kept == ()  # executions end no view
