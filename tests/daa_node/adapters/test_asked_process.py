"""Processes that answer one question, and what somebody's code does meanwhile."""

import subprocess
from pathlib import Path

import pytest

from daa_node.adapters.asked_process import probe_module
from daa_node.adapters.worker_process import interpreter_of
from daa_node.errors import UserError
from daa_node.training.config import TrainerConfig
from tests.daa_node.training.own_modules import PACKAGE, job_of, write_package

ENDS = """
import os


def build():
    os.write(2, b"\\xff is no text")
    os._exit(3)
"""


def test_last_words_that_are_no_text_are_told_all_the_same(tmp_path: Path) -> None:
    write_package(tmp_path, ENDS)
    config = TrainerConfig(allow_modules=(PACKAGE,), module_path=tmp_path)
    with pytest.raises(UserError, match="ended with code 3; it said: .* is no text") as refused:
        probe_module(job_of(), config, is_checked=True)
    assert refused.value.exit_code == 1


def test_an_interpreter_imports_nothing_from_the_directory_it_starts_in(tmp_path: Path) -> None:
    (tmp_path / "blake3.py").write_text("raise SystemExit(9)\n")
    command, environment = interpreter_of("daa_node.training.config", 1)
    done = subprocess.run(command, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0
