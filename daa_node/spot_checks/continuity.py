"""Whether a contribution begins where it must: told from manifests, without a parameter of them.

At a round's start the weights are the certified base, and what the optimiser and error feedback
remember is what the author's newest merged contribution has left, or nothing. What error feedback
owes does not change before the seal, so that the seal follows from the residual of any boundary
before the last. A boundary is cut anew at each vector, so that equal vectors have equal chunks.
"""

from collections.abc import Sequence
from functools import cache

from daa_dag.chunking import Manifest
from daa_dag.ids import Digest, digest_of


def why_not(
    start: Manifest, base: Manifest, before: Manifest | None, sizes: Sequence[int]
) -> str | None:
    """What a first boundary does not continue; None if it is as it must be.

    `base` is that of the base's weights as fp32; `before` that of the last boundary of the author's
    newest merged contribution, None if it has none. `sizes` are those of a boundary's chunks.
    """
    if start.sizes != tuple(sizes):
        return "it is no boundary of this job"
    count = len(base.sizes)
    if start.digests[:count] != base.digests:
        return "its weights are not the base's"
    memory = start.digests[count:]
    if memory == tuple(_of_zeros(size) for size in start.sizes[count:]):
        return None
    if before is None or memory != before.digests[count:]:
        return "what it remembers is not what the author's newest merged contribution has left"
    return None


def owe_the_same(start: Manifest, base: Manifest, others: Sequence[Manifest]) -> bool:
    """Whether these boundaries, all but a round's last, hold the residual that it began with."""
    first = 3 * len(base.sizes)  # behind the weights and two moments
    return all(other.digests[first:-1] == start.digests[first:-1] for other in others)


@cache
def _of_zeros(size: int) -> Digest:
    return digest_of(bytes(size))
