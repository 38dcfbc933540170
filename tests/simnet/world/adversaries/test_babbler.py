"""Garbage on every protocol: each decoder refuses it by name, or takes it for what it is."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

import pytest
import trio
import trio.testing

from daa_consensus.bft.evidence import conflict, decode_evidence, encode_evidence
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    Block,
    OfferBody,
    ResultPayload,
    SetPayload,
    decode_block,
    decode_certificate,
    decode_signed,
    encode_block,
    encode_certificate,
    encode_signed,
)
from daa_consensus.committee import Domain
from daa_consensus.errors import BadMessage
from daa_consensus.operations import decode_operation
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.checkpoint import decode_vertex
from daa_dag.chunking import decode_manifest, manifest_of
from daa_dag.errors import DagError
from daa_dag.ids import (
    BlobRoot,
    BlockId,
    ChainId,
    Digest,
    NodeId,
    ValidatorSetRoot,
    VertexId,
)
from daa_node.agreement.messages import (
    Certified,
    Message,
    Position,
    Proposed,
    Stated,
    decode_message,
    encode_message,
)
from daa_node.checkpoints.pages import decode_page
from daa_node.errors import PeerFault
from daa_node.identity.record import decode_record
from daa_node.identity.validators import decode_member_keys
from daa_node.network.hello import decode_greeting
from daa_node.seams import ByteStream, PeerId
from daa_node.wire.blob_messages import decode_answer, decode_request
from daa_node.wire.framing import MessageReader, write_message
from simnet.world.adversaries.babbler import garbled, mangled
from simnet.world.adversaries.message_filter import Rewritten
from tests.daa_node.adapters.bulk_nodes import PairStream

LIMITS = Limits(4, 4)
TRIES = 400
NAMES = [NodeId(bytes([65 + i]) * 32) for i in range(4)]
DOMAIN = Domain(ChainId(b"c" * 32), 0, ValidatorSetRoot(b"s" * 32))
OFFER = OfferBody(
    1,
    NAMES[0],
    VertexId(b"v" * 32),
    BlobRoot(b"b" * 32),
    9,
    "int8",
    1,
    1,
    1,
    1,
    0,
    (Digest(b"d" * 32),),
)
SET = SetPayload(
    1, (OFFER,), (1,), "mean", 0, (b"evidence",), (b"operation",), (Digest(b"a" * 32),)
)
BLOCK = Block(DOMAIN.chain_id, 0, 2, 1, BlockId(b"p" * 32), 1, SET)
RESULT = replace(BLOCK, payload=ResultPayload(1, VertexId(b"v" * 32), Digest(b"r" * 32)))
VOTE = Signed(Statement(DOMAIN, Kind.NOTARIZE, 2, 1, BLOCK.id), NAMES[0], b"signature")
OTHER = replace(VOTE, statement=replace(VOTE.statement, value=b"o" * 32))
QUORUM = Certificate(VOTE.statement, tuple((name, b"signature") for name in NAMES[:3]))
AT = Position(0, 2, 1, 0, 700)
PROPOSAL = replace(VOTE, statement=replace(VOTE.statement, kind=Kind.PROPOSAL))


def evidence() -> bytes:
    found = conflict(VOTE, OTHER)
    assert found is not None
    return encode_evidence(found)


def message(payload: bytes) -> bytes:
    return encode_message(decode_message(payload, LIMITS))


Decode = Callable[[bytes], bytes | None]  # the bytes again, where there is an encoder
CODED: dict[str, tuple[bytes, Decode]] = {
    "stated": (encode_message(Message(AT, Stated(VOTE))), message),
    "proposed": (encode_message(Message(AT, Proposed(PROPOSAL, RESULT, QUORUM))), message),
    "certified": (encode_message(Message(AT, Certified(QUORUM, BLOCK))), message),
    "block": (encode_block(BLOCK), lambda p: encode_block(decode_block(p, LIMITS))),
    "signed": (encode_signed(VOTE), lambda p: encode_signed(decode_signed(p, LIMITS))),
    "certificate": (
        encode_certificate(QUORUM),
        lambda p: encode_certificate(decode_certificate(p, LIMITS)),
    ),
    "evidence": (evidence(), lambda p: encode_evidence(decode_evidence(p, LIMITS))),
    "manifest": (
        manifest_of(b"x" * 300, [100, 200]).encode(),
        lambda p: decode_manifest(p).encode(),
    ),
}
# Protocols whose garbage is made of another one's statements.
OTHERS: dict[str, Callable[[bytes], object]] = {
    "operation": decode_operation,
    "record": decode_record,
    "member keys": lambda payload: decode_member_keys(payload, NAMES[0]),
    "greeting": decode_greeting,
    "page": lambda payload: decode_page(payload, LIMITS),
    "vertex": decode_vertex,
    "blob request": decode_request,
    "blob answer": decode_answer,
}


@pytest.mark.parametrize("name", CODED)
def test_what_was_mangled_is_refused_by_name_or_is_another_whole_word(name: str) -> None:
    payload, again = CODED[name]
    assert again(payload) == payload
    chance, refused = random.Random(name), 0
    for _ in range(TRIES):
        bad = mangled(payload, chance)
        try:
            assert again(bad) == bad  # one encoding of each value: nothing slips in beside it
        except (BadMessage, PeerFault, DagError):
            refused += 1
    assert refused > TRIES / 2


@pytest.mark.parametrize("name", OTHERS)
def test_other_protocols_refuse_it_by_name(name: str) -> None:
    chance, decode = random.Random(name), OTHERS[name]
    shapes = [
        canonical.encode(["find", "updates", b"r" * 32, True]),
        canonical.encode([[], [], []]),
    ]
    shapes += [
        canonical.encode(["chunks", "updates", b"r" * 32, [0, 1]]),
        canonical.encode({"a": 1}),
    ]
    for payload in [*(coded for coded, _ in CODED.values()), *shapes]:
        for _ in range(TRIES // 10):
            for bad in (mangled(payload, chance), chance.randbytes(chance.randrange(200))):
                try:
                    decode(bad)
                except (BadMessage, PeerFault, DagError):
                    continue


async def test_some_of_what_a_babbling_daemon_asks_is_not_what_it_wanted_to_ask() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    other = PairStream(cast(trio.SocketStream, ours), PeerId("other"))
    said = Rewritten(other, partial(garbled, random.Random(5)))
    asked = canonical.encode(["checkpoints", b"x" * 32])
    for _ in range(40):
        await write_message(said, asked)
    await ours.aclose()
    reader = MessageReader(cast(ByteStream, theirs), 2 * len(asked))
    heard = [await reader.next() for _ in range(40)]
    assert await reader.next() is None
    assert 20 < heard.count(asked) < 40
