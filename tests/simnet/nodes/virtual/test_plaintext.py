"""No byte that a connection carries may change unseen, but signatures and what `wire` sees."""

import struct
from collections.abc import Sequence
from typing import cast

from libp2p.kad_dht.pb import kademlia_pb2
from libp2p.pubsub.pb import rpc_pb2
from libp2p.security.secure_session import SecureSession

from daa_dag import canonical
from daa_node.identity.keys import ML_DSA_SIGNATURE_BYTES
from simnet.nodes.virtual import scheduling
from simnet.nodes.virtual.plaintext import Plaintext
from simnet.world.determinism import Trace

DATA, STREAM = 0, 5
SIGNATURE, SIGNED = b"\x07" * ML_DSA_SIGNATURE_BYTES, b"\x08" * 64
RECORD = canonical.encode(["record", bytes(range(40)), SIGNATURE])


class Session:
    """A connection of node 0 to node 1."""

    def get_local_peer(self) -> str:
        return "alice"

    def get_remote_peer(self) -> str:
        return "bob"


def frame(payload: bytes) -> bytes:
    return struct.pack("!BBHII", 0, DATA, 0, STREAM, len(payload)) + payload


def line(words: bytes) -> bytes:
    return bytes([len(words) + 1]) + words + b"\n"


def delimited(message: bytes) -> bytes:
    length, prefix = len(message), b""
    while length > 127:
        prefix, length = prefix + bytes([length & 127 | 128]), length >> 7
    return prefix + bytes([length]) + message


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


def silent(protocol: bytes, message: bytes) -> list[int]:
    """At which places a byte may change, and the trace says the same."""
    opening = frame(line(b"/multistream/1.0.0") + line(protocol))

    def writes(payload: bytes) -> list[bytes]:
        half = len(payload) // 2  # in two frames, as a long one comes
        return [opening, frame(payload[:half]) + frame(payload[half:])]

    changed = [
        message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :] for at in range(len(message))
    ]
    told, *tolds = each_hashed([writes(each) for each in (message, *changed)])
    return [at for at, other in enumerate(tolds) if other == told]


def places(message: bytes, *fields: bytes) -> list[int]:
    return sorted(at for f in fields for at in range(message.index(f), message.index(f) + len(f)))


def test_of_gossip_signatures_alone_may_change() -> None:
    rpc = rpc_pb2.RPC()
    rpc.subscriptions.add(subscribe=True, topicid="topic")
    rpc.publish.add(from_id=b"alice", seqno=b"7", topicIDs=["topic"], data=RECORD, signature=SIGNED)
    rpc.control.ihave.add(topicID="topic", messageIDs=[b"one", b"two"])
    message = delimited(rpc.SerializeToString())
    assert silent(b"/meshsub/1.1.0", message) == places(message, SIGNATURE, SIGNED)


def test_of_what_the_dht_says_signatures_alone_may_change() -> None:
    put = kademlia_pb2.Message(type=kademlia_pb2.Message.PUT_VALUE, key=b"key")
    put.record.key, put.record.value = b"key", RECORD
    put.closerPeers.add(id=b"carol", addrs=[b"there"])
    message = delimited(put.SerializeToString())
    assert silent(b"/ipfs/kad/1.0.0", message) == places(message, SIGNATURE)


def test_nothing_else_may_change_but_on_streams_of_ours() -> None:
    message = delimited(b"who are you")
    assert silent(b"/ipfs/id/1.0.0", message) == []
    assert silent(b"/meshsub/1.1.0", delimited(b"\xff\xff no message")) == []
    assert silent(b"/daa/1/votes", message) == list(range(len(message)))  # see test_wire


def test_negotiations_and_headers_are_seen() -> None:
    runs = [
        [line(b"/yamux/1.0.0")],
        [line(b"/yamux/2.0.0")],
        [frame(line(b"/daa/1/votes")), frame(b"one")],
        [frame(line(b"/daa/1/bulk")), frame(b"one")],
        [frame(line(b"/daa/1/votes")), frame(b"three")],
        [frame(line(b"/daa/1/votes")), struct.pack("!BBHII", 0, 1, 4, STREAM, 0)],
        [frame(line(b"/daa/1/votes")), struct.pack("!BBHII", 0, 1, 8, STREAM, 0)],
    ]
    assert len(set(each_hashed(runs))) == len(runs)
