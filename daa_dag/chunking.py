"""Blobs as chunks of at most 256 KiB, each a blake3 leaf; the manifest of chunks names the blob.

The root of a blob is the tagged digest of its manifest, so a chunk can be checked on arrival,
before the blob is whole and before anything touches disk. Model states start a new chunk at every
tensor: one tensor can be fetched alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from blake3 import blake3

from daa_dag import canonical
from daa_dag.errors import Malformed
from daa_dag.ids import DIGEST_BYTES, BlobRoot, Digest, digest_of, tagged_digest

CHUNK_BYTES_MAX = 256 * 1024
# 32 GiB of blob: four vectors of 2^30 fp32 are half of it. Such a manifest is 5 MB.
CHUNKS_MAX = 131_072
MANIFEST_BYTES_MAX = CHUNKS_MAX * (DIGEST_BYTES + 8) + 64


_KIND = "manifest"
_HEAD = canonical.encode(["daa/v1/" + _KIND, None])[:-1]  # of what a root is the digest of


@dataclass(frozen=True)
class Manifest:
    """The chunks of a blob in order: sizes in bytes and digests."""

    sizes: tuple[int, ...]
    digests: tuple[Digest, ...]

    @cached_property
    def root(self) -> BlobRoot:
        return BlobRoot(tagged_digest(_KIND, self._as_value()))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each chunk starts in the blob, in bytes."""
        starts, at = [], 0
        for size in self.sizes:
            starts.append(at)
            at += size
        return tuple(starts)

    @cached_property
    def size_bytes(self) -> int:
        return sum(self.sizes)

    def _as_value(self) -> canonical.Value:
        return [list(self.sizes), b"".join(self.digests)]

    def encode(self) -> bytes:
        return canonical.encode(self._as_value())


def root_of(encoded: bytes | bytearray) -> BlobRoot:
    """The root of the manifest that these bytes are, if they are one: nothing is decoded.

    A hundredth of the time and none of the memory that it takes to decode a stranger's.
    """
    return BlobRoot(blake3(_HEAD).update(encoded).digest())


def decode_manifest(payload: bytes) -> Manifest:
    """Raises Malformed (or NotCanonical) unless the bytes are one valid manifest."""
    value = canonical.decode(payload, MANIFEST_BYTES_MAX)
    match value:
        case [list() as sizes, bytes() as joined]:
            pass
        case _:
            raise Malformed("a manifest is a list of sizes and the joined digests")
    if not 1 <= len(sizes) <= CHUNKS_MAX or len(joined) != DIGEST_BYTES * len(sizes):
        raise Malformed(f"manifest with {len(sizes)} sizes and {len(joined)} bytes of digests")
    for size in sizes:
        if type(size) is not int or not 1 <= size <= CHUNK_BYTES_MAX:
            raise Malformed(f"chunk of {size!r} bytes; 1 to {CHUNK_BYTES_MAX} are allowed")
    digests = tuple(
        Digest(joined[at : at + DIGEST_BYTES]) for at in range(0, len(joined), DIGEST_BYTES)
    )
    return Manifest(tuple(sizes), digests)


def cut(sizes_bytes: Sequence[int], chunk_bytes: int = CHUNK_BYTES_MAX) -> list[int]:
    """Chunk sizes for consecutive parts (tensors) of the given sizes; each part starts a chunk."""
    assert 0 < chunk_bytes <= CHUNK_BYTES_MAX
    chunks: list[int] = []
    for part in sizes_bytes:
        whole, rest = divmod(part, chunk_bytes)
        chunks += [chunk_bytes] * whole + ([rest] if rest else [])
    return chunks


def manifest_of(payload: bytes | bytearray | memoryview, sizes: Sequence[int]) -> Manifest:
    """The manifest of `payload` cut into chunks of the given `sizes` (see `cut`)."""
    view = memoryview(payload).cast("B")
    if sum(sizes) != len(view):
        raise Malformed(f"chunk sizes add up to {sum(sizes)}, the blob has {len(view)} bytes")
    digests, at = [], 0
    for size in sizes:
        digests.append(digest_of(view[at : at + size]))
        at += size
    return Manifest(tuple(sizes), tuple(digests))
