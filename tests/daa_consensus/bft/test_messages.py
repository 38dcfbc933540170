"""One form for everything on the wire, bounded, and whatever else is refused as BadMessage."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daa_consensus.bft.limits import SNAPSHOTS_MAX, Limits
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    OfferBody,
    Payload,
    ResultPayload,
    SetPayload,
    decode_block,
    decode_certificate,
    decode_signed,
    encode_block,
    encode_certificate,
    encode_signed,
    genesis_block,
)
from daa_consensus.bft.values import WORD_BYTES_MAX
from daa_consensus.errors import BadMessage
from daa_consensus.operations import OPERATION_BYTES_MAX
from daa_consensus.votes import SIGNATURE_BYTES_MAX, Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import BlobRoot, BlockId, ChainId, Digest, NodeId, VertexId
from tests.daa_consensus.bft.simulation import committee_of, domain_of, node_id

LIMITS = Limits(4, 4)
DOMAIN = domain_of(committee_of([1] * 4))
X, Y = b"x" * 32, b"y" * 32
CHAIN = ChainId(b"c" * 32)


def offer(author: int, round_: int = 3, snapshots: int = 2) -> OfferBody:
    roots = tuple(Digest(bytes([i]) * 32) for i in range(snapshots))
    who, top = NodeId(author.to_bytes(32)), 2**63 - 1
    return OfferBody(
        round_, who, VertexId(X), BlobRoot(Y), top, "int8", top, top, top, top, top, roots
    )


def full_set(limits: Limits) -> SetPayload:
    """As large as a set of that many can be."""
    n, m = limits.validators, limits.contributors
    return SetPayload(
        3,
        tuple(offer(author, snapshots=SNAPSHOTS_MAX) for author in range(m)),
        (2**63 - 1,) * m,
        "r" * WORD_BYTES_MAX,
        m,
        (b"e" * (limits.evidence_total_bytes_max // n),) * n,
        (b"o" * (limits.operations_total_bytes_max // limits.operations_max),)
        * limits.operations_max,
        tuple(Digest(i.to_bytes(32)) for i in range(n)),
    )


def block(payload: Payload, view: int = 9) -> Block:
    return Block(CHAIN, 1, view, 3, BlockId(Y), view - 2, payload)


SOME_SET = SetPayload(
    3, (offer(1), offer(2)), (5, 6), "mean", 0, (b"evidence",), (), (Digest(X), Digest(Y))
)
PAYLOADS: list[Payload] = [
    SOME_SET,
    ResultPayload(3, VertexId(X), Digest(Y)),
    AbortPayload(3),
    EmptyPayload(),
]
STATEMENTS = [
    Statement(DOMAIN, Kind.PROPOSAL, 5, 3, X),
    Statement(DOMAIN, Kind.NOTARIZE, 5, 3, X),
    Statement(DOMAIN, Kind.NULLIFY, 5, 0, None),
    Statement(DOMAIN, Kind.FINALIZE, 5, 3, X),
    Statement(DOMAIN, Kind.OFFER, 0, 3, offer(1).as_value()),
    Statement(DOMAIN, Kind.ACK, 0, 3, [X, Y]),
    Statement(DOMAIN, Kind.EXEC, 0, 3, [X, Y]),
    Statement(DOMAIN, Kind.REJOIN, 0, 0, X),
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda p: type(p).__name__)
def test_a_block_comes_back_as_it_was_with_its_id(payload: Payload) -> None:
    sent = block(payload)
    got = decode_block(encode_block(sent), LIMITS)
    assert got == sent
    assert got.id == sent.id


def test_genesis_comes_back_and_cannot_be_dressed_up() -> None:
    genesis = genesis_block(CHAIN, VertexId(X))
    assert decode_block(encode_block(genesis), LIMITS) == genesis
    for wrong in (
        replace(genesis, view=1),
        replace(genesis, epoch=1),
        replace(genesis, height=1),
        replace(genesis, parent_id=BlockId(X)),
    ):
        with pytest.raises(BadMessage):
            decode_block(encode_block(wrong), LIMITS)


def test_block_ids_cover_every_field() -> None:
    one = block(SOME_SET)
    others = [
        replace(one, chain_id=ChainId(X)),
        replace(one, epoch=2),
        replace(one, view=10),
        replace(one, height=4),
        replace(one, parent_id=BlockId(X)),
        replace(one, parent_view=6),
        replace(one, payload=replace(SOME_SET, weights=(5, 7))),
        replace(one, payload=EmptyPayload()),
    ]
    assert len({b.id for b in [one, *others]}) == 9


@pytest.mark.parametrize(
    "wrong",
    [
        replace(SOME_SET, offers=(offer(2), offer(1))),
        replace(SOME_SET, offers=(offer(1), offer(1))),
        replace(SOME_SET, offers=(offer(1), offer(2, round_=4))),
        replace(SOME_SET, weights=(5,)),
        replace(SOME_SET, weights=(5, -1)),
        replace(SOME_SET, weights=(5, 2**63)),
        replace(SOME_SET, rule=""),
        replace(SOME_SET, rule="m" * (WORD_BYTES_MAX + 1)),
        replace(SOME_SET, ack_ids=(Digest(Y), Digest(X))),
        replace(SOME_SET, ack_ids=(Digest(X), Digest(X))),
        replace(SOME_SET, ack_ids=(Digest(b"short"),)),
        replace(SOME_SET, evidence=(b"e",) * 5),
        replace(SOME_SET, operations=(b"o" * (OPERATION_BYTES_MAX + 1),)),
        replace(SOME_SET, evidence=(b"e" * LIMITS.evidence_total_bytes_max, b"e")),
        replace(SOME_SET, operations=(b"o" * OPERATION_BYTES_MAX,) * 12),
        replace(SOME_SET, offers=(offer(1), offer(2, snapshots=SNAPSHOTS_MAX + 1))),
        replace(SOME_SET, f_agg=-1),
    ],
)
def test_a_set_out_of_order_or_out_of_bounds_is_refused(wrong: SetPayload) -> None:
    with pytest.raises(BadMessage):
        decode_block(encode_block(block(wrong)), LIMITS)


def test_a_block_stands_above_its_parent() -> None:
    for parent_view in (9, 10):
        with pytest.raises(BadMessage):
            decode_block(encode_block(replace(block(SOME_SET), parent_view=parent_view)), LIMITS)


def test_limits_fit_the_largest_set_and_certificate_of_four_and_of_a_hundred() -> None:
    for n in (1, 4, 100):
        limits = Limits(n, n)
        sent = block(full_set(limits))
        encoded = encode_block(sent)
        assert len(encoded) <= limits.block_bytes_max
        if n < 100:
            assert decode_block(encoded, limits) == sent
        signature = b"s" * SIGNATURE_BYTES_MAX
        pairs = tuple((NodeId(i.to_bytes(32)), signature) for i in range(n))
        certificate = Certificate(replace(STATEMENTS[1], view=2**62), pairs)
        assert decode_certificate(encode_certificate(certificate), limits) == certificate
        acks = [i.to_bytes(32) for i in range(n)]
        ack = Signed(replace(STATEMENTS[5], value=acks), node_id(0), signature)
        body = replace(offer(1, snapshots=SNAPSHOTS_MAX), codec="c" * WORD_BYTES_MAX).as_value()
        said = Signed(replace(STATEMENTS[4], value=body), node_id(0), signature)
        for signed in (ack, said):
            assert decode_signed(encode_signed(signed), limits) == signed
        with pytest.raises(BadMessage, match=str(limits.signed_bytes_max)):
            decode_signed(bytes(limits.signed_bytes_max + 1), limits)


def test_more_contributors_or_signers_than_there_are_is_refused() -> None:
    small = Limits(3, 1)
    with pytest.raises(BadMessage):
        decode_block(encode_block(block(replace(SOME_SET, evidence=()))), small)
    certificate = Certificate(STATEMENTS[1], tuple((node_id(i), b"s") for i in range(4)))
    with pytest.raises(BadMessage):
        decode_certificate(encode_certificate(certificate), small)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: str(s.kind))
def test_signed_words_come_back_as_they_were(statement: Statement) -> None:
    signed = Signed(statement, node_id(2), b"signature")
    got = decode_signed(encode_signed(signed), LIMITS)
    assert got == signed
    assert got.statement.sign_bytes() == statement.sign_bytes()


@pytest.mark.parametrize(
    "wrong",
    [
        replace(STATEMENTS[1], value=b"short"),
        replace(STATEMENTS[1], value=None),
        replace(STATEMENTS[1], view=0),
        replace(STATEMENTS[1], height=-1),
        replace(STATEMENTS[2], height=1),
        replace(STATEMENTS[2], value=X),
        replace(STATEMENTS[4], view=1),
        replace(STATEMENTS[4], value=[1, 2, 3]),
        replace(STATEMENTS[5], value=[Y, X]),
        replace(STATEMENTS[5], value=[X] * 2),
        replace(STATEMENTS[5], value=[bytes([i]) * 32 for i in range(5)]),
        replace(STATEMENTS[6], value=[X]),
        replace(STATEMENTS[6], value=[X, Y, Y]),
        replace(STATEMENTS[6], value=[X, 7]),
        replace(STATEMENTS[6], view=9),
        replace(STATEMENTS[7], height=2),
    ],
)
def test_words_of_a_wrong_shape_are_refused(wrong: Statement) -> None:
    with pytest.raises(BadMessage):
        decode_signed(encode_signed(Signed(wrong, node_id(0), b"s")), LIMITS)


def test_signers_of_a_certificate_are_sorted_and_distinct() -> None:
    for order in [(1, 0, 2), (0, 0, 1)]:
        pairs = tuple((node_id(i), b"s") for i in order)
        with pytest.raises(BadMessage):
            decode_certificate(encode_certificate(Certificate(STATEMENTS[1], pairs)), LIMITS)


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (0, b"short"),
        (0, None),
        (1, -1),
        (1, True),
        (1, "3"),
        (2, b""),
        (3, "shout"),
        (3, 5),
        (3, ["notarize"]),
        (4, 2**63),
        (4, True),
        (7, b"x" * 33),
        (8, b""),
        (8, b"s" * 3_310),
    ],
)
def test_a_field_of_a_wrong_shape_is_refused(at: int, wrong: canonical.Value) -> None:
    fields = canonical.decode(encode_signed(Signed(STATEMENTS[1], node_id(0), b"s")), 10_000)
    fields[at] = wrong
    with pytest.raises(BadMessage):
        decode_signed(canonical.encode(fields), LIMITS)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**64 - 1) | st.binary(max_size=40) | st.text(),
    lambda inner: st.lists(inner, max_size=9),
    max_leaves=20,
)


@given(st.binary(max_size=200) | VALUES.map(canonical.encode))
def test_arbitrary_bytes_are_refused_and_crash_nothing(payload: bytes) -> None:
    for decode in (decode_block, decode_signed, decode_certificate):
        with pytest.raises(BadMessage):
            decode(payload, LIMITS)


def test_a_block_with_any_one_byte_changed_is_another_or_refused() -> None:
    encoded = encode_block(block(SOME_SET))
    rng = random.Random(1)
    for at in range(len(encoded)):
        changed = bytearray(encoded)
        changed[at] ^= 1 << rng.randrange(8)
        try:
            got = decode_block(bytes(changed), LIMITS)
        except BadMessage:
            continue
        assert got.id != block(SOME_SET).id
        assert encode_block(got) == bytes(changed)


def test_words_and_certificates_with_spoiled_bytes_are_others_or_refused() -> None:
    signed = Signed(STATEMENTS[1], node_id(0), b"signature")
    certificate = Certificate(STATEMENTS[1], tuple((node_id(i), b"s") for i in range(3)))
    rng = random.Random(2)
    refused = accepted = 0

    def spoiled(encoded: bytes) -> bytes:
        changed = bytearray(encoded)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed[: rng.choice([len(changed), rng.randrange(len(changed))])])

    for _ in range(600):
        for encoded in (encode_signed(signed), encode_certificate(certificate)):
            payload = spoiled(encoded)
            try:
                if encoded == encode_signed(signed):
                    again = encode_signed(decode_signed(payload, LIMITS))
                else:
                    again = encode_certificate(decode_certificate(payload, LIMITS))
            except BadMessage:
                refused += 1
            else:
                accepted += 1
                assert again == payload
    # What only touches the bytes of a digest or a signature is the verifier's to refuse.
    assert refused > 600
    assert accepted > 20
