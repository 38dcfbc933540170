"""Sealed frames, pure: what a session's bytes look like on the wire.

`length (4, big-endian) | kind (1) | AEAD ciphertext and tag`. The nonce is the direction's own
counter; the associated data bind the direction, the length and the kind. An END frame closes a
direction: bytes that stop without one were cut off by somebody.
"""

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from daa_node.errors import PeerFault, Unavailable

AES_SUITE = "x25519-mlkem768-aes256gcm"
CHACHA_SUITE = "x25519-mlkem768-chacha20poly1305"

_HEADER = struct.Struct("!IB")
HEADER_BYTES = _HEADER.size
TAG_BYTES = 16
DATA, END = 0, 1
# 4 PiB of full frames; far under what AES-GCM allows with a counter, and nobody keeps one so long.
FRAMES_PER_KEY_MAX = 2**32


class Sealer:
    """One direction's sending half. Its counter is the nonce: a key never outlives its Sealer."""

    def __init__(self, suite: str, key: bytes, from_initiator: bool) -> None:
        self._aead = _aead_of(suite, key)
        self._direction = _direction(from_initiator)
        self._count = 0

    def seal_into(
        self, payload: bytes | bytearray | memoryview, kind: int, target: memoryview
    ) -> int:
        """Write header and ciphertext to the start of `target`; the frame's size in bytes."""
        sealed_bytes = len(payload) + TAG_BYTES
        header = _HEADER.pack(sealed_bytes, kind)
        nonce = _next_nonce(self._count)
        self._count += 1
        target[:HEADER_BYTES] = header
        end = HEADER_BYTES + sealed_bytes
        self._aead.encrypt_into(nonce, payload, self._direction + header, target[HEADER_BYTES:end])
        return end


class Opener:
    """One direction's receiving half: frames open in the order in which they were sealed."""

    def __init__(self, suite: str, key: bytes, from_initiator: bool) -> None:
        self._aead = _aead_of(suite, key)
        self._direction = _direction(from_initiator)
        self._count = 0

    def open(self, header: bytes, sealed: memoryview) -> bytes:
        """The payload. Raises PeerFault "bad-frame"."""
        nonce = _next_nonce(self._count)
        try:
            payload = self._aead.decrypt(nonce, sealed, self._direction + header)
        except InvalidTag:
            raise PeerFault("bad-frame", f"frame {self._count} does not open") from None
        self._count += 1
        return payload


def read_header(header: bytes | bytearray | memoryview, payload_bytes_max: int) -> tuple[int, int]:
    """(sealed size in bytes, kind) of the frame that follows. Raises PeerFault before anything of
    the frame is read: "oversize" or "malformed"."""
    sealed_bytes, kind = _HEADER.unpack(header)
    if sealed_bytes > payload_bytes_max + TAG_BYTES:
        raise PeerFault("oversize", f"frame of {sealed_bytes} > {payload_bytes_max} bytes")
    if kind not in (DATA, END) or sealed_bytes < TAG_BYTES:
        raise PeerFault("malformed", f"frame of kind {kind} and {sealed_bytes} bytes")
    if kind == END and sealed_bytes != TAG_BYTES:
        raise PeerFault("malformed", "an end frame carries nothing")
    return sealed_bytes, kind


def _aead_of(suite: str, key: bytes) -> AESGCM | ChaCha20Poly1305:
    return AESGCM(key) if suite == AES_SUITE else ChaCha20Poly1305(key)


def _direction(from_initiator: bool) -> bytes:
    return b"daa/v1/frame/" + (b"initiator" if from_initiator else b"responder")


def _next_nonce(count: int) -> bytes:
    if count >= FRAMES_PER_KEY_MAX:
        raise Unavailable(f"{count} frames under one key; open a fresh session")
    return count.to_bytes(12, "big")
