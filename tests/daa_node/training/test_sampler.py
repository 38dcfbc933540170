"""What a model writes follows from its weights, the seed and the temperature."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from daa_node.adapters.asked_process import sample_bytes
from daa_node.errors import UserError
from daa_node.tensors import parameter_count_of, slots_of
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.training.sampler import Draw, answer, go_on, open_logits, sample
from tests.daa_node.training.own_modules import PACKAGE, job_of, pictures, write_package
from tests.daa_node.training.probed_modules import probed

CONTEXT = 8
GPT = ModelConfig(depth=1, width=16, heads=2, context=CONTEXT)
CPU = TrainerConfig(device="cpu", niceness=0)


def counts_up(tokens: Tensor) -> Tensor:
    """Whatever came, the byte after it is by far the likeliest, and the one after that next."""
    assert tokens.shape[1] <= CONTEXT
    after = torch.nn.functional.one_hot((tokens + 1) % 256, 300) * 50.0
    return after + torch.nn.functional.one_hot((tokens + 2) % 256, 300) * 49.0


def test_each_byte_follows_from_those_before_it_within_the_context() -> None:
    assert sample(counts_up, CONTEXT, b"abc", Draw(20, 0, 1)) == [*range(100, 120)]


def test_the_temperature_says_how_bold_and_the_seed_which() -> None:
    cold = sample(counts_up, CONTEXT, b"a", Draw(30, 0.05, 1))
    assert cold == [*range(98, 128)]
    warm = [sample(counts_up, CONTEXT, b"a", Draw(30, 1.0, seed)) for seed in (1, 1, 2)]
    assert warm[0] == warm[1] != warm[2]
    steps = np.diff([ord("a"), *warm[0]]) % 256
    assert {*steps} == {1, 2}
    assert 15 <= (steps == 1).sum() <= 28  # by 1 / (1 + 1/e), 22 of 30


def test_what_a_larger_vocabulary_has_above_bytes_is_never_drawn() -> None:
    def above(tokens: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, 300)
        logits[..., 256:] = 100.0
        return logits

    assert len(sample(above, CONTEXT, b"a", Draw(20, 1.0, 1))) == 20


def weights_file(directory: Path, model: ModelConfig, seed: int = 0) -> Path:
    path = directory / "weights"
    genesis_weights(model, seed).tofile(path)
    return path


def test_the_weights_given_are_those_that_write(tmp_path: Path) -> None:
    """Weights by which the GPT says the byte that came again, and no other."""
    specs = GPT.tensors()
    weights_D = np.zeros(parameter_count_of(specs), np.int32)
    slot = next(slot for slot in slots_of(specs) if slot.spec.name == "embedding")
    embedding = np.zeros((256, 16), np.int32)
    embedding[ord("x"), 3] = embedding[ord("y"), 4] = 100 << 24
    weights_D[slot.start : slot.stop] = embedding.reshape(-1)
    weights_D.tofile(tmp_path / "weights")
    logits = open_logits(GPT, 0, tmp_path / "weights", CPU)
    assert go_on(logits, CONTEXT, b"x", Draw(10, 0, 0)) == b"x" * 10
    assert go_on(logits, CONTEXT, b"xy", Draw(10, 0, 0)) == b"y" * 10


def test_a_process_of_its_own_writes_for_who_has_no_torch(tmp_path: Path) -> None:
    job = TrainingJob(model=GPT)
    request = {"prompt": b"ab".hex(), "count": 5, "temperature": 1.0, "seed": 4}
    request["cache"] = str(tmp_path)
    path = weights_file(tmp_path, GPT)
    written = sample_bytes(job, CPU, path, request)
    assert written == go_on(open_logits(GPT, 0, path, CPU), CONTEXT, b"ab", Draw(5, 1.0, 4))


def asked(job: TrainingJob, directory: Path) -> str:
    config = CPU.model_copy(update={"allow_modules": (PACKAGE,), "module_path": directory})
    path = weights_file(directory, job.model, job.seed)
    request = {"weights": str(path), "prompt": "61", "count": 3, "temperature": 1.0, "seed": 0}
    request["cache"] = str(directory / "cache")
    return answer(job, config, request)


def test_somebodys_language_model_writes_by_its_logits(tmp_path: Path) -> None:
    write_package(tmp_path)
    assert len(bytes.fromhex(asked(probed(job_of("shakespeare"), tmp_path), tmp_path))) == 3


@pytest.mark.parametrize(
    ("changes", "what", "code"),
    [
        ("", r"has no method logits\(inputs\)", 2),
        ("def logits(self, inputs):\n    raise KeyError('x')", "wrote nothing: .*KeyError", 1),
        ("def logits(self, inputs):\n    return 7", "wrote nothing: .*logits returned 7", 1),
    ],
)
def test_a_module_without_right_logits_is_told(
    tmp_path: Path, changes: str, what: str, code: int
) -> None:
    write_package(tmp_path, pictures(changes))
    job = probed(job_of(), tmp_path)
    with pytest.raises(UserError, match=what) as refused:
        asked(job, tmp_path)
    assert refused.value.exit_code == code
