"""What a connection carries before noise seals it, frame by frame, without what is random.

    a write into a session -> yamux frames -> each stream's bytes

All of it is hashed as it is: headers, negotiations, gossip, what the DHT says, and our own
protocols; whatever chance is in it is the run's own. Only of a bulk session's handshake the keys,
proofs, ciphertexts and signatures are random: zeros are hashed in their place, and of what is
sealed then, the number of bytes.
"""

import struct
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import msgpack
from libp2p.security.secure_session import SecureSession

from daa_dag import canonical
from daa_node.adapters.bulk_channel import RELAY
from daa_node.adapters.libp2p_frames import DATA, HEADER_BYTES
from daa_node.wire.limits import LENGTH_PREFIX_BYTES
from daa_node.wire.protocols import BULK
from simnet.nodes.virtual.scheduling import OUTSIDE, now_ns
from simnet.world.determinism import Trace

_HEADER = struct.Struct("!BBHII")  # version, kind, flags, stream id, length
# With this line of multistream both sides agree on the protocol; nothing follows it in its frame.
BULK_LINE = bytes([len(BULK) + 1]) + BULK.encode() + b"\n"
# Which fields of the bulk handshake are random, by a message's word and its number of fields.
HANDSHAKE = {
    ("opening", 8): (6, 7),  # X25519 and ML-KEM keys
    ("answer", 9): (5, 6, 8),  # X25519 key, ciphertext, signature
    ("confirmation", 2): (1,),  # signature
    ("ready", 2): (1,),  # proof
}
READY = canonical.encode(["ready", b""])[:-2]  # how that message begins, whatever its proof


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
        self._is_bulk = False
        self._seals = False  # whoever has said "ready" or "relay" seals all that it says next
        self._pending = b""

    def told(self, payload: bytes) -> bytes:
        """What is to be hashed of the next bytes."""
        if not self._is_bulk:
            self._is_bulk = payload.endswith(BULK_LINE)
            return payload
        self._pending += payload
        told = b""
        while not self._seals and len(self._pending) >= LENGTH_PREFIX_BYTES:
            end = LENGTH_PREFIX_BYTES + int.from_bytes(self._pending[:LENGTH_PREFIX_BYTES])
            if len(self._pending) < end:
                return told
            message, self._pending = self._pending[LENGTH_PREFIX_BYTES:end], self._pending[end:]
            self._seals = message.startswith((READY, RELAY))
            told += _handshake(message)
        if self._seals:
            self._pending = b""
        return told


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
