"""Counts a WebSocket's frames (RFC 6455, section 5.2).

The library parses a frame in 10 to 30 microseconds, whatever it carries: it answers pings by itself
and joins fragments to a message as large as it takes. Six bytes of a stranger are enough for each,
and nobody honest sends more of them than messages of noise.
"""

import struct

_HTTP_END = b"\r\n\r\n"
_MASKED, _LENGTH = 0x80, 0x7F
_SIXTEEN_BITS, _SIXTYFOUR_BITS = 126, 127
_MASK_BYTES = 4


class FrameCounter:
    """Fed with all that a client sends, its request first."""

    def __init__(self) -> None:
        self._held = b""  # less than a header
        self._skip = 0  # of a payload that is still coming
        self._upgraded = False

    def begun_in(self, piece: bytes) -> int:
        """How many frames begin in this piece; a piece of the request counts as one."""
        data = self._held + piece
        if not self._upgraded:
            end = data.find(_HTTP_END)
            if end < 0:
                self._held = data[-len(_HTTP_END) :]
                return 1
            self._upgraded = True
            data = data[end + len(_HTTP_END) :]
        at, begun = 0, 0
        while True:
            skipped = min(self._skip, len(data) - at)
            at += skipped
            self._skip -= skipped
            header = _header(data, at)
            if self._skip or header is None:
                self._held = data[at:]
                return begun
            size, payload = header
            begun += 1
            self._skip = payload + (_MASK_BYTES if data[at + 1] & _MASKED else 0)
            at += size


def _header(data: bytes, at: int) -> tuple[int, int] | None:
    """Its size without the mask, and the payload's, in bytes; None while it is not all there."""
    if len(data) - at < 2:
        return None
    size, payload = 2, data[at + 1] & _LENGTH
    if payload == _SIXTEEN_BITS:
        size = 4
    elif payload == _SIXTYFOUR_BITS:
        size = 10
    if len(data) - at < size:
        return None
    if size == 4:
        (payload,) = struct.unpack_from("!H", data, at + 2)
    elif size == 10:
        (payload,) = struct.unpack_from("!Q", data, at + 2)
    return size, payload
