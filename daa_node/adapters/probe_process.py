"""Have somebody's module built and tried by another process: the caller never imports torch."""

import json
import subprocess

from daa_node.adapters.worker_process import interpreter_of
from daa_node.errors import UserError
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.module_config import BuiltModule

PROBE_MODULE = "daa_node.training.module_probe"  # named, not imported: it imports torch
SAID_CHARS_MAX = 1000  # of the process's last words


def probe_module(job: TrainingJob, config: TrainerConfig, is_checked: bool) -> BuiltModule:
    """What the genesis has to know of it; `is_checked`: whether others train steps again.

    Blocks until the process ends. Raises UserError for a module that is not allowed, not there, or
    that no network can train.
    """
    command, environment = interpreter_of(PROBE_MODULE, config.threads)
    request = {
        "job": job.model_dump_json(),
        "trainer": config.model_dump_json(),
        "is_checked": is_checked,
    }
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            env=environment,
            timeout=config.order_timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"the model {job.model.path} was not built and tried within trainer.order_timeout_s, "
            f"{config.order_timeout_s:g} s"
        ) from None
    except OSError as fault:
        raise UserError(f"cannot start a process for the model: {fault}", exit_code=1) from None
    if done.returncode != 0 or not done.stdout:
        said = done.stderr.strip()[-SAID_CHARS_MAX:]
        raise UserError(
            f"the process that builds {job.model.path} ended with code {done.returncode}; "
            f"it said: {said}"
        )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise UserError(answer["refused"])
    return BuiltModule.model_validate_json(json.dumps(answer["built"]))
