"""What every worker does with the files of an order, whether it trains or not: numpy, no torch.

contributions --aggregate, outer step--> state and delta      delta --replay--> state
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from daa_dag.chunking import Manifest, cut, manifest_of
from daa_node.tensors import (
    Int32Array,
    UInt8Array,
    grid_sizes_bytes,
    open_grid_vector,
    reuse_grid_vector,
)
from daa_node.training.boundaries import Boundary, open_boundary
from daa_node.training.boundary_files import left_in
from daa_node.training.config import TrainingJob
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.messages import Message
from daa_node.training.sealed_claims import Claim, ClaimedSeal
from daa_node.updates.aggregation.rule import Rule, rule_named
from daa_node.updates.compression.delta import DeltaFormat
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
    apply_delta,
)

Merge = Callable[
    [OuterState, Sequence[Contribution], Rule, int, OuterRates, OuterState, DeltaFormat],
    UInt8Array,
]


class Merging:
    """Of one job. `merge` gives the same bits whatever computes them."""

    def __init__(self, job: TrainingJob, merge: Merge = aggregate_and_step) -> None:
        self._job = job
        self._merge = merge
        self._parameter_count = job.model.parameter_count()
        self._chunks = cut(grid_sizes_bytes(job.model.tensors()))
        self._rates = OuterRates(job.updates.outer_lr, job.updates.outer_momentum)
        self._delta_format = job.updates.delta_format

    def initial_state(self, order: Message) -> Message:
        """The genesis weights, and no momentum."""
        out = self._state_to_fill(order)
        genesis_weights(self._job.model, self._job.seed, out.weights_D)
        out.momentum_D[:] = 0
        return self._state_manifests(out)

    def aggregate_and_step(self, order: Message) -> Message:
        """A decided set's updates into a delta, and that into the next state."""
        contributions = [
            Contribution(map_blob(update["path"]), update["codec"], update["weight"])
            for update in order["updates"]
        ]
        out = self._state_to_fill(order)
        rule = rule_named(order["rule"])
        base, f_agg, coded = self._base(order), order["f_agg"], self._delta_format
        delta = self._merge(base, contributions, rule, f_agg, self._rates, out, coded)
        write_blob(Path(order["delta_out"]), delta)
        return {"delta": self.blob_manifest(delta).encode(), **self._state_manifests(out)}

    def apply_delta(self, order: Message) -> Message:
        """The same step again, from what it was agreed to be."""
        delta = map_blob(order["delta"])
        self._delta_format.check(delta, self._parameter_count)
        out = self._state_to_fill(order)
        apply_delta(self._base(order), delta, self._rates, out, self._delta_format)
        return self._state_manifests(out)

    def blob_manifest(self, blob: UInt8Array) -> Manifest:
        """Of an update or a delta."""
        return manifest_of(blob.data, cut([blob.size], self._job.updates.chunk_bytes))

    def weights(self, path: str) -> Int32Array:
        """Mapped, read-only, shape (D,)."""
        return open_grid_vector(Path(path), self._parameter_count)

    def boundary(self, path: str) -> Boundary:
        """Mapped, and ours to write: torch takes no array that is read-only."""
        blob = np.memmap(path, np.uint8, "c").view(np.ndarray)
        job, count = self._job, self._parameter_count
        return open_boundary(blob, count, job.updates.error_feedback, job.data.reveal)

    def left_boundaries(self, order: Message) -> Message:
        """Those that a worker before this one has left, hashed again: its author may be drawn."""
        room, count = Path(order["room"]), order["count"]
        return {"manifests": left_in(room, count, lambda path: self.boundary(str(path)))}

    def claim(self, order: Message) -> Claim:
        """What an order to check a segment is about."""
        update, sealed = order["update"], None
        if update is not None:
            base_D = None if update["model"] is None else self.weights(update["model"])
            last, blob = self.boundary(update["last"]), map_blob(update["path"])
            sealed = ClaimedSeal(base_D, last, blob, update["codec"])
        start, end = self.boundary(order["start"]), self.boundary(order["end"])
        origin = None if order["origin"] is None else self.boundary(order["origin"])
        return Claim(start, end, sealed, origin)

    def _base(self, order: Message) -> OuterState:
        return OuterState(self.weights(order["model"]), self.weights(order["outer"]))

    def _state_to_fill(self, order: Message) -> OuterState:
        """Every parameter is to be written: the files may be retired ones that hold anything."""
        model_out, outer_out = Path(order["model_out"]), Path(order["outer_out"])
        return OuterState(
            reuse_grid_vector(model_out, self._parameter_count),
            reuse_grid_vector(outer_out, self._parameter_count),
        )

    def _state_manifests(self, state: OuterState) -> Message:
        return {
            "model": manifest_of(state.weights_D.data, self._chunks).encode(),
            "outer": manifest_of(state.momentum_D.data, self._chunks).encode(),
        }


def map_blob(path: str) -> UInt8Array:
    return np.memmap(path, np.uint8, "r").view(np.ndarray)


def write_blob(path: Path, blob: UInt8Array) -> None:
    """Into a fresh file, or over a retired one."""
    with path.open("r+b" if path.exists() else "xb") as file:
        file.write(blob.data)
        file.truncate()
