"""One small demo that several test files look at, and in which order files are handed out.

Files that take long come first: a worker that begins one last keeps all others waiting for it.
Whatever computes has one thread: several tests run at once, and of a small tensor's two threads one
waits for the other, which takes six times the CPU where the cores are busy.
"""

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.warm import WarmPrograms, warmed

# How long an example takes is the machine's matter.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

pytest_plugins = ("tests.hangs", "tests.compiled")

# Read when torch and numpy are loaded: no test module is before this one. Processes that tests
# start have it as well. A test of more threads asks for them.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

# A shell's background has Ctrl-C ignored, and so would all processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Half a minute or more, longest first, as two idle cores were measured. Who waits for a browser, or
# for time to pass, stands between others that compute: several in a row would leave cores idle. A
# file that is not here costs nothing but time; one that is gone is found by a test of the order.
LONGEST = (
    "test_readme.py",
    "simnet/results/twins/test_twins.py",
    "browser/test_comes_back.py",
    "simnet/results/mutants/test_mutants.py",
    "simnet/results/mutants/test_daemon_mutants.py",
    "browser/test_closed_tab.py",
    "simnet/results/mutants/test_judge_mutants.py",
    "daa_node/cli/test_demo.py",
    "browser/test_three_tabs.py",
    "daa_consensus/bft/test_membership_worlds.py",
    "scenarios/test_killed_daemons.py",
    "browser/test_volunteer.py",
    "daa_consensus/bft/test_voting_rules_exhaustively.py",
    "daa_node/cli/test_joining_daemon.py",
    "simnet/nodes/processes/test_routers.py",
    "scenarios/test_lost_directories.py",
    "simnet/nodes/virtual/test_shipped_scenarios.py",
    "browser/test_page.py",
    "daa_node/cli/test_joining_own.py",
    "simnet/test_sweep.py",
    "scenarios/test_limits.py",
    "scenarios/test_trainers.py",
    "simnet/nodes/processes/test_real_runs.py",
    "daa_node/training/site/test_own_models.py",
    "daa_node/cli/test_daemon.py",
    "daa_node/adapters/test_pack_directory.py",
    "simnet/nodes/virtual/test_canary.py",
    "scenarios/test_pruned_gap.py",
    "daa_node/spot_checks/test_overhead_benchmark.py",
    "scenarios/test_hostile_member.py",
    "scenarios/test_lost_workers.py",
    "simnet/nodes/processes/test_misfortunes.py",
    "scenarios/test_members_come_and_go.py",
    "daa_node/cli/test_gateway.py",
    "daa_node/cli/test_volunteers.py",
    "daa_node/training/site/test_site.py",
    "daa_node/cli/test_fine_tuning.py",
    "simnet/nodes/virtual/test_fine_tuning.py",
    "simnet/nodes/virtual/test_inspection.py",
    "simnet/nodes/virtual/test_revealed_run.py",
    "simnet/results/test_goodput_benchmark.py",
    "simnet/world/adversaries/test_puppet.py",
)
# Objects more, before Python looks for dead cycles: by its own 700 that took a fifteenth of what
# tests compute in this process. Simulated runs have a number of their own.
COLLECT_EVERY = 20_000
ROOT = Path(__file__).parent
# Of one of their tests, on a machine that is slow and busy; all others have ten minutes.
LONG_S = 1800.0
LONG = {ROOT / name for name in LONGEST}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported never ends: the collector looks at it neither now nor while tests run.

    That is half of what it costs a worker to begin.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before each: a command that a test called leaves the collector as usual."""
    gc.set_threshold(COLLECT_EVERY, *gc.get_threshold()[1:])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stable: the tests of a file stay together and in their order."""
    place = {ROOT / name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(LONGEST)))


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path in LONG:
        item.add_marker(pytest.mark.timeout(LONG_S))


@pytest.fixture(scope="module")
def warm() -> Generator[None, None, None]:
    """Daemons and workers that these tests start have imported everything already."""
    with warmed():
        yield


@pytest.fixture(scope="module")
def warm_programs() -> Generator[None, None, None]:
    """So have programs that they give to Python."""
    with warmed(WarmPrograms):
        yield


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
        timeout=480,  # half a minute where nothing else computes
    )
    assert done.returncode == 0, done.stderr
    return DemoRun(directory, json.loads(done.stdout), done.stderr)
