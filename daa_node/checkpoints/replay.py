"""A model state, stepped from delta to delta with numpy alone: no torch, no trust.

The state is two int32 vectors, 8 bytes a parameter, in memory or in mapped files, and no copy is
made of them; a root names each as its tensors' chunks.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from daa_dag.chunking import Manifest, cut, manifest_of
from daa_dag.ids import BlobRoot, digest_of
from daa_node.seams import StateRef
from daa_node.tensors import (
    GRID_DTYPE,
    Int32Array,
    TensorSpec,
    create_grid_vector,
    grid_sizes_bytes,
    parameter_count_of,
)
from daa_node.updates.compression.blob import Blob
from daa_node.updates.compression.delta import DeltaFormat
from daa_node.updates.outer_step import OuterRates, OuterState, apply_delta

WEIGHTS, MOMENTUM = "weights", "momentum"  # files of a room

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True)
class StateRules:
    """What a genesis says of states: their tensors, how they start and how they step."""

    tensors: tuple[TensorSpec, ...]
    # The D genesis weights, a chunk at a time, unless they have a root.
    first_weights: Callable[[], Iterable[Int32Array]]
    rates: OuterRates
    delta_format: DeltaFormat
    first_root: BlobRoot | None = None  # of weights from a file, which nobody can compute

    @cached_property
    def parameter_count(self) -> int:
        """D."""
        return parameter_count_of(self.tensors)

    @cached_property
    def chunk_sizes(self) -> list[int]:
        """How weights, and momentum alike, are cut."""
        return cut(grid_sizes_bytes(self.tensors))

    @cached_property
    def first_state(self) -> StateRef:
        """What the genesis vertex names: the first weights, and a momentum of zeros."""
        sizes = self.chunk_sizes
        first_root = self.first_root
        if first_root is None:
            digests = tuple(digest_of(piece_C.data.cast("B")) for piece_C in self.first_weights())
            assert len(digests) == len(sizes), "a piece for each chunk"
            first_root = Manifest(tuple(sizes), digests).root
        zeros = {size: digest_of(bytes(size)) for size in {*sizes}}
        momentum = Manifest(tuple(sizes), tuple(zeros[size] for size in sizes))
        return StateRef(first_root, momentum.root)


class ReplayedState:
    """One state; `start`, `load` or `apply` change it in place."""

    def __init__(self, rules: StateRules, room: Path | None = None) -> None:
        """All zeros, in files of the folder `room` if it is given. Raises OSError."""
        self._rules, count = rules, rules.parameter_count
        if room is None:
            self.weights_D: Int32Array = np.zeros(count, GRID_DTYPE)
            self.momentum_D: Int32Array = np.zeros(count, GRID_DTYPE)
        else:
            self.weights_D = create_grid_vector(room / WEIGHTS, count)
            self.momentum_D = create_grid_vector(room / MOMENTUM, count)

    def start(self) -> None:
        """Become the genesis state; of weights from a file it is a snapshot to `load`."""
        assert self._rules.first_root is None
        _fill(self.weights_D, (piece_C.data.cast("B") for piece_C in self._rules.first_weights()))
        self.momentum_D[:] = 0

    def load(self, weights: Iterable[Bytes], momentum: Iterable[Bytes]) -> None:
        """Become a snapshot: D little-endian int32 each, chunk by chunk.

        Raises ValueError for more or fewer.
        """
        _fill(self.weights_D, weights)
        _fill(self.momentum_D, momentum)

    def apply(self, delta: Blob) -> None:
        """One outer step. Raises PeerFault("bad_update") for a delta that no codec made."""
        delta_format = self._rules.delta_format
        delta_format.check(delta, self._rules.parameter_count)
        state = OuterState(self.weights_D, self.momentum_D)
        apply_delta(state, delta, self._rules.rates, state, delta_format)

    def manifests(self) -> tuple[Manifest, Manifest]:
        """Of the weights and of the momentum."""
        sizes = self._rules.chunk_sizes
        return manifest_of(self.weights_D.data, sizes), manifest_of(self.momentum_D.data, sizes)

    def ref(self) -> StateRef:
        weights, momentum = self.manifests()
        return StateRef(weights.root, momentum.root)


def _fill(vector_D: Int32Array, chunks: Iterable[Bytes]) -> None:
    whole, at = vector_D.data.cast("B"), 0
    for chunk in chunks:
        if at + len(chunk) > len(whole):
            break
        whole[at : at + len(chunk)] = chunk
        at += len(chunk)
    else:
        if at == len(whole):
            return
    raise ValueError(f"a snapshot of other than {len(whole)} bytes")


def delta_bytes_max(rules: StateRules) -> int:
    """The most that a delta of this network has."""
    return rules.delta_format.size_bytes_max(rules.parameter_count)
