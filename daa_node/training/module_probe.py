"""Build somebody's module once, try it, and say what a genesis has to know of it.

A process of its own (see one_question): "is_checked" tells whether others train its steps again.
Tried is what would spoil a network later: a loss that is none, one that chance plays a part in,
what a step changes beside the trainable parameters, and a language model that sees what it is to
predict.
"""

from collections.abc import Mapping
from math import isfinite, sqrt
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from daa_dag.ids import Digest, digest_of
from daa_node.errors import TrainerFailed, UserError
from daa_node.tensors import Float32Array, TensorSpec
from daa_node.training.base_weights import grid_weights, root_of
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.datasets.built import build_examples
from daa_node.training.models import causal_lm
from daa_node.training.models.module import ModuleLogits, ModuleLoss, Opened
from daa_node.training.models.opening import build_model, maker_of, source_of
from daa_node.training.models.parameters import FlatParameters, Views
from daa_node.training.module_config import BuiltModule, ModuleTensor
from daa_node.training.module_source import ModuleAccess
from daa_node.training.one_question import answer_one
from daa_node.updates.grid import GRID_ONE
from daa_node.updates.initial_weights import STD_MAX

WINDOWS = 2  # of the batch that it is tried on
# A mean of chance alone is so many deviations of a mean off in one tensor of 16,000.
CHANCE_DEVIATIONS = 4
APART_MAX = 1e-4  # of two gradients: more than a device that does not repeat itself rounds
SMALLEST = 1e-30
SEEN_MIN = 1e-5  # of the largest logit: more than sums of another order are apart


def probe(job: TrainingJob, access: ModuleAccess, is_checked: bool) -> BuiltModule:
    """`is_checked`: others train its steps again. Raises UserError for what none can train."""
    model = job.model
    source = source_of(model, access)
    with maker_of(model, source, access) as make:
        opened = build_model(model, make, job.seed)
        if source is not None:
            _check_constants(opened, build_model(model, make, job.seed + 1))
    at_base = model.base is not None and model.adapters is None
    try:
        tensors = tuple(
            ModuleTensor(name=name, shape=tuple(parameter.shape))
            if at_base
            else _tensor(opened, name, parameter)
            for name, parameter in opened.parameters.items()
        )
        found = BuiltModule(
            source_digest=None if source is None else source.digest,
            release=causal_lm.release() if model.kind == "hf_causal_lm" else None,
            tensors=tensors,
            base_root=root_of(grid_weights(opened)) if at_base else None,
            frozen=_frozen(opened) or None,
        )
    except ValidationError as invalid:
        wrong = invalid.errors()[0]
        raise UserError(
            f"the model {model.label}: no genesis can name its tensors: {wrong['msg']} "
            f"(got {str(wrong['input'])[:80]!r})"
        ) from None
    _try(job, opened, is_checked, _batch(job, access))
    return found


def _frozen(opened: Opened) -> int:
    """How many numbers it computes with beside those that are trained."""
    trained = {id(parameter) for parameter in opened.parameters.values()}
    return sum(p.numel() for p in opened.module.parameters() if id(p) not in trained)


def _tensor(opened: Opened, name: str, parameter: nn.Parameter) -> ModuleTensor:
    """Starts like the module's own: constant as that is, or of its mean and deviation."""
    values_D: Float32Array = parameter.detach().numpy().reshape(-1)
    if values_D.size == 0 or not np.isfinite(values_D).all():
        raise UserError(f"the model {opened.label}: {name} is empty, or holds what is no number")
    exact_D = values_D.astype(np.float64)
    mean, std = float(exact_D.mean()), float(exact_D.std())
    if (values_D == values_D[0]).all():
        mean, std = float(values_D[0]), 0.0
    elif abs(mean) <= CHANCE_DEVIATIONS * std / sqrt(values_D.size):
        mean = 0.0
    if round(std * GRID_ONE) > STD_MAX:
        raise UserError(
            f"the model {opened.label}: {name} starts with a deviation of {std:.3g}, at most "
            f"{STD_MAX // GRID_ONE} is possible"
        )
    return ModuleTensor(
        name=name,
        shape=tuple(parameter.shape),
        std=round(std * GRID_ONE),
        fill=round(mean * GRID_ONE),
    )


def _constants(module: nn.Module) -> Mapping[str, Tensor]:
    """All that it computes with beside what is trained."""
    frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return {**dict(module.named_buffers()), **frozen}


