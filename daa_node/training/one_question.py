"""A process that answers one question: JSON in by standard input, JSON out by standard output.

    {"job", "trainer", "asker_pid", ...}  -->  {"done": ...} or {"refused": text, "exit_code"}

What anybody's code prints meanwhile goes to standard error. It ends with whoever asks, however that
one ends: nobody would read the answer, and a large model would go on writing.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from daa_node.errors import UserError
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.core import multiply_in_full
from daa_node.training.parent_death import die_with

Answer = Callable[[TrainingJob, TrainerConfig, dict[str, Any]], Any]


def answer_one(answer: Answer) -> None:
    """`answer` returns what JSON can hold, or raises UserError."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    die_with(request["asker_pid"])
    config = TrainerConfig.model_validate_json(request["trainer"])
    job = TrainingJob.model_validate_json(request["job"])
    os.nice(config.niceness)
    torch.set_num_threads(config.threads)
    multiply_in_full()
    said: dict[str, Any]
    try:
        said = {"done": answer(job, config, request)}
    except UserError as refused:
        said = {"refused": str(refused), "exit_code": refused.exit_code}
    with answers:
        json.dump(said, answers)
