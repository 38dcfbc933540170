"""The hybrid handshake and its frames: two machines back to back over an imaginary wire."""

import os
from dataclasses import replace

import pytest

from daa_dag import canonical
from daa_dag.ids import ChainId
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.frames import (
    AES_SUITE,
    CHACHA_SUITE,
    DATA,
    END,
    FRAMES_PER_KEY_MAX,
    HEADER_BYTES,
    TAG_BYTES,
    read_header,
)
from daa_node.identity.keys import NodeKeys
from daa_node.identity.session import (
    CONTEXT,
    ENDPOINTS_MAX,
    MESSAGE_BYTES_MAX,
    Endpoint,
    Initiator,
    Local,
    Remote,
    Responder,
    SessionKeys,
    Token,
    refusal,
)
from daa_node.identity.session_tokens import (
    TOKEN_LIFETIME_S,
    TOKENS_MAX,
    TOKENS_PER_PEER_MAX,
    TokenTable,
)
from daa_node.seams import PeerId

ALICE, BOB, MALLORY = (NodeKeys.from_seed(name) for name in (b"alice", b"bob", b"mallory"))
CHAIN = ChainId(b"c" * 32)
ENDPOINTS = (Endpoint("127.0.0.1", 4001), Endpoint("::1", 4001))


def remote(keys: NodeKeys) -> Remote:
    return Remote(keys.node_id, keys.peer_id)


def initiator(local: Local | None = None, at: NodeKeys = BOB) -> Initiator:
    return Initiator(local or Local(CHAIN, ALICE), remote(at), os.urandom(32))


def responder(local: Local | None = None, of: NodeKeys = ALICE) -> Responder:
    return Responder(local or Local(CHAIN, BOB), remote(of), os.urandom(32), ENDPOINTS)


def shake(left: Initiator, right: Responder) -> tuple[SessionKeys, SessionKeys]:
    confirmation = left.on_answer(right.on_opening(left.opening()))
    ready, theirs = right.on_confirmation(confirmation)
    return left.on_ready(ready), theirs


def altered(message: bytes, index: int, value: canonical.Value) -> bytes:
    fields = canonical.decode(message, MESSAGE_BYTES_MAX)
    fields[index] = value
    return canonical.encode(fields)


def flipped(payload: bytes) -> bytes:
    return bytes([payload[0] ^ 1]) + payload[1:]


def test_both_sides_derive_the_same_keys_and_each_sends_with_its_own() -> None:
    mine, theirs = shake(initiator(), responder())
    assert mine.send_key == theirs.receive_key != mine.receive_key == theirs.send_key
    assert (mine.token, mine.dial_key) == (theirs.token, theirs.dial_key)
    assert mine.remote_node_id == BOB.node_id
    assert theirs.remote_node_id == ALICE.node_id
    assert mine.suite == theirs.suite == AES_SUITE
    assert mine.endpoints == ENDPOINTS
    assert mine.dial_proof() != mine.welcome_proof()


def test_every_session_has_fresh_keys_and_a_fresh_token() -> None:
    first, second = shake(initiator(), responder())[0], shake(initiator(), responder())[0]
    assert len({first.send_key, first.receive_key, second.send_key, second.receive_key}) == 4
    assert first.token != second.token


def test_a_responder_without_our_first_suite_takes_the_second() -> None:
    local = Local(CHAIN, BOB, (CHACHA_SUITE,))
    mine, theirs = shake(initiator(), responder(local))
    assert mine.suite == theirs.suite == CHACHA_SUITE
    payload = carry(mine, theirs, b"words")
    assert payload == b"words"


@pytest.mark.parametrize("index", range(1, 9))
def test_an_answer_altered_anywhere_is_refused(index: int) -> None:
    left, right = initiator(), responder()
    answer = right.on_opening(left.opening())
    fields = canonical.decode(answer, MESSAGE_BYTES_MAX)
    match fields[index]:
        case bytes() as old:
            other: canonical.Value = flipped(old)
        case str() as old if old == AES_SUITE:
            other = CHACHA_SUITE
        case str() as old:
            other = MALLORY.peer_id
        case _:
            other = [["127.0.0.2", 4001]]
    with pytest.raises(PeerFault):
        left.on_answer(altered(answer, index, other))


