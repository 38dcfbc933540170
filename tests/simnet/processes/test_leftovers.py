"""What a dead run has left goes; what a living one owns stays."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simnet.processes import kernel, leftovers

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return leftovers.folder()


def write_note(folder: Path, owner: dict[str, int], process: dict[str, int], scratch: Path) -> Path:
    path = folder / f"test-{owner['pid']}.json"
    said = {"owner": owner, "processes": [process], "directories": [str(scratch)]}
    path.write_text(json.dumps(said))
    return path


def test_only_the_dead_are_cleared_after(own_folder: Path) -> None:
    with subprocess.Popen(SLEEPER) as sleeper:
        try:
            ticks = kernel.start_ticks(sleeper.pid)
            assert ticks is not None
            alive = {"pid": sleeper.pid, "ticks": ticks}
            scratch = own_folder / "daa-x"
            scratch.mkdir()
            kept = write_note(own_folder, alive, alive, scratch)
            assert leftovers.clear_dead() == []
            assert kept.exists()
            assert scratch.exists()
            # the same pid, but it belonged to somebody who started at another time
            dead = {"pid": sleeper.pid, "ticks": ticks - 1}
            write_note(own_folder, dead, dead, scratch)
            assert leftovers.clear_dead() == [str(scratch)]
            assert sleeper.poll() is None
            write_note(own_folder, dead, alive, scratch)
            assert leftovers.clear_dead() == [f"process {sleeper.pid}"]
            assert sleeper.wait(10) == -9
        finally:
            sleeper.kill()


def test_directories_of_others_are_never_removed(own_folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "precious"
    elsewhere.mkdir()
    gone = {"pid": 1, "ticks": 1}
    note = write_note(own_folder, gone, gone, elsewhere)
    leftovers.clear_dead()
    assert elsewhere.exists()
    assert not note.exists()


def test_a_run_that_ends_leaves_no_note(own_folder: Path) -> None:
    with leftovers.noted("short") as note, leftovers.scratch(note) as directory:
        assert len(list(own_folder.glob("*.json"))) == 1
        assert directory.is_dir()
    assert list(own_folder.iterdir()) == []


HOLDER = """
import time
from simnet.processes.leftovers import heard, noted, scratch

with heard(), noted("held") as note, scratch(note) as directory:
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
        assert holder.wait(10) != 0
        assert list(own_folder.iterdir()) == []


def test_what_a_cut_off_end_leaves_goes_with_the_next_start(own_folder: Path) -> None:
    """A second interrupt comes while the directory is being removed."""
    cut = "import shutil; shutil.rmtree = lambda *_, **__: signal.raise_signal(signal.SIGINT)"
    program = "import signal\n" + HOLDER.format(while_held=cut)
    with holding(program, own_folder) as holder:
        assert holder.wait(10) != 0
    (left,) = [path for path in own_folder.iterdir() if path.is_dir()]
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
