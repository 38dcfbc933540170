"""What the daemon and its worker say to each other over one socket pair: framed msgpack maps.

    daemon -> worker   {"start": {...}}                       once, first
                       {"order": id, "verb": ..., ...}        one verb of the Trainer seam
                       {"cancel": id}                         its caller is gone
    worker -> daemon   {"ready": {pid, device, inner_state}}  or {"refused": text}
                       {"beat": steps}                        every HEARTBEAT_S
                       {"done": id, ...} or {"failed": id, "why": text}
                       {"unsaved": text}                      what a restart would not find

Both ends are ours and trust each other, yet a frame is bounded: a bug must not eat the memory.
Bytes in, messages out; this module opens nothing.
"""

import struct
from typing import Any

import msgpack

from daa_consensus.bft.limits import SNAPSHOTS_MAX
from daa_dag.chunking import MANIFEST_BYTES_MAX

LENGTH = struct.Struct(">I")
# The manifests of a round's boundaries are the largest thing ever said.
MESSAGE_BYTES_MAX = SNAPSHOTS_MAX * MANIFEST_BYTES_MAX + 65_536
HEARTBEAT_S = 0.5
RECEIVE_BYTES = 65_536

Message = dict[str, Any]


def pack(message: Message) -> bytes:
    """One frame."""
    body: bytes = msgpack.packb(message, use_bin_type=True)
    assert len(body) <= MESSAGE_BYTES_MAX
    return LENGTH.pack(len(body)) + body


class Unpacker:
    """Turns a run of received bytes into messages."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, received: bytes) -> list[Message]:
        """The messages that are complete now. Raises ValueError for what `pack` never makes."""
        self._held += received
        messages: list[Message] = []
        while len(self._held) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._held)
            if size > MESSAGE_BYTES_MAX:
                raise ValueError(f"a message of {size} bytes, at most {MESSAGE_BYTES_MAX} allowed")
            if len(self._held) < LENGTH.size + size:
                break
            body = bytes(self._held[LENGTH.size : LENGTH.size + size])
            del self._held[: LENGTH.size + size]
            message = msgpack.unpackb(body, raw=False, strict_map_key=False)
            if not isinstance(message, dict):
                raise ValueError(f"a message is a map, not {type(message).__name__}")
            messages.append(message)
        return messages
