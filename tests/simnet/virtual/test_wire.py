"""The trace sees every message of ours, and none of the randomness in it."""

from collections.abc import Mapping
from typing import Any

import pytest

from daa_dag import canonical
from daa_node.identity.keys import ML_DSA_SIGNATURE_BYTES, NodeKeys
from daa_node.identity.session import KEY_BYTES, NONCE_BYTES, Initiator, Local, Remote, Responder
from daa_node.wire.protocols import BULK, HELLO, VOTES
from simnet.determinism import Trace
from simnet.virtual import scheduling
from simnet.virtual.wire import SIGNED, Wiretap, blanked

ALICE, BOB = NodeKeys.from_seed(b"alice"), NodeKeys.from_seed(b"bob")
NUMBERS: Mapping[str, int] = {BOB.peer_id: 1}
CHAIN_ID: Any = bytes(32)


def hashed(protocol: str, payload: bytes, letters: list[bytes] | None = None) -> str:
    """What the trace says after one message of Alice's to Bob."""
    trace = Trace()

    async def main(_: scheduling.Processes) -> None:
        tap = Wiretap(trace, 0, NUMBERS, ([] if letters is None else letters).append)
        tap.message(BOB.peer_id, protocol, len(payload).to_bytes(4) + payload)

    scheduling.run(main, 0)
    return trace.digest()


def signed_words(*words: canonical.Value) -> bytes:
    payload = canonical.encode(list(words))
    return canonical.encode([*words, ALICE.sign(payload, b"test")])


def test_a_signature_is_not_hashed_and_every_word_beside_it_is() -> None:
    assert hashed(VOTES, signed_words("view", 7)) == hashed(VOTES, signed_words("view", 7))
    assert hashed(VOTES, signed_words("view", 7)) != hashed(VOTES, signed_words("view", 8))
    assert hashed(VOTES, signed_words("view", 7)) != hashed(HELLO, signed_words("view", 7))


def test_a_record_inside_of_a_message_is_blanked_as_well() -> None:
    hellos = {canonical.encode([1, signed_words("record", bytes(4000)), 5]) for _ in range(2)}
    assert len(hellos) == 2
    assert len({blanked(hello, SIGNED) for hello in hellos}) == 1


def test_nothing_but_the_signature_is_blanked() -> None:
    message = signed_words("a", bytes(range(200)), [1, None, {"k": True}])
    assert canonical.decode(blanked(message, SIGNED), 2**20) == [
        "a",
        bytes(range(200)),
        [1, None, {"k": True}],
        bytes(ML_DSA_SIGNATURE_BYTES),
    ]
    garbage = b"\xc1 no message at all"
    assert blanked(garbage, SIGNED) == garbage


def handshake() -> list[bytes]:
    """The four messages between Alice and Bob, with fresh secrets."""
    nonce = bytes(NONCE_BYTES)
    alice = Initiator(Local(CHAIN_ID, ALICE), Remote(BOB.node_id, BOB.peer_id), nonce)
    bob = Responder(Local(CHAIN_ID, BOB), Remote(ALICE.node_id, ALICE.peer_id), nonce, ())
    opening = alice.opening()
    answer = bob.on_opening(opening)
    confirmation = alice.on_answer(answer)
    ready, _ = bob.on_confirmation(confirmation)
    return [opening, answer, confirmation, ready]


@pytest.mark.parametrize("number", range(4))
def test_a_bulk_handshake_hashes_alike_whatever_its_secrets(number: int) -> None:
    one, another = handshake()[number], handshake()[number]
    assert one != another
    assert hashed(BULK, one) == hashed(BULK, another)


def test_of_sealed_bytes_the_number_counts() -> None:
    assert hashed(BULK, bytes(KEY_BYTES)) == hashed(BULK, b"\x01" * KEY_BYTES)
    assert hashed(BULK, bytes(KEY_BYTES)) != hashed(BULK, bytes(KEY_BYTES + 1))


def test_letters_are_shown_to_who_watches() -> None:
    letters: list[bytes] = []
    hashed(HELLO, b"hello", letters)
    hashed(VOTES, b"a vote", letters)
    assert letters == [b"a vote"]
