"""Names for things: 32-byte blake3 digests, one NewType a kind of thing.

An id never covers signatures: ML-DSA signing is randomised and quorums differ, so certificates are
detached from what they certify.
"""

from collections.abc import Sequence
from typing import NewType

from blake3 import blake3

from daa_dag import canonical

DIGEST_BYTES = 32
ONE_BYTE_NUMBERS = 128  # what msgpack packs into a single byte: 0 to 127

Digest = NewType("Digest", bytes)  # of raw bytes: a chunk, a file
BlobRoot = NewType("BlobRoot", bytes)  # of a manifest of chunks; names a whole blob
NodeId = NewType("NodeId", bytes)
ChainId = NewType("ChainId", bytes)
BlockId = NewType("BlockId", bytes)
VertexId = NewType("VertexId", bytes)
ContributionRoot = NewType("ContributionRoot", bytes)  # binds author and base vertex
ValidatorSetRoot = NewType("ValidatorSetRoot", bytes)


def digest_of(payload: bytes | bytearray | memoryview) -> Digest:
    """blake3 of raw bytes."""
    return Digest(blake3(payload).digest())


def tagged_digest(kind: str, value: canonical.Value) -> bytes:
    """blake3 of the canonical bytes of `["daa/v1/<kind>", value]`: no two kinds share an id."""
    return blake3(canonical.encode(["daa/v1/" + kind, value])).digest()


def numbered_digests(kind: str, fields: Sequence[canonical.Value], count: int) -> list[bytes]:
    """`tagged_digest(kind, [*fields, number])` of each number below `count`, at most 128.

    So small a number is the encoding's last byte, and all before it is encoded once.
    """
    assert count <= ONE_BYTE_NUMBERS
    head = canonical.encode(["daa/v1/" + kind, [*fields, 0]])[:-1]
    return [blake3(head + bytes([number])).digest() for number in range(count)]


def node_id_of(ml_dsa_public_key: bytes) -> NodeId:
    """`blake3("daa/v1/node" || public key)`: a node's lasting name."""
    return NodeId(blake3(b"daa/v1/node" + ml_dsa_public_key).digest())
