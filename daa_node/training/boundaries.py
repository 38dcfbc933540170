"""Inner states that an author commits to: at a round's start, every so many steps, and at its end.

A boundary is all that the next step depends on beside its batch. Its blob is w | m | v | r | t:
weights, AdamW's two moments, what error feedback owes (absent without it), each of D little-endian
fp32, and the steps in the moments, int64; behind them the batches that led here, where they are
revealed. It is cut anew at each vector, so that two manifests tell
which of their vectors are the same. At the start w is the certified base; m, v, r and t are those
of the end of the author's newest merged contribution, or all zero. The end comes after the sealing:
its r is what the seal has left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daa_dag.chunking import Manifest, cut, manifest_of
from daa_node.tensors import Float32Array, UInt8Array

BOUNDARIES = "boundaries"  # the kind of blobs that our own are
CLAIMED = "claimed"  # and the kind that others' are while we check them
DISPUTED = "disputed"  # and while there is a dispute over them
RESIDUAL = 3  # the number of its part, where there is error feedback
FP32 = np.dtype("<f4")
COUNT = np.dtype("<i8")


# Of the parts of a round's end, by its memory_id: what was hashed of it before.
Ends = dict[int, list[Manifest]]


@dataclass(frozen=True, slots=True)
class Carried:
    """What a contribution hands on to the author's next one; vectors of shape (D,), fp32."""

    first_D: Float32Array
    second_D: Float32Array
    residual_D: Float32Array  # what merged updates left unsent; zeros without error feedback
    adam_steps: int
    memory_id: int | None = None  # see Boundary
    file: Path | None = None  # whose map the vectors are, see memory_files
    is_lost: bool = False  # a crash has left anything in the file


@dataclass(frozen=True, slots=True)
class Boundary:
    """An inner state; vectors of shape (D,), fp32."""

    weights_D: Float32Array
    first_D: Float32Array
    second_D: Float32Array
    residual_D: Float32Array | None  # None without error feedback
    adam_steps: int
    # Two of one process with the same have the same moments, steps and residual.
    memory_id: int | None = None
    # Batches of the segment that ends here; None unless they are shown (see training.revealed).
    revealed: UInt8Array | None = None

    def parts(self) -> list[memoryview]:
        """The blob in its parts, as bytes; the arrays' own memory where that is little-endian."""
        vectors = [self.weights_D, self.first_D, self.second_D]
        if self.residual_D is not None:
            vectors.append(self.residual_D)
        count = np.array([self.adam_steps], COUNT)
        return [
            *[np.ascontiguousarray(v, FP32).data.cast("B") for v in vectors],
            count.data.cast("B"),
            *([] if self.revealed is None else [self.revealed.data.cast("B")]),
        ]

    def part_manifests(self, known: Mapping[int, Manifest]) -> list[Manifest]:
        """Of each of `parts`, by its number; those that are `known` are not hashed."""
        return [
            known[number] if number in known else manifest_of(part, cut([part.nbytes]))
            for number, part in enumerate(self.parts())
        ]

    def manifest(self) -> Manifest:
        return joined(self.part_manifests({}))


def joined(parts: Sequence[Manifest]) -> Manifest:
    """Of a blob of these, one after another."""
    return Manifest(
        tuple(size for one in parts for size in one.sizes),
        tuple(digest for one in parts for digest in one.digests),
    )


def open_boundary(
    blob: UInt8Array, parameter_count: int, error_feedback: bool, is_revealed: bool = False
) -> Boundary:
    """Views of a blob, in which batches are as long as they are. Raises ValueError for its size."""
    want_bytes = sum(_part_bytes(parameter_count, error_feedback))
    if blob.size < want_bytes or (blob.size > want_bytes and not is_revealed):
        raise ValueError(f"a boundary of {blob.size} bytes; this job's have {want_bytes}")
    revealed = blob[want_bytes:] if is_revealed else None
    blob = blob[:want_bytes]
    vectors_D = blob[: -COUNT.itemsize].view(FP32).reshape(-1, parameter_count)
    (adam_steps,) = blob[-COUNT.itemsize :].view(COUNT)
    first_D, second_D = vectors_D[1], vectors_D[2]
    residual_D = vectors_D[3] if error_feedback else None
    steps = int(adam_steps)
    return Boundary(vectors_D[0], first_D, second_D, residual_D, steps, revealed=revealed)


def boundary_chunks(
    parameter_count: int, error_feedback: bool, revealed_bytes: int = 0
) -> tuple[int, ...]:
    """Sizes of a boundary's chunks in bytes: there is only one way to cut it."""
    state_bytes = _part_bytes(parameter_count, error_feedback)
    return tuple(cut([*state_bytes, revealed_bytes] if revealed_bytes else state_bytes))


def boundary_steps(steps: int, segment_steps: int) -> tuple[int, ...]:
    """After how many of a round's `steps` a boundary lies, ascending; none if segments have none.

    The first is 0, the last `steps`; between two there is a segment, and the last may be shorter.
    """
    return (*range(0, steps, segment_steps), steps) if segment_steps else ()


def _part_bytes(parameter_count: int, error_feedback: bool) -> list[int]:
    vectors = 4 if error_feedback else 3
    return [parameter_count * FP32.itemsize] * vectors + [COUNT.itemsize]
