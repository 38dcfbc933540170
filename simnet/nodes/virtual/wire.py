"""The trace's view of the wires: every message before it is encrypted, randomness taken out.

What is hashed, each with its virtual time, sender and receiver:

  * every write on every simulated connection: what is said before noise as it is, the rest by its
    size, noise's own handshake included (see network.Network.send);
  * every yamux frame before it is sealed: headers, negotiations, and all that gossipsub and
    Kademlia say (see plaintext);
  * every message that a node sends on a stream of ours (hello, votes, requests, the bulk
    handshake), by protocol and content;
  * every frame of the bulk channel, before that seals it;
  * every announcement and DHT record, where it is made and where it is received.

Where signatures are random they are zeroed before they are hashed, wherever a byte string of their
size stands in a message; so are the keys, proofs and ciphertexts of the bulk handshake. Sealed
frames on a relayed stream are left to the plaintext that they hold. Signatures of words are not
random here (see steady_signatures).
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from daa_dag import canonical
from daa_dag.ids import NodeId
from daa_node.adapters.bulk_channel import RELAY
from daa_node.identity.keys import ML_DSA_SIGNATURE_BYTES
from daa_node.seams import (
    Announcement,
    BulkTransport,
    ByteStream,
    FrameHandler,
    FrameStream,
    GossipFilter,
    GossipJudge,
    IsMember,
    PeerId,
    StreamHandler,
    Transport,
)
from daa_node.wire.limits import LENGTH_PREFIX_BYTES
from daa_node.wire.protocols import BULK, VOTES
from simnet.nodes.virtual.scheduling import OUTSIDE, now_ns
from simnet.world.determinism import Trace

SIGNED = frozenset({ML_DSA_SIGNATURE_BYTES})
# Which fields of the bulk handshake are random, by a message's word and its number of fields.
HANDSHAKE = {
    ("opening", 8): (6, 7),  # X25519 and ML-KEM keys
    ("answer", 9): (5, 6, 8),  # X25519 key, ciphertext, signature
    ("confirmation", 2): (1,),  # signature
    ("ready", 2): (1,),  # proof
}
READY = canonical.encode(["ready", b""])[:-2]  # how that message begins, whatever its proof


class Wiretap:
    """One node's side of the trace."""

    def __init__(
        self,
        trace: Trace,
        node: int,
        node_of: Mapping[str, int],
        on_message: Callable[[bytes], None],
        is_random: bool = True,
    ) -> None:
        """`node_of` numbers peer ids and node ids in hex; `on_message` reads what members write.

        `is_random`: whether signatures and handshakes are.
        """
        self._is_random = is_random
        self._trace = trace
        self._node = node
        self._node_of = node_of
        self._on_message = on_message

    def message(self, name: str, protocol: str, payload: bytes) -> None:
        """`name` is the peer's, or the node's, that it goes to."""
        prefix, message = payload[:LENGTH_PREFIX_BYTES], payload[LENGTH_PREFIX_BYTES:]
        if protocol == VOTES:
            self._on_message(message)
        self._note(name, protocol, prefix + self._steady(message, protocol))

    def sealed(self, name: str, size_bytes: int) -> None:
        """What was noted before it was sealed."""
        self._note(name, BULK, str(size_bytes).encode())

    def frame(self, name: str, payload: bytes | bytearray | memoryview) -> None:
        self._note(name, "frame", bytes(payload))

    def word(self, name: str, what: str, payload: bytes) -> None:
        """Something of gossip or the DHT, which has no receiver of its own."""
        self._note(name, what, self._steady(payload))

    def _steady(self, payload: bytes, protocol: str = "") -> bytes:
        if not self._is_random:
            return payload
        return _handshake(payload) if protocol == BULK else blanked(payload, SIGNED)

    def _note(self, name: str, what: str, payload: bytes) -> None:
        receiver = self._node_of.get(name, OUTSIDE)
        self._trace.frame(now_ns(), self._node, receiver, what.encode() + b" " + payload)


def blanked(payload: bytes, sizes: frozenset[int]) -> bytes:
    """The canonical message with zeros for byte strings of `sizes`, also in messages inside it."""
    try:
        value = msgpack.unpackb(payload, raw=False)
    except (ValueError, msgpack.UnpackException):
        return payload  # no message of ours: random it is not
    packed = msgpack.packb(_blank(value, sizes), use_bin_type=True)
    assert isinstance(packed, bytes)
    return packed


