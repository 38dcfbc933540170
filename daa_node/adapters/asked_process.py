"""Processes that answer one question with torch, so that whoever asks never imports it."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from daa_node.adapters.worker_process import interpreter_of
from daa_node.errors import UserError
from daa_node.tensors import GRID_DTYPE, Int32Array
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.endings import how_ended
from daa_node.training.module_config import BuiltModule
from daa_node.training.torch_there import need_torch

# named, not imported: they import torch
DATASET_MODULE = "daa_node.training.dataset_probe"
PROBE_MODULE = "daa_node.training.module_probe"
SAMPLE_MODULE = "daa_node.training.sampler"
BASE_MODULE = "daa_node.training.base_weights"
DEVICE_MODULE = "daa_node.training.device_probe"
EXPORT_MODULE = "daa_node.training.model_folder"
SAID_CHARS_MAX = 1000  # of a process's last words


def probe_module(job: TrainingJob, config: TrainerConfig, is_checked: bool) -> BuiltModule:
    """What a genesis has to know of the job's module; `is_checked`: others train its steps again.

    Raises UserError for a module that is not allowed, not there, or that no network can train.
    """
    answer = _ask(PROBE_MODULE, job, config, {"is_checked": is_checked})
    return BuiltModule.model_validate_json(json.dumps(answer))


def probe_dataset(job: TrainingJob, config: TrainerConfig) -> str:
    """The digest of the source of a job's data set, which is tried.

    Raises UserError for one that is not allowed, not there, or that no network can train on.
    """
    digest: str = _ask(DATASET_MODULE, job, config, {})
    return digest


def probe_device(config: TrainerConfig) -> str:
    """What torch computes on here, in words, once it has. Raises UserError if it cannot."""
    within = config.model_copy(update={"order_timeout_s": config.start_timeout_s})
    said: str = _ask(DEVICE_MODULE, TrainingJob(), within, {}, "trainer.start_timeout_s")
    return said


def base_weights(job: TrainingJob, config: TrainerConfig) -> Int32Array:
    """What is trained of the model's base, on the grid, shape (D,). Raises UserError."""
    with TemporaryDirectory(prefix="daa-base-") as room:
        out = Path(room) / "weights"
        _ask(BASE_MODULE, job, config, {"out": str(out)})
        try:
            return np.fromfile(out, GRID_DTYPE)
        except OSError as fault:
            raise UserError(f"cannot read {out}: {fault.strerror}", exit_code=1) from None


def write_model_folder(
    job: TrainingJob, config: TrainerConfig, weights: Path, folder: Path, target: Path
) -> None:
    """What transformers loads, into an empty folder. Raises UserError, which names `target`.

    `weights` is a grid vector; the folder gets that name in the end.
    """
    places = {"weights": weights.resolve(), "out": folder.resolve(), "target": target}
    _ask(EXPORT_MODULE, job, config, {name: str(place) for name, place in places.items()})


def sample_bytes(
    job: TrainingJob, config: TrainerConfig, weights: Path, request: Mapping[str, Any]
) -> bytes:
    """What the model goes on with; `weights` is a grid vector, `request` that of the sampler.

    Raises UserError.
    """
    answer = _ask(SAMPLE_MODULE, job, config, {**request, "weights": str(weights)})
    return bytes.fromhex(answer)


def _ask(
    module: str,
    job: TrainingJob,
    config: TrainerConfig,
    request: Mapping[str, Any],
    limit: str = "trainer.order_timeout_s",
) -> Any:
    """Blocks until the process ends. Raises UserError; `limit` is what its time is told as."""
    need_torch("a process for the model")
    command, environment = interpreter_of(module, config.threads)
    whole = {"job": job.model_dump_json(), "trainer": config.model_dump_json(), **request}
    whole["asker_pid"] = os.getpid()
    try:
        done = subprocess.run(
            command,
            input=json.dumps(whole),
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # whatever somebody's code writes to standard error
            env=environment,
            timeout=config.order_timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"the model took longer than {limit}, {config.order_timeout_s:g} s",
            exit_code=1,
        ) from None
    except OSError as fault:
        raise UserError(f"cannot start a process for the model: {fault}", exit_code=1) from None
    if done.returncode != 0 or not done.stdout:
        said = done.stderr.strip()[-SAID_CHARS_MAX:]
        raise UserError(
            f"the process for the model ended: {how_ended(done.returncode)}"
            + (f"; it said: {said}" if said else ""),
            exit_code=1,
        )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise UserError(answer["refused"], answer["exit_code"])
    return answer["done"]
