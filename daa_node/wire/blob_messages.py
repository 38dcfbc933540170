"""What the two ends of a bulk session say: find a blob, then chunks of it by index.

A request is one frame of canonical bytes. An answer is one frame: two bytes of length, a canonical
header, then raw bytes, so that chunks are never copied through an encoder. To who is no member it
comes in pieces: chunks of more than PIECE_BYTES go on in further frames, each but the last as long.
A manifest begins in its "found", and what does not fit there follows in frames of its own. Answers
come in the order of the requests.

    ["find", kind, root, with manifest?]  -> ["found", bytes to follow, bitmap's or -1: all is here]
                                             + bitmap + beginning of the manifest
    ["chunks", kind, root, [indices]]     -> ["chunks", [size, or -1: not here]] + the chunks
    ["share", kind, root, news heard,     -> ["shared", news, bitmap's bytes,
      [orphans], bitmap of what is here]       [[node, bitmap's bytes]]] + the bitmaps
    any                                   -> ["refused", reason]
                                          or ["in turn"], again and again, and then the answer

Whoever holds a blob whole spreads it among members (daa_dag.spread): a "share" says what of it came
so far, and which chunks nobody else can bring; the first bitmap answers with what is to be asked
for here, and those behind it say what others have. Who has a part of it says which, and no more.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from daa_dag import canonical
from daa_dag.chunking import CHUNK_BYTES_MAX, CHUNKS_MAX, MANIFEST_BYTES_MAX, Manifest
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, BlobRoot, NodeId
from daa_dag.spread import ORPHANS_MAX, TOLD_MAX
from daa_node.errors import PeerFault
from daa_node.wire.limits import FRAME_BYTES_MAX, KIB

_LENGTH = struct.Struct("!H")
HEADER_BYTES_MAX = 2048
PIECE_BYTES = 64 * KIB  # half a second at 1 Mbit/s
# Bytes of chunks in one answer; the frame's limit has room for the header beside them.
ANSWER_BYTES_MAX = 4 * CHUNK_BYTES_MAX
# Tensors of a few bytes each are chunks too; 128 sizes still fit a header.
CHUNKS_PER_REQUEST_MAX = 128
BLOB_REQUEST_BYTES_MAX = 2048
KIND_BYTES_MAX = 32
BITMAP_BYTES_MAX = CHUNKS_MAX // 8
SHARE_REQUEST_BYTES_MAX = BLOB_REQUEST_BYTES_MAX + BITMAP_BYTES_MAX
NEWS_MAX = 2**53
# Of a manifest in its "found", which must fit one piece beside the bitmap: a thousand chunks.
MANIFEST_BEGINNING_BYTES_MAX = PIECE_BYTES // 2
assert HEADER_BYTES_MAX + BITMAP_BYTES_MAX + MANIFEST_BEGINNING_BYTES_MAX <= PIECE_BYTES
assert _LENGTH.size + HEADER_BYTES_MAX + ANSWER_BYTES_MAX <= FRAME_BYTES_MAX


class Refusal(StrEnum):
    UNKNOWN = "unknown"  # we do not hold that blob
    DAMAGED = "damaged"  # its manifest on our disk is no longer what it was
    SPENT = "spent"  # our day's data are: it says nothing of what we hold
    TOO_MUCH = "too-much"  # more in one request than an answer holds, or no such chunk


_REASONS = frozenset(str(reason) for reason in Refusal)


@dataclass(frozen=True, slots=True)
class FindRequest:
    kind: str
    root: BlobRoot
    with_manifest: bool


@dataclass(frozen=True, slots=True)
class ChunksRequest:
    """`indices` ascend; their chunks fit one answer together."""

    kind: str
    root: BlobRoot
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """`have`: mask of the chunks that came. `heard`: the news of the last answer, at first 0."""

    kind: str
    root: BlobRoot
    heard: int
    orphans: tuple[int, ...]
    have: int


Request = FindRequest | ChunksRequest | ShareRequest


@dataclass(frozen=True, slots=True)
class Found:
    """`following_bytes` of the manifest come in frames of their own.

    `have`: mask of the chunks that are here; None: all of them.
    """

    have: int | None
    manifest: bytes = b""  # its beginning
    following_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Chunks:
    """One payload for each index asked for; None where it is not here."""

    payloads: tuple[memoryview | None, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    reason: Refusal


@dataclass(frozen=True, slots=True)
class Shared:
    """Masks of chunks: of those to be asked for, and of those that others have."""

    news: int
    offered: int
    holders: tuple[tuple[NodeId, int], ...]


Answer = Found | Chunks | Shared | Refused


def encode_request(request: Request) -> bytes:
    match request:
        case FindRequest(kind, root, with_manifest):
            return canonical.encode(["find", kind, root, with_manifest])
        case ChunksRequest(kind, root, indices):
            return canonical.encode(["chunks", kind, root, list(indices)])
        case ShareRequest(kind, root, heard, orphans, have):
            return canonical.encode(["share", kind, root, heard, list(orphans), _bitmap(have)])
        case _:
            assert_never(request)


def decode_request(payload: bytes) -> Request:
    """Raises PeerFault "malformed"."""
    match _decoded(payload, SHARE_REQUEST_BYTES_MAX):
        case ["find", kind, root, bool() as with_manifest]:
            return FindRequest(_kind_of(kind), _root_of(root), with_manifest)
        case ["chunks", kind, root, list() as indices]:
            if not 1 <= len(indices) <= CHUNKS_PER_REQUEST_MAX:
                raise PeerFault("malformed", f"{len(indices)} chunks in one request")
            for index in indices:
                _check_number(index, 0, CHUNKS_MAX - 1)
            if any(left >= right for left, right in zip(indices, indices[1:], strict=False)):
                raise PeerFault("malformed", "chunk indices ascend")
            return ChunksRequest(_kind_of(kind), _root_of(root), tuple(indices))
        case ["share", kind, root, heard, list() as orphans, bytes() as bitmap]:
            if len(orphans) > ORPHANS_MAX or len(bitmap) > BITMAP_BYTES_MAX:
                raise PeerFault("malformed", f"{len(orphans)} orphans, {len(bitmap)} bytes of bits")
            for number in orphans:
                _check_number(number, 0, CHUNKS_MAX - 1)
            _check_number(heard, 0, NEWS_MAX)
            have = int.from_bytes(bitmap, "little")
            return ShareRequest(_kind_of(kind), _root_of(root), heard, tuple(orphans), have)
    raise PeerFault("malformed", "no request has this form")


def encode_found(found: Found) -> bytes:
    have, follow = found.have, found.following_bytes
    if have is None:
        return _with_header(["found", follow, -1], found.manifest)
    bitmap = _bitmap(have)
    return _with_header(["found", follow, len(bitmap)], bitmap, found.manifest)


def encode_chunks(payloads: Sequence[bytes | memoryview | None]) -> bytes:
    sizes = [-1 if payload is None else len(payload) for payload in payloads]
    return _with_header(["chunks", sizes], *(p for p in payloads if p is not None))


def lay_out_chunks(sizes: Sequence[int], buffer: bytearray) -> tuple[memoryview, memoryview]:
    """(frame, body) inside `buffer`: the frame is an answer once its body has been filled.

    Saves the copy of encode_chunks. `buffer` has FRAME_BYTES_MAX bytes.
    """
    packed = canonical.encode(["chunks", list(sizes)])
    assert len(packed) <= HEADER_BYTES_MAX
    start = _LENGTH.size + len(packed)
    frame = memoryview(buffer)[: start + sum(sizes)]
    frame[:start] = _LENGTH.pack(len(packed)) + packed
    return frame, frame[start:]


def encode_shared(shared: Shared) -> bytes:
    offered = _bitmap(shared.offered)
    bitmaps = [_bitmap(mask) for _, mask in shared.holders]
    named: list[canonical.Value] = [
        [node, len(bitmap)] for (node, _), bitmap in zip(shared.holders, bitmaps, strict=True)
    ]
    return _with_header(["shared", shared.news, len(offered), named], offered, *bitmaps)


def encode_refused(reason: Refusal) -> bytes:
    return _with_header(["refused", str(reason)])


def missing_bytes(frame: bytes) -> int:
    """How much of the answer that begins with this frame is still to come; raises PeerFault."""
    if len(frame) != PIECE_BYTES:
        return 0
    header, body = _header_and_body(frame)
    match header:
        case ["chunks", list() as sizes]:
            return max(0, _total_of(sizes) - len(body))
    return 0


def decode_answer(frame: bytes) -> Answer:
    """Raises PeerFault "malformed". Payloads are views of the frame, nothing is copied."""
    header, body = _header_and_body(frame)
    match header:
        case ["found", following_bytes, bitmap_bytes]:
            _check_number(bitmap_bytes, -1, min(len(body), BITMAP_BYTES_MAX))
            manifest = bytes(body[max(bitmap_bytes, 0) :])
            _check_number(following_bytes, 0, MANIFEST_BYTES_MAX - len(manifest))
            have = None if bitmap_bytes < 0 else int.from_bytes(body[:bitmap_bytes], "little")
            return Found(have, manifest, following_bytes)
        case ["chunks", list() as sizes]:
            return Chunks(_split(body, sizes))
        case ["shared", news, offered_bytes, list() as named]:
            return _shared(news, offered_bytes, named, body)
        case ["refused", str() as reason] if reason in _REASONS:
            _check_empty(body)
            return Refused(Refusal(reason))
    raise PeerFault("malformed", "no answer has this form")


def check_bits(mask: int, manifest: Manifest) -> None:
    """Raises PeerFault "malformed" for chunks that the blob has not.

    Whoever says what it has of a small blob with the bits of the largest has us count all of them.
    """
    if mask >> len(manifest.sizes):
        raise PeerFault("malformed", f"bits behind the blob's {len(manifest.sizes)} chunks")


def _with_header(header: list[canonical.Value], *body: bytes | memoryview) -> bytes:
    packed = canonical.encode(header)
    assert len(packed) <= HEADER_BYTES_MAX
    return b"".join((_LENGTH.pack(len(packed)), packed, *body))


def _header_and_body(frame: bytes) -> tuple[Any, memoryview]:
    if len(frame) < _LENGTH.size:
        raise PeerFault("malformed", "an answer has a header")
    (header_bytes,) = _LENGTH.unpack_from(frame)
    if header_bytes > HEADER_BYTES_MAX:
        raise PeerFault("malformed", f"header of {header_bytes} bytes")
    start = _LENGTH.size + header_bytes
    return _decoded(frame[_LENGTH.size : start], HEADER_BYTES_MAX), memoryview(frame)[start:]


def _total_of(sizes: list[Any]) -> int:
    if not 1 <= len(sizes) <= CHUNKS_PER_REQUEST_MAX:
        raise PeerFault("malformed", f"{len(sizes)} chunks in one answer")
    for size in sizes:
        _check_number(size, -1, CHUNK_BYTES_MAX)
    total: int = sum(size for size in sizes if size > 0)
    if total > ANSWER_BYTES_MAX:
        raise PeerFault("malformed", f"{total} bytes of chunks in one answer")
    return total


def _split(body: memoryview, sizes: list[Any]) -> tuple[memoryview | None, ...]:
    total = _total_of(sizes)
    if total != len(body):
        raise PeerFault("malformed", f"sizes add up to {total}, {len(body)} bytes came")
    payloads: list[memoryview | None] = []
    at = 0
    for size in sizes:
        payloads.append(None if size < 0 else body[at : at + size])
        at += max(size, 0)
    return tuple(payloads)


def _shared(news: Any, offered_bytes: Any, named: list[Any], body: memoryview) -> Shared:
    _check_number(news, 0, NEWS_MAX)
    if len(named) > TOLD_MAX:
        raise PeerFault("malformed", f"{len(named)} holders in one answer")
    nodes, sizes = [], [offered_bytes]
    for each in named:
        match each:
            case [bytes() as node, size] if len(node) == DIGEST_BYTES:
                nodes.append(NodeId(node))
                sizes.append(size)
            case _:
                raise PeerFault("malformed", "a holder is a node and the bytes of a bitmap")
    for size in sizes:
        _check_number(size, 0, BITMAP_BYTES_MAX)
    if sum(sizes) != len(body):
        raise PeerFault("malformed", f"bitmaps of {sum(sizes)} bytes, {len(body)} bytes came")
    masks, at = [], 0
    for size in sizes:
        masks.append(int.from_bytes(body[at : at + size], "little"))
        at += size
    return Shared(news, masks[0], tuple(zip(nodes, masks[1:], strict=True)))


def _bitmap(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def _check_empty(body: memoryview) -> None:
    if len(body):
        raise PeerFault("malformed", f"{len(body)} bytes after the header")


def _decoded(payload: bytes, size_bytes_max: int) -> Any:
    try:
        return canonical.decode(payload, size_bytes_max)
    except NotCanonical as fault:
        raise PeerFault("malformed", str(fault)) from None


def _kind_of(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= KIND_BYTES_MAX:
        raise PeerFault("malformed", "a kind is a short word")
    return value


def _root_of(value: Any) -> BlobRoot:
    if not isinstance(value, bytes) or len(value) != DIGEST_BYTES:
        raise PeerFault("malformed", f"a root has {DIGEST_BYTES} bytes")
    return BlobRoot(value)


def _check_number(value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise PeerFault("malformed", f"{value!r:.20} is no number from {low} to {high}")


IN_TURN = _with_header(["in turn"])  # the request waits: others of the same peer are answered first