def _blank(value: Any, sizes: frozenset[int]) -> Any:
    match value:
        case bytes():
            if len(value) in sizes:
                return bytes(len(value))
            return blanked(value, sizes) if len(value) > min(sizes) else value
        case list():
            return [_blank(item, sizes) for item in value]
        case dict():
            return {key: _blank(item, sizes) for key, item in value.items()}
        case _:
            return value


def _handshake(message: bytes) -> bytes:
    """A message of the bulk handshake without what is random in it; anything else as it is."""
    try:
        fields = msgpack.unpackb(message, raw=False)
    except (ValueError, msgpack.UnpackException):
        return message
    match fields:
        case [str() as word, *_] if (word, len(fields)) in HANDSHAKE:
            for at in HANDSHAKE[word, len(fields)]:
                if isinstance(fields[at], bytes):
                    fields[at] = bytes(len(fields[at]))
            return bytes(msgpack.packb(fields, use_bin_type=True))
        case _:
            return message


class TappedTransport:
    """A Transport that notes what goes through it."""

    def __init__(self, inner: Transport, tap: Wiretap) -> None:
        self._inner = inner
        self._tap = tap
        self.addresses, self.connected = inner.addresses, inner.connected
        self.dial, self.hang_up, self.network_of = inner.dial, inner.hang_up, inner.network_of
        self.guard, self.set_record_judge = inner.guard, inner.set_record_judge
        self.provide, self.find_providers = inner.provide, inner.find_providers

    @property
    def peer_id(self) -> PeerId:
        return self._inner.peer_id

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        return TappedStream(await self._inner.open_stream(peer_id, protocol), protocol, self._tap)

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        async def tapped(stream: ByteStream) -> None:
            await handler(TappedStream(stream, protocol, self._tap))

        self._inner.set_handler(protocol, tapped)

    def join_topic(self, topic: str, may_be_news: GossipFilter, judge: GossipJudge) -> None:
        def tapped(announcement: Announcement) -> bool:
            self._tap.word(announcement.source, f"heard {topic}", announcement.payload)
            return judge(announcement)

        self._inner.join_topic(topic, may_be_news, tapped)

    async def publish(self, topic: str, payload: bytes) -> None:
        self._tap.word("", f"publish {topic}", payload)
        await self._inner.publish(topic, payload)

    async def put_record(self, key: str, payload: bytes) -> None:
        self._tap.word("", f"put {key}", payload)
        await self._inner.put_record(key, payload)

    async def get_record(self, key: str) -> bytes | None:
        found = await self._inner.get_record(key)
        self._tap.word("", f"got {key}", found or b"")
        return found


class TappedStream:
    """A ByteStream that notes what is sent; every write of ours is one message."""

    def __init__(self, inner: ByteStream, protocol: str, tap: Wiretap) -> None:
        self._inner = inner
        self._protocol = protocol
        self._tap = tap
        self._seals = False  # whoever has said "ready" or "relay" seals all that it says next
        self.receive_some, self.aclose = inner.receive_some, inner.aclose

    @property
    def peer_id(self) -> PeerId:
        return self._inner.peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        if self._seals:
            self._tap.sealed(self.peer_id, len(payload))
        else:
            said = bytes(payload)
            self._tap.message(self.peer_id, self._protocol, said)
            message = said[LENGTH_PREFIX_BYTES:]
            self._seals = self._protocol == BULK and message.startswith((READY, RELAY))
        await self._inner.send_all(payload)


class TappedBulk:
    """A BulkTransport that notes frames before they are sealed."""

    def __init__(self, inner: BulkTransport, tap: Wiretap) -> None:
        self._inner = inner
        self._tap = tap

    async def open(self, peer_id: PeerId) -> FrameStream:
        return TappedFrames(await self._inner.open(peer_id), self._tap)

    def set_handler(self, handler: FrameHandler, is_member: IsMember) -> None:
        async def tapped(stream: FrameStream) -> None:
            await handler(TappedFrames(stream, self._tap))

        self._inner.set_handler(tapped, is_member)


class TappedFrames:
    """A FrameStream that notes what is sent."""

    def __init__(self, inner: FrameStream, tap: Wiretap) -> None:
        self._inner = inner
        self._tap = tap
        self.receive_frame, self.aclose = inner.receive_frame, inner.aclose

    @property
    def node_id(self) -> NodeId:
        return self._inner.node_id

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        self._tap.frame(self.node_id.hex(), payload)
        await self._inner.send_frame(payload)
