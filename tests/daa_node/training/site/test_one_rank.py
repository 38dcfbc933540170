"""A site of one process, in this one: what goes over the board, and what a rank does with it."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from daa_node.errors import TrainerFailed, UserError
from daa_node.tensors import Float32Array, TensorSpec, parameter_count_of
from daa_node.training.config import InnerConfig
from daa_node.training.datasets.examples import Batch
from daa_node.training.engine import Moments, Optimiser
from daa_node.training.models.module import ModuleLoss, Opened
from daa_node.training.models.parameters import LossFunction
from daa_node.training.site.engine import Site
from daa_node.training.site.rank import LOOPBACK, heard_share, join, said_share
from daa_node.training.site.shards import (
    FIRST,
    SECOND,
    WEIGHTS,
    Shards,
    Share,
    blocks_of,
    check_shardable,
)

CPU = torch.device("cpu")
ENVIRONMENT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
INNER = InnerConfig(lr=0.1, warmup_steps=0, batch_size=2, grad_clip=1.0)
SPECS = (TensorSpec("weight", (2, 3)), TensorSpec("bias", (2,)))
BATCH = Batch(np.ones((2, 3), np.float32), np.zeros(2, np.int64))


class Model(nn.Module):
    """It notes in which mode it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, 3))
        self.bias = nn.Parameter(torch.zeros(2))
        self.modes: list[bool] = []
        self.shape: tuple[int, ...] = ()

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.modes.append(self.training)
        loss = nn.functional.cross_entropy(inputs @ self.weight.T + self.bias, targets)
        return loss.reshape(self.shape) if self.shape else loss


@pytest.fixture
def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceMesh]:
    for name in ENVIRONMENT + INTERFACES:
        monkeypatch.setenv(name, "")  # what it was comes back
    yield join(0, 1, CPU, tmp_path / "meeting")
    dist.destroy_process_group()


def board() -> Float32Array:
    """Other numbers in each place."""
    count = parameter_count_of(SPECS)
    return np.arange(3 * count, dtype=np.float32).reshape(3, count)


def loss_of(model: Model) -> LossFunction:
    return ModuleLoss(Opened("m", model, dict(model.named_parameters())))


def test_who_joins_meets_the_others_on_this_host_alone(mesh: DeviceMesh) -> None:
    assert mesh.size() == 1
    assert [os.environ[name] for name in ENVIRONMENT] == ["0", "0", "1", "1"]
    assert {os.environ[name] for name in INTERFACES} == {LOOPBACK}


def test_moments_come_with_their_count_of_steps_and_stay_where_only_weights_come(
    mesh: DeviceMesh,
) -> None:
    board_3D, model = board(), Model()
    begun_3D = board_3D.copy()
    shards = Shards(INNER, SPECS, loss_of(model), mesh, board_3D)
    shards.load(5)
    assert [float(shard.steps) for shard in shards._shards] == [5, 5]
    board_3D += 1
    shards.load(None)
    board_3D[:] = 0
    shards.store()
    assert (board_3D[WEIGHTS] == begun_3D[WEIGHTS] + 1).all()
    assert (board_3D[FIRST] == begun_3D[FIRST]).all()
    assert (board_3D[SECOND] == begun_3D[SECOND]).all()
    assert [float(shard.steps) for shard in shards._shards] == [5, 5]


def test_it_trains_in_its_mode_and_judges_in_the_other(mesh: DeviceMesh) -> None:
    model = Model()
    shards = Shards(INNER, SPECS, loss_of(model), mesh, board())
    share = Share(BATCH, 1.0)
    before = [shards.loss(share), float(shards.step(share, 0.1)), shards.loss(share)]
    assert before[0] == pytest.approx(before[1])
    assert before[2] < before[1]
    shards.step(share, 0.1)
    assert model.modes == [False, True, False, True]
    halved = shards.loss(replace(share, weight=0.5))
    assert halved == pytest.approx(shards.loss(share) / 2)


def test_a_loss_that_is_no_scalar_fails(mesh: DeviceMesh) -> None:
    model = Model()
    model.shape = (1,)
    with pytest.raises(TrainerFailed, match="no scalar loss"):
        Shards(INNER, SPECS, loss_of(model), mesh, board()).loss(Share(BATCH, 1.0))


class Board:
    """In place of Shards: what lies on the board at each load, and what a store puts there."""

    def __init__(self, board_3D: Float32Array) -> None:
        self._board_3D = board_3D
        self.loaded: list[tuple[list[list[float]], int | None]] = []

    def load(self, adam_steps: int | None) -> None:
        self.loaded.append((self._board_3D.tolist(), adam_steps))

    def step(self, _share: Share, lr: float) -> Tensor:
        return torch.tensor(lr)

    def store(self) -> None:
        self._board_3D += 1


def test_a_site_begins_with_its_optimisers_moments_and_gives_them_back() -> None:
    """Also right after a start, when nothing lies on the board yet."""
    board_3D = np.zeros((3, 2), np.float32)
    shards: Any = Board(board_3D)
    site, optimiser = Site(CPU, shards, [], board_3D), Optimiser(2, CPU)
    optimiser.set_moments(Moments(np.array([3, 4], np.float32), np.array([5, 6], np.float32), 7))
    site.begin(np.array([1, 2], np.float32), optimiser)
    assert shards.loaded == [([[1, 2], [3, 4], [5, 6]], 7)]
    for _ in range(2):
        assert float(site.step(BATCH, 0.5)) == 0.5
    site.gather()
    assert site.values().tolist() == [2, 3]
    moments = optimiser.moments()
    assert (moments.first_D.tolist(), moments.second_D.tolist()) == ([4, 5], [6, 7])
    assert moments.steps == 9
    site.load(np.array([8, 9], np.float32))
    assert shards.loaded[1:] == [([[8, 9], [4, 5], [6, 7]], None)]


@pytest.mark.parametrize(("piece_bytes", "pieces"), [(40, 1), (39, 2), (1, 2)])
def test_a_share_is_heard_as_it_was_said(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int, pieces: int
) -> None:
    monkeypatch.setattr("daa_node.training.site.rank.PIECE_BYTES", piece_bytes)
    said = said_share(Share(BATCH, 0.25))
    assert len(said) == pieces
    share = heard_share(said)
    assert share.weight == 0.25
    for was, heard in ((BATCH.inputs, share.batch.inputs), (BATCH.targets, share.batch.targets)):
        assert heard.dtype == was.dtype
        assert heard.tolist() == was.tolist()
        assert heard.flags.writeable  # torch warns of what is not


def test_of_lists_what_runs_by_itself_and_has_numbers_is_gathered_by_itself() -> None:
    inner = nn.ModuleList([nn.Linear(2, 2)])
    module = nn.ModuleDict({"list": nn.ModuleList([nn.ReLU(), inner, nn.ModuleDict()])})
    assert list(blocks_of(module)) == [inner[0]]


def test_a_tensor_of_no_rows_cannot_be_shared() -> None:
    with pytest.raises(UserError, match=r"w has the shape \[0, 3\]"):
        check_shardable((TensorSpec("w", (0, 3)),))
