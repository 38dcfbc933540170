"""Children of the warm parent are the tool's to signal from the moment that it knows of them."""

import gc
import signal
from pathlib import Path

from daa_node import collector
from simnet.nodes.processes.fork_server import ForkServer

CHILDREN = 10  # each may win or lose the race


def test_a_child_that_was_just_forked_can_be_killed(tmp_path: Path) -> None:
    server = ForkServer(tmp_path / "log")
    try:
        for _ in range(CHILDREN):
            pid = server.fork(signal.pause, tmp_path / "said")
            server.kill_group(pid, signal.SIGKILL)
            assert server.wait(pid, 10) == -signal.SIGKILL
    finally:
        server.end()


def told_of_the_collector() -> None:
    print(gc.get_freeze_count(), *gc.get_threshold(), gc.get_stats()[2]["collections"])


def test_a_child_collects_as_usual_but_for_what_its_parent_imported(tmp_path: Path) -> None:
    server = ForkServer(tmp_path / "log", modules=["daa_node.cli.compose"])
    try:
        pid = server.fork(told_of_the_collector, tmp_path / "said")
        assert server.wait(pid, 60) == 0
    finally:
        server.end()
    frozen, *threshold, full = map(int, (tmp_path / "said").read_text().split())
    assert frozen > 100_000
    assert tuple(threshold) == collector.USUAL
    assert full == 0