@pytest.mark.parametrize("index", [4, 5, 6, 7])
def test_an_opening_altered_on_the_way_ends_the_session(index: int) -> None:
    """Nonce, suites offered, X25519 and ML-KEM key: the responder's signature no longer fits."""
    left, right = initiator(), responder()
    opening = left.opening()
    fields = canonical.decode(opening, MESSAGE_BYTES_MAX)
    other: canonical.Value = [CHACHA_SUITE] if index == 5 else flipped(fields[index])
    with pytest.raises(PeerFault):
        left.on_answer(right.on_opening(altered(opening, index, other)))


def test_a_downgrade_by_the_one_in_the_middle_is_noticed() -> None:
    left, right = initiator(), responder()
    weaker = altered(left.opening(), 5, [CHACHA_SUITE])
    with pytest.raises(PeerFault, match="bad-signature"):
        left.on_answer(right.on_opening(weaker))


def test_a_suite_that_was_not_offered_is_a_downgrade() -> None:
    left = initiator(Local(CHAIN, ALICE, (AES_SUITE,)))
    answer = responder().on_opening(left.opening())
    with pytest.raises(PeerFault, match="downgrade"):
        left.on_answer(altered(answer, 4, "x25519-aes256gcm"))


def test_there_is_no_weaker_suite_to_agree_on() -> None:
    opening = altered(initiator().opening(), 5, ["x25519-aes256gcm", "null"])
    with pytest.raises(PeerFault, match="no-common-suite"):
        responder().on_opening(opening)


def test_a_confirmation_under_another_key_is_refused() -> None:
    left, right = initiator(), responder()
    left.on_answer(right.on_opening(left.opening()))
    forged = MALLORY.sign(b"anything", CONTEXT)
    with pytest.raises(PeerFault, match="bad-signature"):
        right.on_confirmation(canonical.encode(["confirmation", forged]))


def test_a_responders_signature_reflected_as_a_confirmation_is_refused() -> None:
    """A node that shakes hands with itself, or is made to, learns nothing: roles are signed."""
    left = Initiator(Local(CHAIN, ALICE), remote(ALICE), os.urandom(32))
    right = responder(Local(CHAIN, ALICE))
    answer = right.on_opening(left.opening())
    signature = canonical.decode(answer, MESSAGE_BYTES_MAX)[8]
    with pytest.raises(PeerFault, match="bad-signature"):
        right.on_confirmation(canonical.encode(["confirmation", signature]))


def test_a_confirmation_of_another_session_is_refused() -> None:
    left, right, later = initiator(), responder(), responder()
    confirmation = left.on_answer(right.on_opening(left.opening()))
    later.on_opening(initiator().opening())
    with pytest.raises(PeerFault, match="bad-signature"):
        later.on_confirmation(confirmation)


def test_somebody_else_at_the_streams_other_end_is_refused() -> None:
    stranger = Local(CHAIN, MALLORY)
    with pytest.raises(PeerFault, match="identity-mismatch"):
        responder().on_opening(initiator(stranger).opening())
    left = initiator()
    with pytest.raises(PeerFault, match="identity-mismatch"):
        left.on_answer(responder(stranger).on_opening(left.opening()))


@pytest.mark.parametrize(
    "wrong", [Remote(BOB.node_id, MALLORY.peer_id), Remote(MALLORY.node_id, BOB.peer_id)]
)
def test_node_id_and_peer_id_must_both_be_the_expected_ones(wrong: Remote) -> None:
    left = Initiator(Local(CHAIN, ALICE), wrong, os.urandom(32))
    with pytest.raises(PeerFault, match="identity-mismatch"):
        left.on_answer(responder().on_opening(left.opening()))


def test_a_key_in_anothers_name_does_not_pass_for_it() -> None:
    """Mallory opens with Alice's key and PeerId, which everybody knows, and cannot confirm."""
    right = responder()
    opening = altered(initiator(Local(CHAIN, MALLORY)).opening(), 2, ALICE.ml_dsa_public_key)
    right.on_opening(altered(opening, 3, ALICE.peer_id))
    with pytest.raises(PeerFault, match="bad-signature"):
        right.on_confirmation(canonical.encode(["confirmation", bytes(3309)]))


