"""An epoch's proof may lie in later views than the next epoch's first blocks: what is newest then.

genesis - set 1 - result 1 ------------------ empty       epoch 0: views 1, 2, and 6
                    \\- set 2 - result 2                   epoch 1: views 3, 4
"""

import gc
from typing import cast

import pytest

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    Block,
    EmptyPayload,
    Payload,
    ResultPayload,
    SetPayload,
    encode_block,
    encode_certificate,
    genesis_block,
)
from daa_consensus.committee import Domain
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.chunking import manifest_of
from daa_dag.ids import ChainId, Digest, ValidatorSetRoot, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.headers import judge_headers
from daa_node.checkpoints.layout import BLOCKS, CERTIFICATES, final_name
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.seams import BlobStore, StateRef
from tests.daa_node.agreement.memory_disk import Disk

CHAIN = ChainId(b"c" * 32)
ROOT = manifest_of(b"state", [5]).root
FIRST_VERTEX = genesis_vertex(StateRef(ROOT, ROOT), ValidatorSetRoot(b"v" * 32))
GENESIS = genesis_block(CHAIN, FIRST_VERTEX.vertex_id)


def on(parent: Block, epoch: int, view: int, payload: Payload) -> Block:
    height = payload.round if isinstance(payload, SetPayload) else parent.height
    return Block(CHAIN, epoch, view, height, parent.id, parent.view, payload)


def set_of(round_: int) -> SetPayload:
    return SetPayload(round_, (), (), "mean", 0, (), (), ())


def result_of(round_: int) -> ResultPayload:
    return ResultPayload(round_, VertexId(b"x" * 32), Digest(b"r" * 32))


SET_1 = on(GENESIS, 0, 1, set_of(1))
RESULT_1 = on(SET_1, 0, 2, result_of(1))
TAIL = on(RESULT_1, 0, 6, EmptyPayload())
SET_2 = on(RESULT_1, 1, 3, set_of(2))
RESULT_2 = on(SET_2, 1, 4, result_of(2))
EVERY_BLOCK = (GENESIS, SET_1, RESULT_1, TAIL, SET_2, RESULT_2)


def final(block: Block) -> Certificate:
    domain = Domain(CHAIN, block.epoch, ValidatorSetRoot(b"v" * 32))
    return Certificate(Statement(domain, Kind.FINALIZE, block.view, block.height, block.id), ())


def test_a_long_tail_conflicts_with_nothing_and_hides_no_round() -> None:
    blocks = {block.id: block for block in EVERY_BLOCK}
    judged = judge_headers(blocks, {TAIL.id, RESULT_2.id}, (), GENESIS, epoch_rounds=1)
    assert judged.problems == []
    assert [outcome.block for outcome in judged.outcomes] == [RESULT_1, RESULT_2]
    assert judged.final == set(blocks)


def test_a_long_tail_below_a_gap_parts_no_result_from_its_set() -> None:
    set_3 = on(RESULT_2, 2, 5, set_of(3))
    result_3 = on(set_3, 2, 7, result_of(3))  # the tail's view lies between the two
    blocks = {b.id: b for b in (*EVERY_BLOCK, set_3, result_3) if b != SET_2}
    judged = judge_headers(blocks, {TAIL.id, result_3.id}, {SET_2.id}, GENESIS, epoch_rounds=1)
    assert judged.problems == []  # but for the damaged block, which its reader has named
    assert [outcome.set_block for outcome in judged.outcomes] == [SET_1, None, set_3]


@pytest.mark.parametrize("reopened", [False, True])
async def test_the_newest_final_block_is_of_the_newest_epoch(reopened: bool) -> None:
    disk = Disk()
    store, work = cast(BlobStore, disk.chain), cast(BlobStore, disk.work)
    chain = ChainStore(store, work, Limits(1, 1))
    await chain.open(FIRST_VERTEX, GENESIS)
    for block in EVERY_BLOCK:
        await disk.chain.put_record(BLOCKS, block.id.hex(), encode_block(block))
    for block in (TAIL, RESULT_2):
        encoded = encode_certificate(final(block))
        await disk.chain.put_record(CERTIFICATES, final_name(block.id), encoded)
        chain.advance(block, final(block))
    if reopened:
        chain = ChainStore(store, work, Limits(1, 1))
        await chain.open(FIRST_VERTEX, GENESIS)
    assert chain.final_tip == (RESULT_2, final(RESULT_2))


@pytest.mark.parametrize("reopened", [False, True])
async def test_a_chain_of_many_epochs_holds_no_certificate_but_the_newest(reopened: bool) -> None:
    disk, newest, before = Disk(), GENESIS, certificates_alive()
    store, work = cast(BlobStore, disk.chain), cast(BlobStore, disk.work)
    chain = ChainStore(store, work, Limits(1, 1))
    await chain.open(FIRST_VERTEX, GENESIS)
    for epoch in range(20):  # a round each
        opened = on(newest, epoch, 2 * epoch + 1, set_of(epoch + 1))
        newest = on(opened, epoch, 2 * epoch + 2, result_of(epoch + 1))
        for block in (opened, newest):
            await disk.chain.put_record(BLOCKS, block.id.hex(), encode_block(block))
        encoded = encode_certificate(final(newest))
        await disk.chain.put_record(CERTIFICATES, final_name(newest.id), encoded)
        chain.advance(newest, final(newest))
    if reopened:
        chain = ChainStore(store, work, Limits(1, 1))
        await chain.open(FIRST_VERTEX, GENESIS)
    assert chain.final_tip[0] == newest
    assert certificates_alive() - before == 1


def certificates_alive() -> int:
    gc.collect()
    return sum(isinstance(each, Certificate) for each in gc.get_objects())
