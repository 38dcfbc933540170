"""Whether one contribution of a set is a copy of another: told from sampled values, in integers.

Two updates that were trained on different batches share a signal, and each has noise of its own.
Their distance is `1 - cos^2` of what they hold, where the largest sixteenth of magnitudes is cut:
so neither a few huge values tell alone, nor the many tiny ones that come of weight decay. A factor
changes nothing of it; another codec, or noise of r times the update's length, about r^2. Two are
copies if they are at most 0.04 apart and at most a quarter of what f + 1 others are from either,
where agreement survives f liars: one of f + 1 is honest, and early in training, with large batches,
honest updates come near each other, but then all of them do. Where there are fewer others, they are
copies at 0.001.

Nobody can make two honest updates look like copies: they are judged by themselves and by how far
honest ones are. Nor can anybody make up an update for the sample: its seed covers the roots of all
contributions of the set, so that it is drawn when all are committed to.

Measured (benchmarks/honest_copies.py, tests/daa_node/spot_checks/test_copies_in_training.py):
honest pairs of a byte GPT are 0.15 apart or more with 4 windows a step, 0.06 with 32; of a small
MLP 0.29, and where a batch is most of all examples 0.02, which is three times the limit there;
with top_k 0.79. Copies with noise of a tenth are at most 0.012 apart, int8 that is coded anew as
int4 0.032; noise of a fifth gets by. N contributions, C values.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from blake3 import blake3

from daa_dag.ids import ContributionRoot, Digest, tagged_digest
from daa_node.tensors import Float64Array, Int32Array, Int64Array
from daa_node.updates.compression.blob import Blob
from daa_node.updates.compression.codec import Codec, codec_named

MILLIONTHS: Final = 1_000_000  # in which distances are told
NEARLY_SAME: Final = 1_000  # noise of 3 hundredths: where there are too few others to go by
MUCH_TOO_NEAR: Final = 40_000  # noise of a fifth
TIMES_NEARER: Final = 4  # than to others
SAMPLED_VALUES = 16_384  # of a dense update: 256 blocks
SAMPLED_BLOCKS_MIN = 8  # of top_k: 512 values that it keeps, among 32,768
TOLD_MIN = 64  # values that are not zero; of fewer nothing can be told
LIMIT = 1023  # what the largest values come to: products of 32,768 add up to 2^35 at most, exactly
DRAW_BYTES = 8

Matrix = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Update:
    """A contribution's blob, which passed its codec's check."""

    blob: Blob
    codec: str


@dataclass(frozen=True)
class Likeness:
    """Of the contributions of a set, by their place in it; `apart` is in millionths."""

    apart: Matrix
    liars_max: int

    @cached_property
    def copies(self) -> tuple[frozenset[int], ...]:
        """Of each one those that it was made from, or that were made from it."""
        places = range(len(self.apart))
        return tuple(
            frozenset(other for other in places if self._is_copy(one, other)) for one in places
        )

    def _is_copy(self, one: int, other: int) -> bool:
        """The same both ways: which of the two was first, nobody can tell from them."""
        apart = self.apart[one][other]
        if one == other or apart > MUCH_TOO_NEAR:
            return False
        least = min(self.to_others(one, other), self.to_others(other, one))
        return TIMES_NEARER * apart <= least

    def to_others(self, one: int, but: int) -> int:
        """No more than one honest other is away."""
        away, place = self._sorted[one], self.liars_max
        if len(away) - 1 <= place:
            return TIMES_NEARER * NEARLY_SAME
        return away[place + (self.apart[one][but] >= away[place])]  # as if `but` were not in it

    @cached_property
    def _sorted(self) -> Matrix:
        """How far the others of each are away, the farthest first."""
        return [
            sorted((*row[:one], *row[one + 1 :]), reverse=True)
            for one, row in enumerate(self.apart)
        ]

    def origins(self, zeroed: Collection[int]) -> dict[int, int]:
        """Of which one that counts each of `zeroed` is a copy; who may not be zeroed is missing.

        All zeroed copies of one are copies of each other, too: so an update that is near many
        honest ones, their mean, stands for one of them at most.
        """
        found = {}
        for one in zeroed:
            for origin in sorted(self.copies[one].difference(zeroed)):
                siblings = self.copies[origin].intersection(zeroed) - {one}
                if siblings <= self.copies[one]:
                    found[one] = origin
                    break
        return found

    def later_copies(self, order: Sequence[int]) -> frozenset[int]:
        """Whom to zero, where contributions came in this order."""
        zeroed, counted = frozenset[int](), frozenset[int]()
        for one in order:
            tried = zeroed | {one}
            if self.copies[one] & counted and len(self.origins(tried)) == len(tried):
                zeroed = tried
            else:
                counted |= {one}
        return zeroed


def sample_seed(seed: Digest, roots: Sequence[ContributionRoot]) -> Digest:
    """What draws the sample of a set of these contributions; `seed` is that of the round's plan."""
    return Digest(tagged_digest("copies", [seed, *roots]))


