"""Whether a contribution begins where it must: told from manifests, without a parameter of them.

At a round's start the weights are the certified base, and what the optimiser and error feedback
remember is what the author's newest merged contribution has left, or nothing. What error feedback
owes does not change before the seal, so that the seal follows from the residual of any boundary
before the last. A boundary is cut anew at each vector, so that equal vectors have equal chunks.
"""

from collections.abc import Sequence
from functools import cache
from typing import Protocol

from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, Digest, NodeId, VertexId, digest_of
from daa_node.errors import PeerFault
from daa_node.seams import StateRef
from daa_node.spot_checks.findings import Part
from daa_node.spot_checks.lot import Draw

NO_BOUNDARY = "it is no boundary of this job"


class Manifests(Protocol):
    """What authors committed to, cut into chunks. Each raises NodeError when it cannot be had.

    A PeerFault is the author's: what it has committed to is no boundary of this job.
    """

    async def manifest(self, author: NodeId, root: BlobRoot) -> Manifest: ...

    async def last_boundary(self, merged: VertexId, author: NodeId) -> BlobRoot | None: ...

    async def base_manifest(self, base: StateRef) -> Manifest: ...


async def named_fault(
    manifests: Manifests,
    drawn: Draw,
    base: StateRef,
    merged: VertexId | None,
    sizes: Sequence[int],
    shown: int = 0,
) -> tuple[Part, str] | None:
    """What of a drawn contribution names alone prove to be wrong, and why; None if nothing.

    `merged` is the newest vertex at or below the base that has merged work of its author. `sizes`
    are those of a boundary's chunks, of which the last `shown` hold batches. Raises NodeError.
    """
    try:
        return await _named_fault(manifests, drawn, base, merged, sizes, shown)
    except PeerFault:  # the author has committed to it
        return Part.START, NO_BOUNDARY


async def _named_fault(
    manifests: Manifests,
    drawn: Draw,
    base: StateRef,
    merged: VertexId | None,
    sizes: Sequence[int],
    shown: int,
) -> tuple[Part, str] | None:
    author, roots = drawn.offer.author, drawn.offer.snapshot_roots
    before = None
    first = await manifests.manifest(author, BlobRoot(roots[0]))
    of_base = await manifests.base_manifest(base)
    # Whoever has lost its disk begins with nothing, and cannot show what it had before either.
    continues = first.sizes == tuple(sizes) and not remembers_nothing(first, of_base)
    if merged is not None and continues:
        last = await manifests.last_boundary(merged, author)
        before = None if last is None else await manifests.manifest(author, last)
    why = why_not(first, of_base, before, sizes, shown)
    if why is not None:
        return Part.START, why
    ends = [BlobRoot(root) for root in roots[:-1][drawn.segment : drawn.segment + 2]]
    others = [await manifests.manifest(author, root) for root in ends]
    sealed = await manifests.manifest(author, BlobRoot(roots[-1]))
    if any(one.sizes != first.sizes for one in (*others, sealed)):
        return Part.START, NO_BOUNDARY
    if not owe_the_same(first, of_base, others, shown):
        return Part.OWED, "what it owes changes before the seal"
    return None


def why_not(
    start: Manifest,
    base: Manifest,
    before: Manifest | None,
    sizes: Sequence[int],
    shown: int = 0,
) -> str | None:
    """What a first boundary does not continue; None if it is as it must be.

    `base` is that of the base's weights as fp32; `before` that of the last boundary of the author's
    newest merged contribution, None if it has none. `sizes` are those of a boundary's chunks, of
    which the last `shown` hold batches, none before the first step.
    """
    if start.sizes != tuple(sizes):
        return NO_BOUNDARY
    count = len(base.sizes)
    if start.digests[:count] != base.digests:
        return "its weights are not the base's"
    if remembers_nothing(start, base):
        return None
    state = slice(count, len(sizes) - shown)
    if before is None or start.digests[state] != before.digests[state]:
        return "what it remembers is not what the author's newest merged contribution has left"
    return None


def remembers_nothing(start: Manifest, base: Manifest) -> bool:
    """Whether all of this boundary but its weights is zero."""
    count = len(base.sizes)
    return start.digests[count:] == tuple(_of_zeros(size) for size in start.sizes[count:])


def owe_the_same(
    start: Manifest, base: Manifest, others: Sequence[Manifest], shown: int = 0
) -> bool:
    """Whether these boundaries, all but a round's last, hold the residual that it began with."""
    first = 3 * len(base.sizes)  # behind the weights and two moments
    owed = slice(first, len(start.sizes) - shown - 1)
    return all(other.digests[owed] == start.digests[owed] for other in others)


@cache
def _of_zeros(size: int) -> Digest:
    return digest_of(bytes(size))
