"""A Core trains somebody's module: the same steps as plain torch, checked as any other."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.errors import TrainerFailed, UserError
from daa_node.seams import SegmentOrder, StateRef, TrainOrder
from daa_node.tensors import Int32Array, slots_of
from daa_node.training.batches import batch_indices
from daa_node.training.boundaries import Boundary
from daa_node.training.config import TrainingJob
from daa_node.training.core import Core, open_core
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.engine import NORM_EPSILON
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.module_probe import probe
from daa_node.training.module_source import NO_MODULES, find_source, load_build
from daa_node.training.sealed_claims import Claim
from daa_node.updates.grid import to_float32
from tests.daa_node.training.own_modules import (
    LANGUAGE_MODEL,
    access,
    built,
    job_of,
    pictures,
    write_package,
)
from tests.daa_node.training.probed_modules import probed

ROOT = BlobRoot(bytes(32))
SEED, AUTHOR = Digest(b"s" * 32), NodeId(b"a" * 32)
ORDER = TrainOrder(
    base=StateRef(ROOT, ROOT),
    seed=SEED,
    round=1,
    author=AUTHOR,
    steps_max=4,
    stop_after_s=60.0,
    codec="int8",
    first_step=0,
    segment_steps=2,
)


def core_of(job: TrainingJob, directory: Path) -> Core:
    return open_core(job, torch.device("cpu"), directory / "cache", lambda: 0.0, access(directory))


def kept(boundary: Boundary) -> Boundary:
    return replace(
        boundary,
        weights_D=boundary.weights_D.copy(),
        first_D=boundary.first_D.copy(),
        second_D=boundary.second_D.copy(),
    )


def learns_and_is_checked(core: Core, base_D: Int32Array, falls_nats: float) -> None:
    """It trains for two segments; the second is checked as it is, and with a lie."""
    shown = list[Boundary]()
    before = core.evaluate(base_D)
    order = replace(ORDER, steps_max=30, segment_steps=15)
    sealed = core.train_and_seal(order, base_D, on_boundary=lambda b: shown.append(kept(b)))
    shown.append(kept(sealed.end))
    assert sealed.trained.loss_nats < before - falls_nats
    segment = SegmentOrder(SEED, 1, AUTHOR, 0, 15, 15, ROOT, ROOT, None)
    found = core.check_segment(segment, Claim(shown[1], shown[2], None))
    assert (found.weights, found.first, found.second) == (0, 0, 0)
    lie = replace(shown[2], weights_D=shown[2].weights_D * 1.01)
    assert core.check_segment(segment, Claim(shown[1], lie, None)).weights > 5e-3
    assert core.evaluate(base_D) == before


@pytest.mark.parametrize("data", ["shakespeare", "digits"])
def test_its_loss_falls_and_a_segment_of_it_is_checked(tmp_path: Path, data: str) -> None:
    write_package(tmp_path, pictures() if data == "digits" else LANGUAGE_MODEL)
    job = probed(job_of(data), tmp_path)
    learns_and_is_checked(core_of(job, tmp_path), genesis_weights(job.model, job.seed), 0.1)


def test_its_first_step_is_that_of_torch(tmp_path: Path) -> None:
    write_package(tmp_path, pictures())
    job = probed(job_of(), tmp_path)
    core, shown = core_of(job, tmp_path), list[Boundary]()
    base_D = genesis_weights(job.model, job.seed)
    order = replace(ORDER, steps_max=2, segment_steps=1)
    core.train_and_seal(order, base_D, on_boundary=lambda b: shown.append(kept(b)))
    path = job.model.path or ""
    plain = load_build(path, find_source(path, access(tmp_path)), access(tmp_path))()
    start = torch.from_numpy(to_float32(base_D))
    by_name = dict(plain.named_parameters())
    for slot in slots_of(job.model.tensors()):
        by_name[slot.spec.name].data = start[slot.start : slot.stop].view(slot.spec.shape).clone()
    inner = job.inner
    optimiser = torch.optim.AdamW(
        plain.parameters(),
        lr=inner.lr,
        betas=(inner.beta1, inner.beta2),
        weight_decay=inner.weight_decay,
    )
    examples = open_examples(job.data, job.model, tmp_path)
    batch = examples.train(batch_indices(SEED, 1, AUTHOR, 0, 8, examples.train_count))
    plain(torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)).backward()
    torch.nn.utils.clip_grad_norm_(plain.parameters(), inner.grad_clip + NORM_EPSILON)
    optimiser.step()
    flat = torch.cat([by_name[spec.name].detach().flatten() for spec in job.model.tensors()])
    assert torch.allclose(torch.from_numpy(shown[1].weights_D), flat, atol=1e-6)
    assert not torch.equal(start, flat)


def test_chance_in_training_is_no_part_of_the_held_out_loss(tmp_path: Path) -> None:
    dropout = "def hidden(self, x):\n    return F.dropout(self.layer(x), 0.5, self.training)"
    write_package(tmp_path, pictures(dropout))
    job = job_of()
    job = built(job, probe(job, access(tmp_path), is_checked=False))
    core, base_D = core_of(job, tmp_path), genesis_weights(job.model, job.seed)
    before = core.evaluate(base_D)
    core.train_and_seal(replace(ORDER, segment_steps=0), base_D)
    assert core.evaluate(base_D) == before


def test_no_canonical_kernels_take_its_steps(tmp_path: Path) -> None:
    write_package(tmp_path, pictures())
    core = core_of(probed(job_of(), tmp_path), tmp_path)
    exact = SegmentOrder(SEED, 1, AUTHOR, 0, 0, 1, ROOT, ROOT, None, exact=True)
    with pytest.raises(TrainerFailed, match="no canonical kernels take steps of somebodys_model"):
        core.canary(0)
    with pytest.raises(TrainerFailed, match="no canonical kernels"):
        core.open_segment(exact, core_start(core), lambda _boundary: None)


def core_start(core: Core) -> Boundary:
    settled = core.inner_state().settled
    return Boundary(settled.first_D, settled.first_D, settled.second_D, None, 0)


def test_a_module_with_other_tensors_than_the_genesis_is_refused(tmp_path: Path) -> None:
    write_package(tmp_path, pictures())
    job = probed(job_of(), tmp_path)
    found = job.model.built
    assert found is not None
    wider = found.tensors[0].model_copy(update={"shape": (9, 64)})
    for tensors, what in [
        ((wider, *found.tensors[1:]), r"layer.weight of shape \[8, 64\], where the genesis has"),
        (found.tensors[:-1], "builds 4 tensors, and the genesis has 3"),
    ]:
        other = built(job, found.model_copy(update={"tensors": tensors}))
        with pytest.raises(UserError, match=what):
            core_of(other, tmp_path)


def test_a_core_runs_no_module_unless_it_is_told_to(tmp_path: Path) -> None:
    write_package(tmp_path, pictures())
    job = probed(job_of(), tmp_path)
    with pytest.raises(UserError, match="trainer.allow_modules"):
        open_core(job, torch.device("cpu"), tmp_path, lambda: 0.0, NO_MODULES)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("self.head.weight.data = self.head.weight.data.clone()", "put another tensor for head"),
        ("raise KeyError('x')", "somebodys_model.model:build: KeyError: 'x'"),
        ("return inputs", r"returned shape \(8, 64\), not a scalar"),
    ],
)
def test_what_goes_wrong_in_a_step_fails_the_round_and_not_the_worker(
    tmp_path: Path, change: str, what: str
) -> None:
    changes = (
        "calls = 0\n\ndef forward(self, inputs, targets):\n    self.calls += 1\n"
        f"    if self.calls > 3:\n        {change}\n"
        "    return F.cross_entropy(self.head(self.hidden(inputs)), targets)"
    )
    write_package(tmp_path, pictures(changes))
    job = probed(job_of(), tmp_path)
    order = replace(ORDER, steps_max=8, segment_steps=0)
    with pytest.raises(TrainerFailed, match=what):
        core_of(job, tmp_path).train_and_seal(order, genesis_weights(job.model, job.seed))
