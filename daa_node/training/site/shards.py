"""One rank's share of a model: FSDP2's shards of its parameters, and AdamW on them.

A step of a site is data parallel: each rank has a part of the batch, the gradients are summed and
each rank keeps of the sum what belongs to its shards (ZeRO: Rajbhandari et al. 2020; FSDP: Zhao et
al. 2023). Weights and moments come from the site's board and go back there: memory that all ranks
of a host map, so that no vector of the whole model crosses a socket.

Legend: D parameters of the model; of a tensor a rank has the rows that torch.chunk would give it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from daa_node.errors import TrainerFailed, UserError
from daa_node.tensors import Float32Array, TensorSlot, TensorSpec, slots_of
from daa_node.training.config import InnerConfig
from daa_node.training.datasets.examples import Batch
from daa_node.training.engine import NORM_EPSILON, adamw
from daa_node.training.models.frozen import make_float32
from daa_node.training.models.module import ModuleLoss
from daa_node.training.models.parameters import LossFunction

WEIGHTS, FIRST, SECOND = range(3)  # rows of the board, (3, D) fp32


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's part of a batch, and what its mean loss counts for in the batch's own."""

    batch: Batch
    weight: float


@dataclass(frozen=True, slots=True)
class _Shard:
    """One tensor's rows here: `value` is the parameter's own memory."""

    parameter: nn.Parameter
    value: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor
    start: int  # in the flat vector
    stop: int

    def gradient(self) -> Tensor:
        gradient: Any = self.parameter.grad
        return torch.zeros_like(self.value) if gradient is None else gradient.to_local()


