"""What a host has trained on, shown where checks are drawn: batches that nobody else has.

Where data are each host's own and the genesis says `reveal`, a boundary holds the batches of the
segment that it ends, so that its root, which the Offer names, commits its author to them before
anybody can know what is drawn. A checker takes the steps again on these and not on data of its own.
It proves that the steps follow from the batches shown; that they come from anywhere it does not.

A step's record has B * (T + 1) little-endian int32, its windows, or B rows of F fp32 and then B
int32: pictures and their classes. A boundary has room for `segment_steps` of them; what the segment
does not fill is zero, as is all of it in a round's first boundary.

Legend: B examples of a batch, T tokens of a window, F features of a picture.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from daa_node.tensors import Int64Array, UInt8Array
from daa_node.training.data_config import DataConfig
from daa_node.training.datasets.examples import Batch, Examples
from daa_node.training.model_config import ModelConfig

ROOM_BYTES_MAX = 2**26  # of a boundary: as much as 4 million parameters in it
INT32, FP32 = np.dtype("<i4"), np.dtype("<f4")


def step_bytes(data: DataConfig, model: ModelConfig, batch_size: int) -> int:
    """Of the record of one step; 0 where nothing is revealed."""
    if not data.reveal:
        return 0
    if data.are_pictures:
        return batch_size * (_features(model) * FP32.itemsize + INT32.itemsize)
    return batch_size * (model.context + 1) * INT32.itemsize


def why_unchecked(data: DataConfig, is_checked: bool, room_bytes: int) -> str | None:
    """Why nobody could check such contributions, or nobody would; None if all is well."""
    if data.kind == "local" and is_checked and not data.reveal:
        return (
            "data: nobody else has what a host trains on with kind local, and so nobody can "
            "take its steps again: set spot_checks.share to [0, 1], which gives up that who "
            "only says that it trains is found (docs/threats.md, 'Data of each host's own'), or "
            "data.reveal, which shows the batches of contributions to all members"
        )
    if data.reveal and not is_checked:
        return "data.reveal: nobody is checked with spot_checks.share [0, 1]; leave it out"
    if room_bytes > ROOM_BYTES_MAX:
        return (
            f"data.reveal: the batches of one segment are {room_bytes} bytes, at most "
            f"{ROOM_BYTES_MAX}: have more spot_checks.segments, or fewer steps or smaller batches"
        )
    return None


class RevealedExamples:
    """Examples that note what they show, or show what somebody else has noted."""

    def __init__(
        self, examples: Examples, data: DataConfig, model: ModelConfig, batch_size: int
    ) -> None:
        self._examples = examples
        self._pictures = data.are_pictures
        self._model = model
        self._rows = batch_size
        self._step_bytes = step_bytes(data, model, batch_size)
        self._noted: list[bytes] | None = None  # since the last boundary, while a round is trained
        self._shown: Iterator[Batch] | None = None  # instead of ours

    @property
    def train_count(self) -> int:
        return self._examples.train_count

    @property
    def heldout_count(self) -> int:
        return self._examples.heldout_count

    @property
    def tokens_each(self) -> int:
        return self._examples.tokens_each

    def train(self, indices_B: Int64Array) -> Batch:
        if self._shown is not None:
            return next(self._shown)
        batch = self._examples.train(indices_B)
        if self._noted is not None:
            self._noted.append(self._record(batch))
        return batch

    def heldout(self, indices_B: Int64Array) -> Batch:
        return self._examples.heldout(indices_B)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """A round of ours, from its first boundary to its last."""
        self._noted = []
        try:
            yield
        finally:
            self._noted = None

    def noted(self, segment_steps: int) -> UInt8Array:
        """The records since the last call, in a boundary's room for them."""
        assert self._noted is not None, "only in a round of ours"
        room = np.zeros(segment_steps * self._step_bytes, np.uint8)
        records = b"".join(self._noted)
        room[: len(records)] = np.frombuffer(records, np.uint8)
        self._noted = []
        return room

    @contextmanager
    def showing(self, room: UInt8Array, steps: int) -> Iterator[None]:
        """Instead of ours, the batches of a boundary. Raises ValueError where they are none."""
        records = [self._batch(room, step) for step in range(steps)]
        self._shown = iter(records)
        try:
            yield
        finally:
            self._shown = None

    def _record(self, batch: Batch) -> bytes:
        if self._pictures:
            inputs, targets = batch.inputs.astype(FP32), batch.targets.astype(INT32)
            return inputs.tobytes() + targets.tobytes()
        windows = np.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1)
        return windows.astype(INT32).tobytes()

    def _batch(self, room: UInt8Array, step: int) -> Batch:
        record = room[step * self._step_bytes : (step + 1) * self._step_bytes]
        if record.size < self._step_bytes:
            raise ValueError(f"no batch of step {step}")
        if self._pictures:
            inputs = record[: -self._rows * INT32.itemsize].view(FP32)
            targets = record[-self._rows * INT32.itemsize :].view(INT32).astype(np.int64)
            if not np.isfinite(inputs).all():
                raise ValueError(f"a picture of step {step} holds what is no number")
            return Batch(
                inputs.reshape(self._rows, -1).astype(np.float32),
                _within(targets, self._model.classes, step),
            )
        windows = record.view(INT32).reshape(self._rows, -1).astype(np.int64)
        windows = _within(windows, self._model.vocabulary, step)
        return Batch(windows[:, :-1], windows[:, 1:])


def _within(numbers: Int64Array, limit: int, step: int) -> Int64Array:
    if numbers.min() < 0 or numbers.max() >= limit:
        raise ValueError(f"step {step}: a number that is not from 0 to {limit - 1}")
    return numbers


def _features(model: ModelConfig) -> int:
    return model.picture_channels * model.picture_side**2
