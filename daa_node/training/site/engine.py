"""The Engine of a site: several devices of one host take each step together, as one node.

    spawn --ready, all--> join --joined, all--> load | step | store | loss, in the same order by all
      `--- refused: UserError                      a rank that fails or ends: the worker ends

The batch of the genesis is divided, so that a site takes the very steps that one device would, but
for the order in which gradients are summed. A broken group cannot be mended: the worker says whose
fault it was and ends, and the daemon starts another one by its ordinary rule.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from daa_node.errors import UserError
from daa_node.tensors import Float32Array
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.core import choose_device, loss_of
from daa_node.training.datasets.examples import Batch
from daa_node.training.engine import Moments, Optimiser
from daa_node.training.messages import Message
from daa_node.training.models.parameters import PIECE_PARAMETERS
from daa_node.training.module_source import ModuleAccess
from daa_node.training.site.followers import Follower, end_after_cause
from daa_node.training.site.rank import (
    FAULTS,
    TOGETHER_S,
    WHY_CHARS_MAX,
    board_bytes,
    join,
    map_board,
    said_share,
)
from daa_node.training.site.shards import (
    FIRST,
    SECOND,
    WEIGHTS,
    Shards,
    Share,
    check_frozen,
    check_shardable,
)
from daa_node.updates.grid import Weights, float32_piece

T = TypeVar("T")


class Site:
    """An Engine: this process is its first rank."""

    def __init__(
        self,
        device: torch.device,
        shards: Shards,
        followers: list[Follower],
        board_3D: Float32Array,
    ) -> None:
        self.device = device
        self.memory_device = torch.device("cpu")  # whole vectors, which no device need hold
        self.ranks = 1 + len(followers)
        self._shards = shards
        self._followers = followers
        self._board_3D = board_3D
        self._optimiser: Optimiser | None = None
        self._adam_steps = 0

    def begin(self, base_D: Weights, optimiser: Optimiser) -> None:
        moments = optimiser.moments()
        np.copyto(self._board_3D[FIRST], moments.first_D)
        np.copyto(self._board_3D[SECOND], moments.second_D)
        self._optimiser, self._adam_steps = optimiser, moments.steps
        self._load(base_D, moments.steps)

    def step(self, batch: Batch, lr: float) -> Tensor:
        first = self._divide(batch, {"verb": "step", "lr": lr})
        self._adam_steps += 1
        return _or_end(lambda: self._shards.step(first, lr))

    def gather(self) -> None:
        assert self._optimiser is not None, "steps begin somewhere"
        self._all({"verb": "store"}, self._shards.store)
        first_D, second_D = self._board_3D[FIRST], self._board_3D[SECOND]
        self._optimiser.set_moments(Moments(first_D, second_D, self._adam_steps))

    def values(self) -> Float32Array:
        weights_D: Float32Array = self._board_3D[WEIGHTS]
        return weights_D

    def load(self, values_D: Weights) -> None:
        self._load(values_D, None)

    def loss(self, batch: Batch) -> float:
        first = self._divide(batch, {"verb": "loss"})
        return _or_end(lambda: self._shards.loss(first))

    def _load(self, values_D: Weights, adam_steps: int | None) -> None:
        weights_D = self._board_3D[WEIGHTS]
        for start in range(0, weights_D.size, PIECE_PARAMETERS):
            stop = min(start + PIECE_PARAMETERS, weights_D.size)
            weights_D[start:stop] = float32_piece(values_D, start, stop)
        message = {"verb": "load", "adam_steps": adam_steps}
        self._all(message, lambda: self._shards.load(adam_steps))

    def _all(self, message: Message, ours: Callable[[], None]) -> None:
        """Done by all ranks when it returns."""
        for follower in self._followers:
            follower.tell(message)
        _or_end(ours)
        for follower in self._followers:
            follower.answer(TOGETHER_S)

    def _divide(self, batch: Batch, message: Message) -> Share:
        """Tells the others their shares; ours."""
        first, *others = shares_of(batch, self.ranks)
        for follower, share in zip(self._followers, others, strict=True):
            for piece in said_share(share):
                follower.tell({"verb": "share", **piece})
            follower.tell(message)
        return first


def shares_of(batch: Batch, ranks: int) -> list[Share]:
    """Each rank's; who has no example of a small batch repeats the first, which counts nothing."""
    count, shares = len(batch.inputs), []
    for rows in np.array_split(np.arange(count), ranks):
        shown = rows if rows.size else np.zeros(1, np.int64)
        part = Batch(batch.inputs[shown], batch.targets[shown])
        shares.append(Share(part, rows.size * ranks / count))
    return shares


def open_site(job: TrainingJob, config: TrainerConfig, directory: Path) -> Site:
    """Starts the other ranks and meets them.

    Raises UserError where a device is not there, or the model may not run here or cannot be shared.
    """
    if sys.platform != "linux":
        raise UserError(
            "trainer.devices: several devices of one host train together on Linux alone; name one "
            "in trainer.device"
        )
    specs, ranks = job.model.tensors(), len(config.devices)
    check_shardable(specs)
    device = choose_device(config.devices[0])
    size = job.model.parameter_count()
    board = os.memfd_create("site")
    os.ftruncate(board, board_bytes(size))
    followers = [Follower(rank, ranks, board) for rank in range(1, ranks)]
    meeting = directory / f"site-{os.getpid()}"
    start: Message = {"job": job.model_dump_json(), "trainer": config.model_dump_json()}
    start |= {"meeting": str(meeting), "ranks": ranks, "board": board}
    for rank, follower in enumerate(followers, 1):
        follower.tell({"start": {**start, "rank": rank}})
    for follower in followers:
        said = follower.answer(config.start_timeout_s)
        if "refused" in said:
            raise UserError(f"{follower.name}: {said['refused']}")
    loss = loss_of(job.model, job.seed, ModuleAccess.of(config))
    check_frozen(loss)
    for stale in directory.glob("site-*"):
        stale.unlink()
    for follower in followers:
        follower.tell({"join": ranks})
    board_3D = map_board(board, size)
    mesh = _or_end(lambda: join(0, ranks, device, meeting))
    for follower in followers:
        follower.answer(TOGETHER_S)
    meeting.unlink()
    shards = _or_end(lambda: Shards(job.inner, specs, loss, mesh, board_3D))
    return Site(device, shards, followers, board_3D)


def _or_end(act: Callable[[], T]) -> T:
    """What the others wait for in this very moment is done, or nothing is any more."""
    try:
        return act()
    except FAULTS as fault:
        end_after_cause(f"rank 0: {type(fault).__name__}: {fault}"[:WHY_CHARS_MAX])
