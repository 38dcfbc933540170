"""The largest honest message of each kind passes, and one byte more than its limit does not."""

from dataclasses import replace

import pytest

from daa_consensus.bft.evidence import contradiction, encode_evidence
from daa_consensus.bft.limits import SNAPSHOTS_MAX, Limits
from daa_consensus.bft.messages import (
    Block,
    EmptyPayload,
    OfferBody,
    ResultPayload,
    SetPayload,
    encode_block,
    encode_certificate,
    encode_signed,
)
from daa_consensus.bft.values import INT_MAX, WORD_BYTES_MAX
from daa_consensus.committee import VALIDATORS_MAX, Domain
from daa_consensus.enrolment import (
    PAIRS_A_SET_MAX,
    Enroll,
    Enrolment,
    TrainerRequest,
    Vouch,
    encode_enrolment,
)
from daa_consensus.operations import (
    KEYS_BYTES_MAX,
    OPERATION_BYTES_MAX,
    Operation,
    Request,
    Rotate,
    encode_operation,
)
from daa_consensus.votes import SIGNATURE_BYTES_MAX, Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import (
    BlobRoot,
    BlockId,
    ChainId,
    ContributionRoot,
    Digest,
    NodeId,
    ValidatorSetRoot,
    VertexId,
)
from daa_node.agreement.messages import (
    ACKS_SHOWN_EACH_MAX,
    RUN_BLOCKS_MAX,
    Asked,
    AskedOfRoll,
    Body,
    Certified,
    Greeting,
    Message,
    Missed,
    Position,
    Proposed,
    SentBlock,
    Shown,
    Stated,
    WantBlock,
    WantCertificates,
    WantStatements,
    decode_message,
    encode_message,
    kind_bytes_max,
    message_bytes_max,
)
from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys

X, SIGNATURE = b"x" * 32, b"s" * SIGNATURE_BYTES_MAX
CHAIN = ChainId(X)
DOMAIN = Domain(CHAIN, INT_MAX, ValidatorSetRoot(X))
AT = Position(*[INT_MAX] * 5)


def is_close(size_bytes: int, most: int) -> bool:
    """A limit has little to spare: statements of some kinds are shorter, a view may be 0."""
    return most - 200 - most // 50 <= size_bytes <= most


def name(number: int) -> bytes:
    return number.to_bytes(32)


def offer(author: int, round_: int) -> OfferBody:
    who, most = NodeId(name(author)), INT_MAX
    roots, codec = (Digest(X),) * SNAPSHOTS_MAX, "c" * WORD_BYTES_MAX
    return OfferBody(
        round_, who, VertexId(X), BlobRoot(X), most, codec, most, most, most, most, most, roots
    )


def signed(kind: Kind, value: canonical.Value, view: int = INT_MAX) -> Signed:
    return Signed(Statement(DOMAIN, kind, view, INT_MAX, value), NodeId(X), SIGNATURE)


def certificate(limits: Limits, kind: Kind, value: canonical.Value, view: int) -> Certificate:
    pairs = tuple((NodeId(name(i)), SIGNATURE) for i in range(limits.validators))
    return Certificate(Statement(DOMAIN, kind, view, INT_MAX, value), pairs)


def execution(limits: Limits) -> Certificate:
    return certificate(limits, Kind.EXEC, [X, X], 0)


def operation() -> bytes:
    names = NodeId(name(1)), NodeId(name(2))
    request = Request(Rotate(*names, b"k" * KEYS_BYTES_MAX), INT_MAX)
    return encode_operation(Operation(request, tuple((who, SIGNATURE) for who in names)))


