"""Children of the warm parent are the tool's to signal from the moment that it knows of them."""

import signal
from pathlib import Path

from simnet.processes.family import Zygote

CHILDREN = 10  # each may win or lose the race


def test_a_child_that_was_just_forked_can_be_killed(tmp_path: Path) -> None:
    zygote = Zygote(tmp_path / "log")
    try:
        for _ in range(CHILDREN):
            pid = zygote.spawn(0, ["--help"], tmp_path / "said")
            zygote.kill_group(pid, signal.SIGKILL)
            assert zygote.wait(pid, 10) == -signal.SIGKILL
    finally:
        zygote.end()