def _check_constants(opened: Opened, other: Opened) -> None:
    """Two builds of different seeds have the same ones."""
    again = _constants(other.module)
    for name, constant in _constants(opened.module).items():
        if name not in again or not torch.equal(constant, again[name]):
            raise UserError(
                f"the model {opened.label}: {name} comes out otherwise each time, and only "
                "trainable parameters are agreed between nodes: make it a parameter that requires "
                "a gradient, or give it fixed values"
            )


def _try(job: TrainingJob, opened: Opened, is_checked: bool, batch: tuple[Tensor, Tensor]) -> None:
    specs = [TensorSpec(name, tuple(p.shape)) for name, p in opened.parameters.items()]
    parameters = FlatParameters(specs, torch.device("cpu"))
    parameters.load(torch.cat([p.detach().reshape(-1) for p in opened.parameters.values()]))
    before = {name: _digest(constant) for name, constant in _constants(opened.module).items()}
    loss_of = ModuleLoss(opened)
    taken: list[tuple[float, Tensor]] = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        parameters.gradient_D.zero_()
        try:
            loss = loss_of(parameters.views, *batch)
            loss.backward()  # type: ignore[no-untyped-call]
        except (TrainerFailed, RuntimeError) as fault:
            shapes = " and ".join(f"{list(part.shape)} {part.dtype}" for part in batch)
            raise UserError(
                f"the model cannot be trained on data of kind {job.data.kind}: {fault} "
                f"(inputs and targets are {shapes})"
            ) from None
        taken.append((float(loss.detach()), parameters.gradient_D.clone()))
    (loss_nats, gradient_D), (_, again_D) = taken
    if not isfinite(loss_nats) or not bool(torch.isfinite(gradient_D).all()):
        raise UserError(f"the model {opened.label}: its first loss, or gradient, is no number")
    apart = float((gradient_D - again_D).norm() / gradient_D.norm().clamp(min=SMALLEST))
    if is_checked and apart > APART_MAX:
        raise UserError(
            f"the model {opened.label}: two gradients of one batch are {apart:.1e} apart, so "
            "nobody can check its steps by training them again: leave out what draws by chance, as "
            "dropout does, or switch checks off in the job, spot_checks: {share: [0, 1]}"
        )
    for name, constant in _constants(opened.module).items():
        if _digest(constant) != before[name]:
            raise UserError(
                f"the model {opened.label}: a step changes {name}, and only trainable parameters "
                "are agreed between nodes: of batch norm take another kind, or no running "
                "statistics"
            )
    if job.model.kind == "hf_causal_lm":
        _check_causal(opened, parameters.views, batch[0])


def _check_causal(opened: Opened, views: Views, tokens_BT: Tensor) -> None:
    """The library makes one of a model for gaps in a text, too: its loss falls to nothing."""
    logits_of = ModuleLogits(opened)
    with torch.no_grad():
        logits_BTV = logits_of(views, tokens_BT)
        others_BT = tokens_BT.clone()
        others_BT[:, -1] = (others_BT[:, -1] + 1) % logits_BTV.shape[-1]
        apart_BTV = logits_of(views, others_BT)[:, :-1] - logits_BTV[:, :-1]
    if apart_BTV.abs().max() > SEEN_MIN * logits_BTV.abs().max():
        raise UserError(
            f"the model {opened.label}: what it makes of a token depends on those after it, which "
            "it is to predict: take a causal language model (of BERT's kin one with `is_decoder: "
            "true` in its config)"
        )


def _digest(constant: Tensor) -> Digest:
    """Of its bytes: a copy of a large base would take as much memory again."""
    return digest_of(constant.detach().reshape(-1).view(torch.uint8).numpy().data)


def _batch(job: TrainingJob, access: ModuleAccess) -> tuple[Tensor, Tensor]:
    """In the shapes of the job's data; of what may come, the largest is there."""
    if job.data.kind == "dataset":
        seen = build_examples(job.data, job.model, access, job.data.digest).train(np.arange(1))
        return torch.from_numpy(seen.inputs), torch.from_numpy(seen.targets)
    chance, model = torch.Generator().manual_seed(0), job.model
    if job.data.are_pictures:
        features = model.picture_channels * model.picture_side**2
        pictures = torch.rand(WINDOWS, features, generator=chance) - 0.5
        return pictures, torch.full((WINDOWS,), model.classes - 1)
    tokens = torch.randint(model.vocabulary, (WINDOWS, model.context + 1), generator=chance)
    tokens[0] = model.vocabulary - 1
    return tokens[:, :-1], tokens[:, 1:]


def answer(job: TrainingJob, config: TrainerConfig, request: dict[str, Any]) -> Any:
    """As JSON holds it. Raises UserError."""
    return probe(job, ModuleAccess.of(config), request["is_checked"]).model_dump(mode="json")


if __name__ == "__main__":
    answer_one(answer)
