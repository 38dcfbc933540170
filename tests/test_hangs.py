"""Runs of planted tests that hang: each ends, and says which."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import trio

ROOT = Path(__file__).parent.parent
RED, CUT_OFF = 1, 2
SETTINGS = "[pytest]\ntrio_mode = true\n"
# The real plugin, in less of a hurry than whoever waits for these.
PLUGIN = """
import tests.hangs
pytest_plugins = ("tests.hangs",)

def pytest_configure(config):
    tests.hangs.GRACE_S = 1.0
"""
HEADER = """
import pathlib, threading, pytest, trio

soon, in_time = pytest.mark.timeout(1), pytest.mark.timeout(300)

@pytest.fixture
def stuck():
    yield
    threading.Event().wait()
"""
ENDED = """
@soon
def test_hangs_when_it_has_failed(stuck):
    raise LookupError

@soon
async def test_waits_in_trio():
    await trio.sleep_forever()

@in_time
async def test_comes_after_trio():
    await trio.sleep(0)

@soon
async def test_cannot_be_cancelled():
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()
"""
NOT_ENDED = """
@in_time
def test_begins():
    pathlib.Path("begun").touch()
    threading.Event().wait()
"""


def planted(directory: Path, tests: str) -> subprocess.Popen[str]:
    (directory / "pytest.ini").write_text(SETTINGS)
    (directory / "conftest.py").write_text(PLUGIN)
    (directory / "test_planted.py").write_text(HEADER + tests)
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-n", "1", "--max-worker-restart", "0", "--tb", "short"]
        + ["-p", "no:hypothesispytest", "-p", "no:simnet"],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_what_hangs_is_ended_and_named_and_the_next_test_runs(tmp_path: Path) -> None:
    run = planted(tmp_path, ENDED)
    said, _ = run.communicate()
    assert run.returncode == RED, said
    summary = said[said.index("short test summary") :]
    failed = "FAILED test_planted.py::test_hangs_when_it_has_failed - LookupError"
    assert failed in summary
    assert "ERROR test_planted.py::test_hangs_when_it_has_failed - Failed: Timeout" in summary
    assert "FAILED test_planted.py::test_waits_in_trio" in summary
    assert "crashed while running 'test_planted.py::test_cannot_be_cancelled'" in said
    assert "1 passed" in summary  # trio is not left as if it ran
    assert said.count("from pytest-timeout") >= 2


async def test_a_run_that_is_cut_off_names_what_it_waits_for(tmp_path: Path) -> None:
    run = planted(tmp_path, NOT_ENDED)
    while not (tmp_path / "begun").exists() and run.poll() is None:
        await trio.sleep(0.1)
    os.killpg(run.pid, signal.SIGINT)
    said, _ = run.communicate()
    assert run.returncode == CUT_OFF, said
    assert "UNFINISHED test_planted.py::test_begins" in said