def compare(
    updates: Sequence[Update], parameter_count: int, seed: Digest, liars_max: int
) -> Likeness:
    """How near the contributions of a set are to each other. Integers: the same on every host."""
    values_NC = np.stack([sampled(one, parameter_count, seed) for one in updates])
    return Likeness(distances(values_NC), liars_max)


def distances(values_NC: Float64Array) -> list[list[int]]:
    """`1 - cos^2` of each two rows of `sampled`, in millionths, rounded up; of a zero one, 1."""
    # Sums of integers under 2^53: exact in whichever order a BLAS takes them.
    dots_NN = (values_NC @ values_NC.T).astype(np.int64).astype(object)
    norms_N = np.diagonal(dots_NN)
    spans_NN = np.maximum(np.outer(norms_N, norms_N), 1)
    found: list[list[int]] = (MILLIONTHS - dots_NN * dots_NN * MILLIONTHS // spans_NN).tolist()
    return found


def sampled(update: Update, parameter_count: int, seed: Digest) -> Float64Array:
    """Integers of -1023 to 1023 that stand for one update; all zero if too little can be told.

    The sixteenth that is largest of those that are not zero is cut, so that no few outweigh the
    rest. Raises PeerFault for a blob that was damaged since it passed its codec's check.
    """
    return _cut(drawn_values(update, parameter_count, seed))


def drawn_values(
    update: Update, parameter_count: int, seed: Digest, values: int = SAMPLED_VALUES
) -> Int32Array:
    """An update in the blocks that the seed draws, on the grid; in the last block zeros as well.

    About so many `values` if the update is dense.

    Raises PeerFault as above.
    """
    codec = codec_named(update.codec)
    blocks_K = _drawn_blocks(codec, parameter_count, seed, values)
    values_C = np.empty(blocks_K.size * codec.block_parameters, np.int32)
    excerpt = codec.excerpt(update.blob, blocks_K, parameter_count)
    codec.check(excerpt, values_C.size, None)
    codec.decode_blocks(excerpt, 0, values_C.size, values_C)
    return values_C


def _drawn_blocks(codec: Codec, parameter_count: int, seed: Digest, values: int) -> Int64Array:
    """Which blocks, ascending: all, where there are no more than are wanted."""
    wanted = max(SAMPLED_BLOCKS_MIN, values // codec.block_parameters)
    count = -(-parameter_count // codec.block_parameters)
    if count <= wanted:
        return np.arange(count)
    draws = np.frombuffer(blake3(seed).digest(length=DRAW_BYTES * wanted), "<u8")
    return np.sort(draws % np.uint64(count)).astype(np.int64)


def _cut(values_C: Int32Array) -> Float64Array:
    magnitudes_E = np.abs(values_C[values_C != 0])
    if magnitudes_E.size < TOLD_MIN:
        return np.zeros(values_C.size)
    at = magnitudes_E.size * 15 // 16
    most = int(np.partition(magnitudes_E, at)[at])
    cut_C = np.clip(values_C, -most, most).astype(np.int64)
    return ((2 * LIMIT * cut_C + most) // (2 * most)).astype(np.float64)
