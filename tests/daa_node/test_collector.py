"""The collector leaves alone what a process imports, and is itself again in one that lives on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from daa_node import collector

ROOT = Path(__file__).parents[2]
AT_THE_END = """
import atexit, gc, json, sys
def told():
    full = gc.get_stats()[2]["collections"]
    print(json.dumps([full, gc.get_freeze_count(), gc.get_threshold(), gc.isenabled()]))
atexit.register(told)
"""


def told_by(program: str, directory: Path) -> tuple[int, int, tuple[int, ...], bool]:
    """Full collections of a process, how many objects it spares, and its settings."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", AT_THE_END + program],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    full, frozen, threshold, enabled = json.loads(done.stdout.splitlines()[-1])
    return full, frozen, tuple(threshold), enabled


COMMAND = """
sys.argv[1:] = {words}
from {module} import main
main()
"""
DAA_NODE = "daa_node.cli.main"
WORKER = """
import socket
from daa_node.training import worker
ours, theirs = socket.socketpair()
ours.close()
sys.argv[1:] = ["--fd", str(theirs.detach())]
worker.main()
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [(DAA_NODE, ["checkpoint", "list"]), ("simnet.cli", ["run", "no-such-scenario"])],
    ids=["daa-node", "simnet"],
)
def test_a_command_looks_through_no_import(module: str, words: list[str], tmp_path: Path) -> None:
    program = COMMAND.format(module=module, words=words)
    full, _, threshold, enabled = told_by(program, tmp_path)
    assert full == 0
    assert threshold == collector.USUAL  # by then: a process may call it and go on
    assert enabled


@pytest.mark.parametrize(
    "program", [COMMAND.format(module=DAA_NODE, words=["run"]), WORKER], ids=["daemon", "worker"]
)
def test_who_lives_on_collects_as_usual_but_for_what_it_imported(
    program: str, tmp_path: Path
) -> None:
    full, frozen, threshold, enabled = told_by(program, tmp_path)  # neither has anything to do
    assert full == 0
    assert frozen > 100_000
    assert threshold == collector.USUAL
    assert enabled
