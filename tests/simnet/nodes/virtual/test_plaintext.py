"""No byte that a connection carries may change unseen, but what is random in a bulk session."""

import struct
from collections.abc import Sequence
from typing import Any, cast

import pytest
from libp2p.security.secure_session import SecureSession

from daa_dag import canonical
from daa_node.identity.keys import NodeKeys
from daa_node.identity.session import NONCE_BYTES, Initiator, Local, Remote, Responder
from daa_node.wire.protocols import BULK, HELLO, VOTES
from simnet.nodes.virtual import scheduling
from simnet.nodes.virtual.plaintext import Plaintext
from simnet.world.determinism import Trace

DATA, STREAM = 0, 5
ALICE, BOB = NodeKeys.from_seed(b"alice"), NodeKeys.from_seed(b"bob")
CHAIN_ID: Any = bytes(32)


class Session:
    """A connection of node 0 to node 1."""

    def get_local_peer(self) -> str:
        return "alice"

    def get_remote_peer(self) -> str:
        return "bob"


def frame(payload: bytes) -> bytes:
    return struct.pack("!BBHII", 0, DATA, 0, STREAM, len(payload)) + payload


def line(words: str) -> bytes:
    return bytes([len(words) + 1]) + words.encode() + b"\n"


def message_of(payload: bytes) -> bytes:
    return len(payload).to_bytes(4) + payload


def each_hashed(runs: Sequence[Sequence[bytes]]) -> list[str]:
    """What the trace says of each run's writes, on a connection of its own."""
    told = []

    async def main(_: scheduling.Processes) -> None:
        for writes in runs:
            trace, session = Trace(), cast(SecureSession, Session())
            plaintext = Plaintext(trace, {"alice": 0, "bob": 1})
            for payload in writes:
                plaintext.written(session, payload)
            told.append(trace.digest())

    scheduling.run(main, 0)
    return told


def writes(protocol: str, *messages: bytes) -> list[bytes]:
    """Each message in two frames, as a long one comes."""
    halves = [(m[: len(m) // 2], m[len(m) // 2 :]) for m in messages]
    opening = frame(line("/multistream/1.0.0") + line(protocol))
    return [opening, *(frame(one) + frame(other) for one, other in halves)]


def silent(protocol: str, message: bytes) -> list[int]:
    """At which places a byte may change, and the trace says the same."""
    changed = [
        message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :] for at in range(len(message))
    ]
    told, *tolds = each_hashed([writes(protocol, each) for each in (message, *changed)])
    return [at for at, other in enumerate(tolds) if other == told]


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


@pytest.mark.parametrize("protocol", ["/ipfs/id/1.0.0", "/meshsub/1.1.0", HELLO, VOTES])
def test_no_byte_may_change_unseen(protocol: str) -> None:
    assert silent(protocol, message_of(canonical.encode(["who are you", b"bytes", 7]))) == []


def test_no_byte_on_a_stream_that_bulk_is_only_named_on_may_change_unseen() -> None:
    assert silent("/ipfs/id/1.0.0", line(BULK) + b"and more") == []


@pytest.mark.parametrize("number", range(4))
def test_a_bulk_handshake_hashes_alike_whatever_its_secrets(number: int) -> None:
    one, another = handshake()[number], handshake()[number]
    assert one != another
    told = each_hashed([writes(BULK, message_of(each)) for each in (one, another)])
    assert told[0] == told[1]


@pytest.mark.parametrize(("number", "random"), [(0, [6, 7]), (1, [5, 6, 8]), (2, [1]), (3, [1])])
def test_no_byte_of_a_handshake_may_change_unseen_but_its_secrets(
    number: int, random: list[int]
) -> None:
    payload = handshake()[number]
    fields = cast(list[bytes], canonical.decode(payload, 2**20))
    message = message_of(payload)
    secret = [
        at
        for field in (fields[index] for index in random)
        for at in range(message.index(field), message.index(field) + len(field))
    ]
    # A length that is longer than what comes leaves a message that is never whole.
    assert [at for at in silent(BULK, message) if at >= 4] == secret


@pytest.mark.parametrize("last", [b"relay", canonical.encode(["ready", bytes(32)])])
def test_of_what_follows_a_handshake_sealed_the_number_of_bytes_counts(last: bytes) -> None:
    one, two, three, first, other = each_hashed(
        [
            writes(BULK, message_of(last), b"sealed one"),
            writes(BULK, message_of(last), b"sealed two"),
            writes(BULK, message_of(last), b"sealed three"),
            writes(BULK, message_of(b"first"), message_of(b"second")),
            writes(BULK, message_of(b"first"), message_of(b"2econd")),
        ]
    )
    assert one == two != three
    assert first != other


def test_negotiations_and_headers_are_seen() -> None:
    runs = [
        [line("/yamux/1.0.0")],
        [line("/yamux/2.0.0")],
        [frame(line(VOTES)), frame(b"one")],
        [frame(line(BULK)), frame(b"one")],
        [frame(line(VOTES)), frame(b"three")],
        [frame(line(VOTES)), struct.pack("!BBHII", 0, 1, 4, STREAM, 0)],
        [frame(line(VOTES)), struct.pack("!BBHII", 0, 1, 8, STREAM, 0)],
    ]
    assert len(set(each_hashed(runs))) == len(runs)
