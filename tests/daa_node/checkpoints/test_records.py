"""A record that comes from another member is taken if it is the one, and proves it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import pytest
import trio

from daa_consensus.bft.messages import (
    Block,
    ResultPayload,
    encode_block,
    encode_certificate,
)
from daa_consensus.votes import Certificate
from daa_dag.ids import Digest, VertexId
from daa_node.checkpoints.records import (
    answer_bytes_max,
    opened_block,
    opened_exec,
    opened_final,
    opened_vertex,
)
from daa_node.errors import PeerFault
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    KEYS,
    ChainMaker,
    certificate_of,
    make_chain,
)

ROUNDS = 4


@dataclass(frozen=True)
class Shown:
    """What proves the rounds of one chain, oldest first."""

    finals: Sequence[tuple[Block, Certificate]]
    results: Sequence[tuple[ResultPayload, Certificate]]


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    return make_chain(tmp_path_factory.mktemp("chain"), ROUNDS)


async def blocks_of(maker: ChainMaker) -> AsyncIterator[Block]:
    async for block_id in maker.chain.path.ids():
        block = await maker.chain.block(block_id)
        assert block is not None
        yield block


@pytest.fixture(scope="module")
def shown(maker: ChainMaker) -> Shown:
    finals, results = [], []

    async def run() -> None:
        await maker.chain.look_up()
        async for block in blocks_of(maker):
            final = await maker.chain.final_certificate(block.id)
            if final is not None:
                finals.append((block, final))
            if isinstance(block.payload, ResultPayload):
                execution = await maker.chain.exec_certificate(block.payload.vertex_id)
                assert execution is not None
                results.append((block.payload, execution))

    trio.run(run)
    assert min(len(finals), len(results)) >= 2
    return Shown(finals, results)


def test_good_ones_are_taken_and_fit_into_an_answer(maker: ChainMaker, shown: Shown) -> None:
    validators = FACTS.validators()
    most = answer_bytes_max(validators.limits)
    for block, final in shown.finals:
        payload = encode_certificate(final)
        assert opened_final(payload, block, validators) == final
        assert opened_block(encode_block(block), block.id, validators.limits) == block
        assert max(len(payload), len(encode_block(block))) <= most
    for result, execution in shown.results:
        epoch = (result.round - 1) // EPOCH_ROUNDS
        opened = opened_exec(encode_certificate(execution), result, epoch, validators)
        assert opened == execution
    newest = maker.newest
    assert opened_vertex(newest.encode(), newest.vertex_id) == newest


def test_another_one_is_refused(maker: ChainMaker, shown: Shown) -> None:
    validators = FACTS.validators()
    (block, _), (_, another) = shown.finals[:2]
    (result, _), (_, later) = shown.results[:2]
    with pytest.raises(PeerFault, match="bad_record"):
        opened_final(encode_certificate(another), block, validators)
    with pytest.raises(PeerFault, match="bad_record"):
        opened_exec(encode_certificate(later), result, 0, validators)
    with pytest.raises(PeerFault, match="bad_record"):
        opened_block(encode_block(block), shown.finals[1][0].id, validators.limits)
    with pytest.raises(PeerFault, match="bad_record"):
        opened_vertex(maker.newest.encode(), VertexId(bytes(32)))


def test_what_a_quorum_signed_of_something_else_is_refused(shown: Shown) -> None:
    """Another epoch's, another result's, or of another kind, by the same signers."""
    validators = FACTS.validators()
    (block, final), (result, execution) = shown.finals[0], shown.results[0]
    other_root = replace(result, result_root=Digest(bytes(32)))
    with pytest.raises(PeerFault, match="bad_record"):
        opened_exec(encode_certificate(execution), other_root, 0, validators)
    with pytest.raises(PeerFault, match="bad_record"):
        opened_exec(encode_certificate(execution), result, 1, validators)
    with pytest.raises(PeerFault, match="bad_record"):
        opened_exec(encode_certificate(final), result, 0, validators)
    with pytest.raises(PeerFault, match="bad_record"):
        opened_final(encode_certificate(execution), block, validators)
    twin = certificate_of(replace(final.statement, value=result.vertex_id), KEYS[:3])
    with pytest.raises(PeerFault, match="bad_record"):
        opened_final(encode_certificate(twin), block, validators)


def test_signatures_of_too_few_are_none(shown: Shown) -> None:
    validators = FACTS.validators()
    (block, final), (result, execution) = shown.finals[0], shown.results[0]
    few = encode_certificate(certificate_of(final.statement, KEYS[:2]))
    with pytest.raises(PeerFault, match="too_few|quorum|weight"):
        opened_final(few, block, validators)
    few = encode_certificate(certificate_of(execution.statement, KEYS[:2]))
    with pytest.raises(PeerFault):
        opened_exec(few, result, 0, validators)


@pytest.mark.parametrize("payload", [b"", b"x", b"\x90"])
def test_what_is_no_record_is_refused(shown: Shown, payload: bytes) -> None:
    validators = FACTS.validators()
    with pytest.raises(PeerFault):
        opened_final(payload, shown.finals[0][0], validators)
    with pytest.raises(PeerFault):
        opened_exec(payload, shown.results[0][0], 0, validators)
    with pytest.raises(PeerFault):
        opened_block(payload, shown.finals[0][0].id, validators.limits)
    with pytest.raises(PeerFault):
        opened_vertex(payload, VertexId(bytes(32)))
