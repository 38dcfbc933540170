"""Imports point one way, the daemon stays free of torch, and `--help` is quick."""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HELP_CPU_S_MAX = 0.5
HEAVY = ("torch", "libp2p", "numpy", "trio", "pydantic", "networkx", "rich")


def modules_after(statement: str) -> set[str]:
    """Top-level names in sys.modules of a fresh interpreter that ran `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def lint_imports(root: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


def test_every_import_points_down() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        ("daa_dag/ids.py", "import time", "daa_dag and daa_consensus do no I/O"),
        (
            "daa_dag/ids.py",
            "import daa_consensus.errors",
            "simnet > daa_node > daa_consensus > daa_dag",
        ),
        ("daa_node/seams.py", "import daa_node.node", "daa_node reads downwards"),
        ("daa_node/network/topics.py", "import libp2p", "only adapters speak libp2p"),
        ("daa_node/node.py", "import torch", "torch lives where tensors are the subject"),
        ("daa_node/strange.py", '"""A layer of its own."""', "daa_node.strange"),
    ],
)
def test_a_planted_import_breaks_its_contract(
    path: str, line: str, contract: str, tmp_path: Path
) -> None:
    for package in ("daa_dag", "daa_consensus", "daa_node", "simnet"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.xz")
        )
    shutil.copy(ROOT / ".importlinter", tmp_path)
    planted = tmp_path / path
    planted.write_text(f"{planted.read_text() if planted.exists() else ''}\n{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode != 0
    broken = [text for text in done.stdout.splitlines() if "KEPT" not in text]
    assert any(contract in text for text in broken), done.stdout


def test_the_daemon_is_composed_without_torch() -> None:
    loaded = modules_after("import daa_node.cli.compose")
    assert {"libp2p", "numpy", "trio"} <= loaded
    assert "torch" not in loaded


def test_the_verifier_needs_neither_torch_nor_a_network() -> None:
    loaded = modules_after("import daa_node.cli.checkpoint")
    assert not loaded & {"torch", "libp2p"}


@pytest.mark.parametrize("module", ["daa_node.cli.main", "simnet.cli"])
def test_the_command_line_loads_nothing_heavy_before_a_command_runs(module: str) -> None:
    assert not modules_after(f"import {module}") & set(HEAVY)


@pytest.mark.parametrize(("module", "word"), [("daa_node", "demo"), ("simnet.cli", "report")])
def test_help_takes_less_than_half_a_second_of_cpu(module: str, word: str) -> None:
    command = [sys.executable, "-m", module, "--help"]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)  # bytecode, disk cache
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert word in done.stdout
    assert spent_s < HELP_CPU_S_MAX, f"{spent_s:.2f} s"
