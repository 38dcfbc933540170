"""A base that somebody writes to while a worker has it mapped: told, and nothing comes of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import trio

from daa_node.errors import UserError
from tests.daa_node.adapters.test_trainer_process import CONFIG, lost, order, running
from tests.daa_node.training.hf_models import LLAMA, LORA, job_of, probed
from tests.daa_node.training.test_frozen import bases

pytestmark = pytest.mark.usefixtures("warm")

LIMIT_S = 300.0  # two starts of torch, on a machine that others share
STARVED = CONFIG.model_copy(update={"heartbeat_timeout_s": 60.0})


def change_a_byte(file: Path) -> None:
    """In place, and the size stays."""
    with file.open("r+b") as written:
        written.seek(-1, os.SEEK_END)
        last = written.read(1)[0]
        written.seek(-1, os.SEEK_END)
        written.write(bytes([last ^ 1]))


def cut_short(file: Path) -> None:
    os.truncate(file, 0)


@pytest.mark.parametrize(
    ("change", "code", "what"),
    [
        (
            change_a_byte,
            "exit code 65; it said: ",
            "FILE: this file of the model's base",
        ),
        (cut_short, "killed by signal 7 (SIGBUS): ", "a file that it had mapped was cut short"),
    ],
)
async def test_a_base_that_is_written_to_ends_the_worker_and_the_next_one_names_the_file(
    tmp_path: Path, change: Callable[[Path], None], code: str, what: str
) -> None:
    base, _ = bases(tmp_path, LLAMA, torch.bfloat16)
    job = probed(job_of(base=base, trainable=LORA))
    file, told = tmp_path / "half" / "model.safetensors", list[str]()

    async def run() -> None:
        async with running(tmp_path, job, STARVED) as (trainer, _, _):
            state = await trainer.initial_state()
            assert (await trainer.train_and_seal(order(state, steps_max=2))).steps == 2
            change(file)
            again = order(state, round=2, steps_max=2)
            await lost(lambda: trainer.train_and_seal(again), told)
            await trio.sleep(LIMIT_S)

    with pytest.raises(ExceptionGroup) as ended:
        await run()
    assert f"the worker ended: {code}" in told[0]
    assert what.replace("FILE", str(file)) in told[0]
    (refused,) = ended.value.exceptions
    assert isinstance(refused, UserError)
    assert str(refused).startswith(f"{file}: the blake3 of its content is ")


async def test_a_base_that_is_replaced_stays_what_it_was(tmp_path: Path) -> None:
    """As whoever takes another copy of it does, or a program that writes files as a whole."""
    base, _ = bases(tmp_path, LLAMA, torch.bfloat16)
    job = probed(job_of(base=base, trainable=LORA))
    file = tmp_path / "half" / "model.safetensors"
    async with running(tmp_path, job, STARVED) as (trainer, _, _):
        state = await trainer.initial_state()
        sealed = await trainer.train_and_seal(order(state, steps_max=2))
        (tmp_path / "other").write_bytes(b"another one")
        (tmp_path / "other").rename(file)
        again = await trainer.train_and_seal(order(state, steps_max=2))
        assert again.blob_root == sealed.blob_root