def operations(limits: Limits) -> tuple[bytes, ...]:
    """As many as a set may carry: Rejoins, as after a night without power, and large requests."""
    rejoin = encode_signed(signed(Kind.REJOIN, X))
    held, left = [operation()] * 2, limits.changes_bytes_max - 2 * len(operation())
    pairs = [
        of_roll(Enroll(NodeId(X), b"k" * KEYS_BYTES_MAX)),
        of_roll(Vouch(NodeId(X), Digest(X))),
    ]
    rejoins = [rejoin] * min(left // len(rejoin), limits.validators - 1)
    return (*held, *rejoins, *map(encode_enrolment, pairs * PAIRS_A_SET_MAX))


def of_roll(action: Enroll | Vouch) -> Enrolment:
    return Enrolment(TrainerRequest(action, INT_MAX), SIGNATURE)


def evidence(limits: Limits) -> bytes:
    found = contradiction(signed(Kind.EXEC, [X, b"y" * 32], 0), execution(limits))
    assert found is not None
    return encode_evidence(found)


def block(payload: SetPayload | ResultPayload | EmptyPayload) -> Block:
    return Block(CHAIN, INT_MAX, INT_MAX, INT_MAX, BlockId(X), INT_MAX - 1, payload)


def set_block(limits: Limits) -> Block:
    """As large as an honest leader makes one."""
    n, m = limits.validators, limits.contributors
    return block(
        SetPayload(
            INT_MAX,
            tuple(offer(author, INT_MAX) for author in range(m)),
            (INT_MAX,) * m,
            "r" * WORD_BYTES_MAX,
            INT_MAX,
            (evidence(limits),),
            operations(limits),
            tuple(Digest(name(i)) for i in range(n)),
        )
    )


def bodies(limits: Limits) -> dict[str, Body]:
    """The largest of each kind."""
    n, m = limits.validators, limits.contributors
    roots = tuple(ContributionRoot(name(i)) for i in range(m))
    ack = signed(Kind.ACK, list(roots), 0)
    words = [ack, signed(Kind.OFFER, offer(1, INT_MAX).as_value(), 0)]
    said = max(words, key=lambda word: len(encode_signed(word)))
    proposal, large = signed(Kind.PROPOSAL, X), set_block(limits)
    result = Proposed(proposal, block(ResultPayload(INT_MAX, VertexId(X), Digest(X))), None)
    closing = replace(result, exec_certificate=execution(limits))
    empty = block(EmptyPayload())
    pair = NodeId(name(1)), NodeId(name(2))
    request = Request(Rotate(*pair, b"k" * KEYS_BYTES_MAX), INT_MAX)
    return {
        "stated": Stated(said),
        "proposed": max(
            (Proposed(proposal, large, None), closing),
            key=lambda body: len(encode_message(Message(AT, body))),
        ),
        "certified": Certified(certificate(limits, Kind.NOTARIZE, X, INT_MAX), large),
        "want_block": WantBlock(BlockId(X)),
        "want_certificates": WantCertificates(INT_MAX, INT_MAX, INT_MAX),
        "want_statements": WantStatements(INT_MAX, roots),
        "shown": Shown(
            INT_MAX,
            tuple(offer(author, INT_MAX) for author in range(m)),
            (ack,) * (ACKS_SHOWN_EACH_MAX * n),
        ),
        "missed": Missed(INT_MAX, roots),
        "block": SentBlock(large, (empty,) * RUN_BLOCKS_MAX),
        "asked": Asked(Operation(request, tuple((who, SIGNATURE) for who in pair))),
        "asked_of_roll": AskedOfRoll(of_roll(Enroll(NodeId(X), b"k" * KEYS_BYTES_MAX))),
        "greeting": Greeting(),
    }


@pytest.mark.parametrize("n", [4, 100])
def test_the_largest_message_of_each_kind_passes_and_a_larger_one_does_not(n: int) -> None:
    limits = Limits(n, n)
    largest = bodies(limits)
    assert largest.keys() == kind_bytes_max(limits).keys()
    for word, body in largest.items():
        most, payload = kind_bytes_max(limits)[word], encode_message(Message(AT, body))
        assert is_close(len(payload), most), word
        if n < 100 or len(payload) < 2**20:
            assert decode_message(payload, limits).body == body
        *position, encoded = canonical.decode(payload, most)
        parts = canonical.decode(encoded, most)
        for extra in (most + 1 - len(payload), most + 2**12):
            longer = canonical.encode([*position, canonical.encode([*parts, bytes(extra)])])
            assert len(longer) > most
            with pytest.raises(PeerFault, match="malformed"):
                decode_message(longer, limits)
    with pytest.raises(PeerFault, match=f"at most {message_bytes_max(limits)}"):
        decode_message(bytes(message_bytes_max(limits) + 1), limits)


@pytest.mark.parametrize("n", [4, 100])
def test_what_messages_are_made_of_is_as_large_as_its_limit(n: int) -> None:
    limits = Limits(n, n)
    ack = signed(Kind.ACK, [name(i) for i in range(n)], 0)
    said = signed(Kind.OFFER, offer(1, INT_MAX).as_value(), 0)
    sizes = {
        max(len(encode_signed(ack)), len(encode_signed(said))): limits.signed_bytes_max,
        len(encode_certificate(execution(limits))): limits.certificate_bytes_max,
        len(evidence(limits)): limits.evidence_bytes_max,
        len(operation()): OPERATION_BYTES_MAX,
        len(encode_block(set_block(limits))): limits.block_bytes_max,
    }
    for size, most in sizes.items():
        assert is_close(size, most)


def test_keys_of_a_member_are_as_large_as_a_request_may_bring() -> None:
    keys = NodeKeys.from_seed(b"any")
    brought = MemberKeys.of(keys).encode()
    assert len(brought) == KEYS_BYTES_MAX


@pytest.mark.parametrize("n", [4, VALIDATORS_MAX])
@pytest.mark.parametrize("kind", [Kind.NOTARIZE, Kind.ACK])
def test_a_body_that_is_said_again_is_read_once(n: int, kind: Kind) -> None:
    value: canonical.Value = [name(author) for author in range(n)] if kind is Kind.ACK else X
    limits, body = Limits(n, n), Stated(signed(kind, value, 0 if kind is Kind.ACK else INT_MAX))
    later = replace(AT, view=AT.view - 1)
    first, again = (decode_message(encode_message(Message(at, body)), limits) for at in (AT, later))
    assert (first.position, again.position) == (AT, later)
    assert first.body is again.body
    grown = decode_message(encode_message(Message(AT, body)), Limits(n + 1, n))
    assert grown.body is not first.body  # a larger committee may take what a smaller one refuses