def test_a_session_belongs_to_one_chain() -> None:
    with pytest.raises(PeerFault, match="foreign-chain"):
        responder().on_opening(initiator(Local(ChainId(b"d" * 32), ALICE)).opening())


def test_a_peer_without_the_keys_cannot_say_ready() -> None:
    left, right = initiator(), responder()
    left.on_answer(right.on_opening(left.opening()))
    with pytest.raises(PeerFault, match="bad-proof"):
        left.on_ready(canonical.encode(["ready", bytes(32)]))


def test_an_x25519_key_of_low_order_is_refused() -> None:
    with pytest.raises(PeerFault, match="low order"):
        responder().on_opening(altered(initiator().opening(), 6, bytes(32)))


def test_a_refusal_says_why() -> None:
    with pytest.raises(Unavailable, match="busy"):
        initiator().on_answer(refusal("busy"))


@pytest.mark.parametrize("seed", range(200))
def test_mangled_messages_are_faults_and_never_crashes(seed: int) -> None:
    import random

    rng = random.Random(seed)
    left, right = initiator(), responder()
    answer = right.on_opening(left.opening())
    for message, take in ((left.opening(), responder().on_opening), (answer, left.on_answer)):
        mangled = bytearray(message)
        for _ in range(rng.randrange(1, 4)):
            mangled[rng.randrange(len(mangled) if rng.random() < 0.5 else 60)] = rng.randrange(256)
        cut = bytes(mangled[: rng.randrange(len(mangled))] if rng.random() < 0.3 else mangled)
        if cut != message:
            try:
                take(cut)
            except (PeerFault, Unavailable):
                pass
            else:  # a responder answers any opening that parses; the confirmation then fails
                assert take != left.on_answer, f"seed {seed}"


def test_more_endpoints_or_odd_ones_are_refused() -> None:
    for endpoints in ([["h", 1]] * (ENDPOINTS_MAX + 1), [["h", 0]], [["h", True]], [["", 1]], 7):
        left = initiator()
        answer = responder().on_opening(left.opening())
        with pytest.raises(PeerFault, match="malformed"):
            left.on_answer(altered(answer, 7, endpoints))  # type: ignore[arg-type]


# Tokens


def table_with(count: int = 1) -> tuple[TokenTable, list[SessionKeys]]:
    mine, _ = shake(initiator(), responder())
    table = TokenTable()
    sessions = [replace(mine, token=Token(mine.token[:-1] + bytes([i]))) for i in range(count)]
    for keys in sessions:
        table.issue(keys, ALICE.peer_id, 0.0)
    return table, sessions


def test_a_token_is_good_once() -> None:
    table, (keys,) = table_with()
    assert table.redeem(keys.token, keys.dial_proof(), 1.0) == (keys, ALICE.peer_id)
    assert table.redeem(keys.token, keys.dial_proof(), 1.0) is None
    assert not table.withdraw(keys.token)


def test_a_token_expires_after_thirty_seconds() -> None:
    table, (keys,) = table_with()
    assert table.redeem(keys.token, keys.dial_proof(), TOKEN_LIFETIME_S) is None
    assert len(table) == 0
    table, (keys,) = table_with()
    assert table.redeem(keys.token, keys.dial_proof(), TOKEN_LIFETIME_S - 0.1) is not None


def test_what_has_expired_takes_no_place_in_the_table() -> None:
    table, sessions = table_with(TOKENS_PER_PEER_MAX)
    table.issue(sessions[0], ALICE.peer_id, TOKEN_LIFETIME_S)
    assert len(table) == 1


def test_all_peers_together_cannot_fill_the_table() -> None:
    table, (keys,) = table_with()
    for number in range(1, TOKENS_MAX):
        token = Token(number.to_bytes(len(keys.token)))
        table.issue(replace(keys, token=token), PeerId(f"peer {number}"), 1.0)
    with pytest.raises(Unavailable):
        table.issue(replace(keys, token=Token(bytes(len(keys.token)))), BOB.peer_id, 1.0)
    assert len(table) == TOKENS_MAX


def test_a_token_without_its_proof_opens_nothing_and_burns_nothing() -> None:
    table, (keys,) = table_with()
    assert table.redeem(keys.token, keys.welcome_proof(), 1.0) is None
    assert table.redeem(keys.token, b"", 1.0) is None
    assert table.redeem(b"", b"", 1.0) is None
    assert table.redeem(keys.token, keys.dial_proof(), 1.0) is not None


