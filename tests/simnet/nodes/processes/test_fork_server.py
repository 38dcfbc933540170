"""Children of the warm parent are the tool's to signal from the moment that it knows of them."""

import signal
from pathlib import Path

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
