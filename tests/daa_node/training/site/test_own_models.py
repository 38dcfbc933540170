"""A site trains what others have made: a language model with its base, and a module that fails."""

from pathlib import Path
from time import perf_counter

import pytest
import torch

from daa_node.training.config import TrainingJob
from daa_node.training.core import open_core
from daa_node.training.module_probe import probe
from tests.daa_node.training.hf_models import GPT2, LLAMA, LORA, base_of, probed, save_model
from tests.daa_node.training.hf_models import job_of as causal_job
from tests.daa_node.training.own_modules import access, built, pictures, write_package
from tests.daa_node.training.own_modules import job_of as module_job
from tests.daa_node.training.site.test_site import (
    FLOOR,
    INNER,
    SEGMENT_STEPS,
    SITE,
    STEPS,
    distances,
    own_module,
)
from tests.daa_node.training.test_worker import train, worker

pytestmark = pytest.mark.usefixtures("warm")

SCALE = """
def extra(self):
    self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)
"""
GPT2_LORA = {"lora": {"rank": 3, "alpha": 4, "targets": ["c_attn"]}}
# what begins at a base has no first weights by lot, and the test's worker takes no others
STD = 300_000


def drawn(job: TrainingJob) -> TrainingJob:
    """The same, whose first weights are drawn."""
    found = job.model.built
    assert found is not None
    tensors = tuple(one.model_copy(update={"std": one.std or STD}) for one in found.tensors)
    return built(job, found.model_copy(update={"tensors": tensors, "base_root": None}))


@pytest.mark.parametrize(
    ("config", "trainable"),
    [(LLAMA, LORA), (GPT2, GPT2_LORA), (LLAMA, None), (LLAMA, ["model.norm.weight"])],
    ids=["llama-lora", "gpt2-lora", "llama-whole", "llama-one"],
)
def test_what_a_site_seals_of_a_language_model_is_what_one_device_replays(
    tmp_path: Path, config: dict[str, object], trainable: object
) -> None:
    base = base_of(save_model(tmp_path / "base", config))
    job = drawn(probed(causal_job(base=base, trainable=trainable)))
    job = job.model_copy(update={"inner": INNER})
    alone = open_core(job, torch.device("cpu"), tmp_path / "cache", perf_counter)
    with worker(tmp_path, job, SITE) as (line, _):
        line.wait_for("ready")
        line.send(train(tmp_path, 1, STEPS, -1, SEGMENT_STEPS, job))
        assert line.wait_for("done")["steps"] == STEPS
    found = distances(job, tmp_path, 1, alone)
    assert 0 < max(found) < FLOOR


@pytest.mark.parametrize("rank", [0, 1])
def test_a_module_that_raises_ends_the_worker_which_names_rank_and_cause(
    tmp_path: Path, rank: int, capfd: pytest.CaptureFixture[str]
) -> None:
    fault = "KeyError('own words', ' ' * 5000)"
    raising = f"import os\nif os.environ.get('RANK') == '{rank}':\n    raise {fault}"
    job, config = own_module(tmp_path / "code", raising)

    def work() -> None:
        with worker(tmp_path, job, config) as (line, _):
            line.wait_for("ready")
            line.send(train(tmp_path, 1, STEPS, -1, SEGMENT_STEPS, job))
            line.wait_for("done")

    with pytest.raises(AssertionError):
        work()
    said = capfd.readouterr().err
    assert f"the site is broken: rank {rank}" in said
    assert "TrainerFailed: KeyError: ('own words'" in said
    (line,) = [line for line in said.splitlines() if "is broken" in line]
    assert len(line) < 1000, "more is not shown, and what is left out are the first words"


def test_a_frozen_number_without_rows_is_refused_and_ends_no_worker_in_the_middle(
    tmp_path: Path,
) -> None:
    write_package(tmp_path / "code", pictures(SCALE))
    job = module_job("digits")
    allowed = access(tmp_path / "code")
    found = built(job, probe(job, allowed, is_checked=True))
    config = SITE.model_copy(
        update={"allow_modules": allowed.allowed, "module_path": allowed.directory}
    )
    with worker(tmp_path, found, config) as (line, _):
        said = line.wait_for("refused")["refused"]
    assert "trainer.devices: scale has the shape []" in said