class Shards:
    """A model that `ranks` processes hold together."""

    def __init__(
        self,
        config: InnerConfig,
        specs: tuple[TensorSpec, ...],
        loss: LossFunction,
        mesh: DeviceMesh,
        board_3D: Float32Array,
    ) -> None:
        self._config = config
        self._ranks = mesh.size()
        self._board = torch.from_numpy(board_3D)
        self._device = torch.device(mesh.device_type)
        module, names = _module_of(specs, loss)
        for block in blocks_of(module):
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
        self._module = module
        sharded = dict(module.named_parameters())  # others than before
        parameters = [sharded[name] for name in names]
        slots = slots_of(specs)
        rank = mesh.get_local_rank()
        shards = (
            self._shard_of(slot, parameter, rank)
            for slot, parameter in zip(slots, parameters, strict=True)
        )
        self._shards = [shard for shard in shards if shard.start < shard.stop]

    def _shard_of(self, slot: TensorSlot, parameter: nn.Parameter, rank: int) -> _Shard:
        rows, row = slot.spec.shape[0], slot.spec.size // slot.spec.shape[0]
        each = -(-rows // self._ranks)
        first, last = (min(at * each, rows) for at in (rank, rank + 1))
        sharded: Any = parameter
        value: Tensor = sharded.to_local().detach()
        assert value.numel() == (last - first) * row, "FSDP2 shards as torch.chunk does"
        moments = torch.zeros_like(value), torch.zeros_like(value)
        steps = torch.zeros((), dtype=torch.float32, device=value.device)
        at = slot.start + first * row, slot.start + last * row
        return _Shard(parameter, value, *moments, steps, *at)

    def load(self, adam_steps: int | None) -> None:
        """The weights that lie on the board and, with their count of steps, the moments."""
        for shard in self._shards:
            shard.value.copy_(self._there(WEIGHTS, shard))
            if adam_steps is not None:
                shard.first.copy_(self._there(FIRST, shard))
                shard.second.copy_(self._there(SECOND, shard))
                shard.steps.fill_(adam_steps)

    def store(self) -> None:
        """Back to the board, weights and moments."""
        for shard in self._shards:
            self._there(WEIGHTS, shard).copy_(shard.value)
            self._there(FIRST, shard).copy_(shard.first)
            self._there(SECOND, shard).copy_(shard.second)

    def _there(self, row: int, shard: _Shard) -> Tensor:
        return self._board[row, shard.start : shard.stop].view(shard.value.shape)

    def step(self, share: Share, lr: float) -> Tensor:
        """One step of the whole site; the loss of the whole batch. Raises TrainerFailed."""
        self._module.train()
        for shard in self._shards:
            shard.parameter.grad = None
        loss = self._loss_of(share.batch) * share.weight
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            gradients = [shard.gradient() for shard in self._shards]
            squares = [gradient.double().square().sum() for gradient in gradients]
            told = torch.stack([loss.detach().double(), sum(squares, loss.detach().double() * 0)])
            dist.all_reduce(told)
            clip = self._config.grad_clip
            scale = (clip / (told[1].sqrt() + NORM_EPSILON)).clamp(max=1.0).float()
            for gradient in gradients:
                gradient.mul_(scale)
            for shard in self._shards:
                shard.steps.add_(1)
            memory = (
                [shard.first for shard in self._shards],
                [shard.second for shard in self._shards],
                [shard.steps for shard in self._shards],
            )
            values = [shard.value for shard in self._shards]
            if values:
                adamw(self._config, lr, values, gradients, memory)
            mean: Tensor = (told[0] / self._ranks).float().cpu()
        return mean

    def loss(self, share: Share) -> float:
        """The loss of the whole batch. Raises TrainerFailed."""
        self._module.eval()
        with torch.no_grad():
            told = (self._loss_of(share.batch) * share.weight).double().reshape(1)
            dist.all_reduce(told)
        return float(told.item()) / self._ranks

    def _loss_of(self, batch: Batch) -> Tensor:
        inputs = torch.from_numpy(batch.inputs).to(self._device)
        targets = torch.from_numpy(batch.targets).to(self._device)
        try:
            loss = self._module(inputs, targets)
        except Exception as fault:
            raise TrainerFailed(f"{type(fault).__name__}: {fault}") from fault
        if not isinstance(loss, Tensor) or loss.ndim != 0:
            raise TrainerFailed("forward returned no scalar loss")
        return loss


def check_shardable(specs: tuple[TensorSpec, ...]) -> None:
    """Raises UserError for a model that has tensors without rows."""
    for spec in specs:
        if not spec.shape or spec.size == 0:
            raise UserError(
                f"trainer.devices: {spec.name} has the shape {list(spec.shape)}, and rows are what "
                "several devices share; name one device in trainer.device instead"
            )


def check_frozen(loss: LossFunction) -> None:
    """The same for what somebody's model computes with beside what is trained."""
    if isinstance(loss, ModuleLoss):
        module = loss.opened.module
        check_shardable(tuple(TensorSpec(n, tuple(p.shape)) for n, p in module.named_parameters()))


def _module_of(
    specs: tuple[TensorSpec, ...], loss: LossFunction
) -> tuple[nn.Module, Sequence[str]]:
    """What is sharded, and its own names of what is trained, in the order of the vector."""
    if isinstance(loss, ModuleLoss):
        opened = loss.opened
        make_float32(opened.module.parameters())  # what is sharded together has one dtype
        names = {id(p): name for name, p in opened.module.named_parameters()}
        return opened.module, [names[id(p)] for p in opened.parameters.values()]
    plain = _AsModule(specs, loss)
    return plain, [name for name, _ in plain.named_parameters()]


class _AsModule(nn.Module):
    """A model that is a function of its tensors."""

    def __init__(self, specs: tuple[TensorSpec, ...], loss: LossFunction) -> None:
        super().__init__()
        self._loss = loss
        self._names = {f"tensor_{index}": spec.name for index, spec in enumerate(specs)}
        for name, spec in zip(self._names, specs, strict=True):
            self.register_parameter(name, nn.Parameter(torch.zeros(spec.shape)))

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        views = {of: getattr(self, name) for name, of in self._names.items()}
        return self._loss(views, inputs, targets)


def blocks_of(module: nn.Module) -> Iterator[nn.Module]:
    """What is gathered by itself, so that a device never holds the whole model: members of lists.

    One that shares a parameter with the rest is none: it would be sharded twice.
    """
    uses: dict[int, int] = {}
    for _, parameter in module.named_parameters(remove_duplicate=False):
        uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    for part in module.modules():
        if not isinstance(part, nn.ModuleList):
            continue
        for block in part:
            inner = [id(p) for _, p in block.named_parameters(remove_duplicate=False)]
            is_whole = bool(inner) and all(uses[id_] == inner.count(id_) for id_ in inner)
            if is_whole and type(block).forward is not nn.Module.forward:
                yield block
