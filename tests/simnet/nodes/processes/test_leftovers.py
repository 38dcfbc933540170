"""What a dead run has left goes; what a living one holds stays."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simnet.nodes.processes import leftovers


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return leftovers.folder()


def test_only_what_nobody_holds_is_cleared(own_folder: Path) -> None:
    with leftovers.scratch() as held:
        dead = own_folder / "1-dead"
        dead.mkdir()
        assert leftovers.clear_dead() == [str(dead)]
        assert list(own_folder.iterdir()) == [held]


def test_a_run_that_ends_leaves_nothing(own_folder: Path) -> None:
    with leftovers.scratch() as directory:
        assert directory.is_dir()
    assert list(own_folder.iterdir()) == []


HOLDER = """
import time
from simnet.nodes.processes.leftovers import heard, scratch

with heard(), scratch() as directory:
    (directory / "file").write_text("kept until the end")
    print(directory, flush=True)
    {while_held}
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_is_asked_to_end_takes_along_what_it_has_made(
    own_folder: Path, how: signal.Signals
) -> None:
    program = HOLDER.format(while_held="time.sleep(60)")
    with holding(program, own_folder) as holder:
        holder.send_signal(how)
        assert holder.wait(60) != 0
        assert list(own_folder.iterdir()) == []


def test_what_a_cut_off_end_leaves_goes_with_the_next_start(own_folder: Path) -> None:
    """A second interrupt comes while the directory is being removed."""
    cut = "import shutil; shutil.rmtree = lambda *_, **__: signal.raise_signal(signal.SIGINT)"
    program = "import signal\n" + HOLDER.format(while_held=cut)
    with holding(program, own_folder) as holder:
        assert holder.wait(60) != 0
    (left,) = own_folder.iterdir()
    assert leftovers.clear_dead() == [str(left)]
    assert list(own_folder.iterdir()) == []


@contextmanager
def holding(program: str, own_folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that has made what it says."""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(own_folder.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as holder:
        try:
            assert holder.stdout is not None
            assert Path(holder.stdout.readline().strip()).parent == own_folder
            yield holder
        finally:
            holder.kill()
