"""What a dead run has left goes; what a living one owns stays."""

import json
import subprocess
import sys
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
