"""What a connection carries before noise seals it, frame by frame, randomness taken out.

    a write into a session -> yamux frames -> each stream's bytes -> its protocol's messages

Headers and negotiations are hashed as they are. Gossipsub's messages and Kademlia's are hashed
whole, without the signatures that randomised records make random in turn. Our own protocols' bytes
are hashed by their number alone: `wire` hashes the messages that they make up, and the bulk
channel's before it seals them.
"""

import struct
from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

from google.protobuf.message import DecodeError
from libp2p.kad_dht.pb import kademlia_pb2
from libp2p.pubsub.pb import rpc_pb2
from libp2p.security.secure_session import SecureSession

from daa_node.adapters.libp2p_frames import DATA, HEADER_BYTES
from simnet.nodes.virtual.scheduling import OUTSIDE, now_ns
from simnet.nodes.virtual.wire import SIGNED, blanked
from simnet.world.determinism import Trace

_HEADER = struct.Struct("!BBHII")  # version, kind, flags, stream id, length
OURS, GOSSIP, DHT = b"/daa/", b"/meshsub/", b"/ipfs/kad/"
LAST_SEVEN, MORE = 0x7F, 0x80  # of a varint's byte

Canonical = Callable[[bytes], bytes]


class Plaintext:
    """Every secured connection of a run; `written` is told before the library seals."""

    def __init__(self, trace: Trace, node_of: Mapping[str, int]) -> None:
        """`node_of` numbers peer ids."""
        self._trace = trace
        self._node_of = node_of
        self._sessions: WeakKeyDictionary[SecureSession, dict[int, _Stream]] = WeakKeyDictionary()

    def written(self, session: SecureSession, payload: bytes) -> None:
        ends = (session.get_local_peer(), session.get_remote_peer())
        sender, receiver = (self._node_of.get(str(peer), OUTSIDE) for peer in ends)
        streams = self._sessions.setdefault(session, {})
        for frame in _frames(payload, streams):
            self._trace.frame(now_ns(), sender, receiver, frame)


class _Stream:
    """One direction of one stream."""

    def __init__(self) -> None:
        self._canonical: Canonical | None = None
        self._is_ours = False
        self._pending = b""

    def told(self, payload: bytes) -> bytes:
        """What is to be hashed of the next bytes."""
        if self._is_ours:
            return b""
        if self._canonical is None:
            self._learn(payload)
            return payload
        self._pending += payload
        told = b""
        while (size := _varint(self._pending)) is not None:
            start, length = size
            if len(self._pending) < start + length:
                break
            told += self._canonical(self._pending[start : start + length])
            self._pending = self._pending[start + length :]
        return told

    def _learn(self, line: bytes) -> None:
        """A line of multistream names the protocol; both sides say it, alone in its frame."""
        self._is_ours = OURS in line
        if GOSSIP in line:
            self._canonical = _gossip
        elif DHT in line:
            self._canonical = _dht


def _frames(payload: bytes, streams: dict[int, _Stream]) -> list[bytes]:
    if payload[:1] != b"\0":
        return [payload]  # the connection's own negotiation, before yamux begins
    told, at = [], 0
    while at < len(payload):
        header = payload[at : at + HEADER_BYTES]
        _, kind, _, stream_id, length = _HEADER.unpack(header)
        at += HEADER_BYTES
        if kind == DATA:
            stream = streams.setdefault(stream_id, _Stream())
            header += stream.told(payload[at : at + length])
            at += length
        told.append(header)
    return told


def _varint(payload: bytes) -> tuple[int, int] | None:
    """Where the message begins and how long it is; None while its length is not all there."""
    length = 0
    for index, byte in enumerate(payload[:10]):
        length |= (byte & LAST_SEVEN) << (7 * index)
        if not byte & MORE:
            return index + 1, length
    return None


def _gossip(payload: bytes) -> bytes:
    rpc = rpc_pb2.RPC()
    try:
        rpc.ParseFromString(payload)
    except DecodeError:
        return payload
    for message in rpc.publish:
        # Ed25519 is deterministic, but over a record's random signature it is random too.
        message.ClearField("signature")
        message.data = blanked(message.data, SIGNED)
    return rpc.SerializeToString(deterministic=True)


def _dht(payload: bytes) -> bytes:
    message = kademlia_pb2.Message()
    try:
        message.ParseFromString(payload)
    except DecodeError:
        return payload
    if message.record.value:
        message.record.value = blanked(message.record.value, SIGNED)
        message.record.ClearField("signature")
    return message.SerializeToString(deterministic=True)
