"""The trace sees every message of ours, and none of the randomness in it."""

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from daa_dag import canonical
from daa_node.identity.keys import ML_DSA_SIGNATURE_BYTES, NodeKeys
from daa_node.identity.session import NONCE_BYTES, Initiator, Local, Remote, Responder
from daa_node.wire.framing import write_message
from daa_node.wire.protocols import BULK, HELLO, VOTES
from simnet.nodes.virtual import scheduling
from simnet.nodes.virtual.wire import SIGNED, TappedStream, Wiretap, blanked
from simnet.world.determinism import Trace

ALICE, BOB = NodeKeys.from_seed(b"alice"), NodeKeys.from_seed(b"bob")
NUMBERS: Mapping[str, int] = {BOB.peer_id: 1}
CHAIN_ID: Any = bytes(32)


def hashed(protocol: str, payload: bytes, read: list[bytes] | None = None) -> str:
    """What the trace says after one message of Alice's to Bob."""
    (told,) = each_hashed(protocol, [len(payload).to_bytes(4) + payload], read)
    return told


def each_hashed(protocol: str, messages: list[bytes], read: list[bytes] | None = None) -> list[str]:
    """The same for one message after another, each with a trace of its own."""
    told = []

    async def main(_: scheduling.Processes) -> None:
        for message in messages:
            trace = Trace()
            tap = Wiretap(trace, 0, NUMBERS, ([] if read is None else read).append)
            tap.message(BOB.peer_id, protocol, message)
            told.append(trace.digest())

    scheduling.run(main, 0)
    return told


def signed_statements(*words: canonical.Value) -> bytes:
    payload = canonical.encode(list(words))
    return canonical.encode([*words, ALICE.sign(payload, b"test")])


def test_a_signature_is_not_hashed_and_every_word_beside_it_is() -> None:
    assert hashed(VOTES, signed_statements("view", 7)) == hashed(
        VOTES, signed_statements("view", 7)
    )
    assert hashed(VOTES, signed_statements("view", 7)) != hashed(
        VOTES, signed_statements("view", 8)
    )
    assert hashed(VOTES, signed_statements("view", 7)) != hashed(
        HELLO, signed_statements("view", 7)
    )


def test_a_record_inside_of_a_message_is_blanked_as_well() -> None:
    hellos = {canonical.encode([1, signed_statements("record", bytes(4000)), 5]) for _ in range(2)}
    assert len(hellos) == 2
    assert len({blanked(hello, SIGNED) for hello in hellos}) == 1


def test_nothing_but_the_signature_is_blanked() -> None:
    message = signed_statements("a", bytes(range(200)), [1, None, {"k": True}])
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


def silent(protocol: str, message: bytes) -> list[int]:
    """At which places a byte may change, its length's included, and the trace says the same."""
    changed = [
        message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :] for at in range(len(message))
    ]
    told, *tolds = each_hashed(protocol, [message, *changed])
    return [at for at, other in enumerate(tolds) if other == told]


def places(message: bytes, *fields: bytes) -> list[int]:
    return [at for f in fields for at in range(message.index(f), message.index(f) + len(f))]


@pytest.mark.parametrize(("number", "random"), [(0, [6, 7]), (1, [5, 6, 8]), (2, [1]), (3, [1])])
def test_no_byte_of_a_handshake_may_change_unseen_but_its_secrets(
    number: int, random: list[int]
) -> None:
    payload = handshake()[number]
    fields = canonical.decode(payload, 2**20)
    message = len(payload).to_bytes(4) + payload
    assert silent(BULK, message) == places(message, *(fields[at] for at in random))


@pytest.mark.parametrize("protocol", [HELLO, VOTES, BULK])
def test_no_byte_of_anything_else_may_change_unseen(protocol: str) -> None:
    for payload in (b"\xc1 no message at all", canonical.encode(["refused", "busy", {"k": 7}])):
        assert silent(protocol, len(payload).to_bytes(4) + payload) == []


class Nowhere:
    """A ByteStream to Bob."""

    peer_id = BOB.peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return b""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def told_of_stream(*messages: bytes) -> str:
    trace = Trace()

    async def main(_: scheduling.Processes) -> None:
        stream = TappedStream(Nowhere(), BULK, Wiretap(trace, 0, NUMBERS, lambda _: None))
        for message in messages:
            await write_message(stream, message)

    scheduling.run(main, 0)
    return trace.digest()


@pytest.mark.parametrize("last", [b"relay", canonical.encode(["ready", bytes(32)])])
def test_of_what_follows_a_handshake_sealed_the_number_of_bytes_counts(last: bytes) -> None:
    assert told_of_stream(last, b"sealed one") == told_of_stream(last, b"sealed two")
    assert told_of_stream(last, b"sealed one") != told_of_stream(last, b"sealed three")
    assert told_of_stream(b"first", b"second") != told_of_stream(b"first", b"2econd")


def test_messages_are_shown_to_who_watches() -> None:
    read: list[bytes] = []
    hashed(HELLO, b"hello", read)
    hashed(VOTES, b"a vote", read)
    assert read == [b"a vote"]
