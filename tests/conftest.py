"""One small demo that several test files look at; it runs when the first of them asks."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class DemoRun:
    """A finished demo: its directory, its answer, and what it told people on the way."""

    directory: Path
    answer: dict[str, Any]
    told: str


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    """Four daemons, three rounds, as `daa-node demo --json`. Look, do not touch: copy first."""
    directory = tmp_path_factory.mktemp("demo") / "cluster"
    done = subprocess.run(
        [sys.executable, "-m", "daa_node", "demo", "--rounds", "3", "--json"]
        + ["--seed", "11", "--dir", str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return DemoRun(directory, json.loads(done.stdout), done.stderr)
