"""A piece of work as volunteers get it: what it is of, what is known of its result, and its truth.

Some entries of a list are spoilt by ourselves, so that whoever does not look cannot know them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite
from typing import Any

from blake3 import blake3

from daa_dag import canonical
from daa_dag.ids import digest_of
from daa_node.identity.keys import verify_once
from daa_node.spot_checks import pieces
from daa_node.wire.volunteer_messages import Result, TaskKind

# Whose results are one bit for each entry, and cost us a few milliseconds to find out ourselves.
IN_BITS = frozenset({TaskKind.CERTIFICATE, TaskKind.CHUNKS, TaskKind.DAG, TaskKind.SLICE})
DIGEST_BYTES, FLOAT64_BYTES = 32, 8
_SIZES = {
    TaskKind.LOSS: (FLOAT64_BYTES,),
    TaskKind.GRADIENT: (DIGEST_BYTES, FLOAT64_BYTES),
    TaskKind.SEGMENT: (DIGEST_BYTES, FLOAT64_BYTES, FLOAT64_BYTES, FLOAT64_BYTES),
}
_VERTEX_PREFIX = canonical.encode(["daa/v1/vertex", None])[:-1]  # of what an id is the digest of
PARENTS_SEEN_MAX = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """One task's contents. Lists go to the page as they are (docs/volunteers.md)."""

    kind: TaskKind
    about: Mapping[str, object]  # what it is of, for people: a height, an author
    parameters: Sequence[Any]
    blobs: Sequence[bytes]
    planted: frozenset[int] = field(default_factory=frozenset)  # entries that we have spoilt
    tolerance: tuple[int, int] = (0, 1)  # of a segment's distances, as a rational

    @property
    def size_bytes(self) -> int:
        """All that weighs in it."""
        return sum(map(len, self.blobs))

    @property
    def entries(self) -> int:
        """Of a result in bits."""
        match self.kind:
            case TaskKind.CERTIFICATE:
                return len(self.blobs) // 2
            case TaskKind.SLICE:
                return len(self.parameters[3])
            case _:
                return len(self.blobs)

    def has_form(self, result: Result) -> bool:
        """Whether it is a result of this piece at all, right or wrong."""
        if self.kind in IN_BITS:
            return len(result) == self.entries and all(bit in (0, 1) for bit in result)
        sizes = tuple(len(item) if isinstance(item, bytes) else -1 for item in result)
        return not result or sizes == _SIZES[self.kind]

    def is_seen_through(self, result: Result) -> bool:
        """Whether the entries that we have spoilt are found to be so."""
        return all(result[entry] == 0 for entry in self.planted)

    def is_sound(self, result: Result) -> bool:
        """Whether what the chain, or an author, says holds by this result."""
        if self.kind in IN_BITS:
            return all(bit for entry, bit in enumerate(result) if entry not in self.planted)
        distance = self.distance(result)
        return bool(result) and (distance is None or distance <= Fraction(*self.tolerance))

    def distance(self, result: Result) -> float | None:
        """The largest of a segment's; infinite where there is no answer."""
        if self.kind is not TaskKind.SEGMENT:
            return None
        found = [pieces.FLOAT64.unpack(item)[0] for item in result[1:] if isinstance(item, bytes)]
        return max(found) if found and all(map(isfinite, found)) else float("inf")

    def truth(self) -> Result:
        """What the result is. Takes as long as it takes: not on the event loop."""
        match self.kind:
            case TaskKind.CERTIFICATE:
                payload, context = self.parameters
                pairs = zip(self.blobs[::2], self.blobs[1::2], strict=True)
                return tuple(int(verify_once(k, s, payload, context)) for k, s in pairs)
            case TaskKind.CHUNKS:
                pairs = zip(self.parameters, self.blobs, strict=True)
                return tuple(int(digest_of(chunk) == digest) for digest, chunk in pairs)
            case TaskKind.DAG:
                return _links(self.parameters, self.blobs)
            case kind:
                return tuple(pieces.result_of(kind, self.parameters, self.blobs, _digest))


def _links(ids: Sequence[bytes], vertices: Sequence[bytes]) -> Result:
    bits = []
    for entry, (vertex_id, encoded) in enumerate(zip(ids, vertices, strict=True)):
        is_named = blake3(_VERTEX_PREFIX + encoded).digest() == vertex_id
        parents = _parents_of(encoded)
        bits.append(int(is_named and (not entry or parents == [ids[entry - 1]])))
    return tuple(bits)


def _parents_of(encoded: bytes) -> Any:
    value = canonical.decode(encoded, len(encoded))
    return value["parents"] if isinstance(value, dict) else None


def _digest(payload: bytes) -> bytes:
    return digest_of(payload)