def test_a_withdrawn_token_opens_nothing() -> None:
    table, (keys,) = table_with()
    assert table.withdraw(keys.token)
    assert table.redeem(keys.token, keys.dial_proof(), 1.0) is None


def test_one_peer_cannot_fill_the_table() -> None:
    table, sessions = table_with(TOKENS_PER_PEER_MAX)
    with pytest.raises(Unavailable):
        table.issue(shake(initiator(), responder())[0], ALICE.peer_id, 0.0)
    table.issue(shake(initiator(), responder())[0], BOB.peer_id, 0.0)
    assert len(table) == TOKENS_PER_PEER_MAX + 1
    assert len(sessions) == TOKENS_PER_PEER_MAX


# Frames


def sealed(keys: SessionKeys, payload: bytes, kind: int = DATA, skip: int = 0) -> bytes:
    sealer = keys.sealer()
    target = memoryview(bytearray(HEADER_BYTES + len(payload) + TAG_BYTES))
    for _ in range(skip + 1):
        sealer.seal_into(payload, kind, target)
    return bytes(target)


def opened(keys: SessionKeys, frame: bytes) -> bytes:
    read_header(frame[:HEADER_BYTES], 1000)
    return keys.opener().open(frame[:HEADER_BYTES], memoryview(frame)[HEADER_BYTES:])


def carry(mine: SessionKeys, theirs: SessionKeys, payload: bytes) -> bytes:
    return opened(theirs, sealed(mine, payload))


def test_a_frame_arrives() -> None:
    mine, theirs = shake(initiator(), responder())
    assert carry(mine, theirs, b"words") == b"words"
    assert carry(theirs, mine, b"") == b""


@pytest.mark.parametrize("at", [4, HEADER_BYTES, -1])
def test_a_frame_changed_in_kind_text_or_tag_does_not_open(at: int) -> None:
    mine, theirs = shake(initiator(), responder())
    frame = bytearray(sealed(mine, b""))
    frame[at] ^= 1
    with pytest.raises(PeerFault):
        opened(theirs, bytes(frame))


def test_a_frame_sent_back_to_its_sender_does_not_open() -> None:
    mine, _ = shake(initiator(), responder())
    with pytest.raises(PeerFault, match="bad-frame"):
        opened(mine, sealed(mine, b"words"))
    # even if one key served both directions
    with pytest.raises(PeerFault, match="bad-frame"):
        opened(replace(mine, responder_key=mine.initiator_key), sealed(mine, b"words"))


def test_frames_out_of_order_or_twice_do_not_open() -> None:
    mine, theirs = shake(initiator(), responder())
    with pytest.raises(PeerFault, match="bad-frame"):
        opened(theirs, sealed(mine, b"second", skip=1))
    frame, opener = sealed(mine, b"first"), theirs.opener()
    opener.open(frame[:HEADER_BYTES], memoryview(frame)[HEADER_BYTES:])
    with pytest.raises(PeerFault, match="bad-frame"):
        opener.open(frame[:HEADER_BYTES], memoryview(frame)[HEADER_BYTES:])


def test_a_frame_too_large_is_refused_by_its_header_alone() -> None:
    mine, _ = shake(initiator(), responder())
    frame = sealed(mine, bytes(1001))
    with pytest.raises(PeerFault, match="oversize"):
        read_header(frame[:HEADER_BYTES], 1000)
    assert read_header(frame[:HEADER_BYTES], 1001) == (1001 + TAG_BYTES, DATA)


def test_odd_headers_are_refused() -> None:
    for size_bytes, kind in ((TAG_BYTES - 1, DATA), (TAG_BYTES + 1, END), (TAG_BYTES, 2)):
        with pytest.raises(PeerFault, match="malformed"):
            read_header(size_bytes.to_bytes(4, "big") + bytes([kind]), 1000)


def test_a_key_is_retired_before_its_counter_runs_out() -> None:
    mine, _ = shake(initiator(), responder())
    sealer = mine.sealer()
    sealer._count = FRAMES_PER_KEY_MAX
    with pytest.raises(Unavailable, match="fresh session"):
        sealer.seal_into(b"", DATA, memoryview(bytearray(64)))
