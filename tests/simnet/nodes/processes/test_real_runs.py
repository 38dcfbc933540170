"""Real daemons of whole runs: what starts ends with it, and who comes to train is vouched for.

Nothing here measures time: runs beside this one only make it longer.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from daa_node.adapters import control_socket
from daa_node.errors import UserError
from simnet.nodes.processes import backends, leftovers, supervisor
from simnet.results.run import run
from simnet.world.scenario import Scenario
from simnet.world.scenario_file import as_text
from tests.simnet.nodes.processes.quick import QUICK

WAIT_S = 120.0
NODES = 2


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    findings = backends.examine()
    if findings.possible[0].name == "proxy":
        pytest.skip("; ".join(f"{probe.name}: {probe.detail}" for probe in findings.probes))


@pytest.mark.long
@pytest.mark.usefixtures("warm_programs")
def test_members_vouch_for_whoever_comes_to_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a cap of its own: its settings are as its class says. Time is counted in rounds."""
    monkeypatch.setenv("SIMNET_BACKEND", "proxy")
    coming = {"name": "coming", "count": 1, "role": "newcomer", "limits": {"upload_mbit_s": 5}}
    vouched = {"rounds": 15, "trainers": {"admission": "vouched"}}
    work = QUICK["work"] | vouched
    changes = {"nodes": [{"count": 4}, coming], "work": work, "duration_s": 900}
    outcome = run(Scenario.model_validate(QUICK | changes), tmp_path)
    assert outcome.ok, outcome.invariants
    assert outcome.facts["contributors"][0] <= 4
    assert 5 in outcome.facts["contributors"]
    assert "upload_mbit_s: 5" in (tmp_path / "node-4" / "config.yaml").read_text()


@dataclass(frozen=True)
class Family:
    """A `simnet` in a process of its own, and all that it has started."""

    tool: "subprocess.Popen[bytes]"
    members: list[psutil.Process]
    namespaces: set[str]
    scratch: list[Path]

    def survivors(self) -> list[psutil.Process]:
        """Waits a moment: an end takes some milliseconds."""
        alive: list[psutil.Process] = psutil.wait_procs(self.members, timeout=WAIT_S)[1]
        return alive

    def inhabited(self) -> set[str]:
        """Namespaces of the run that still hold a process."""
        return self.namespaces & {network_of(pid) for pid in psutil.pids()}


def network_of(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    """Started, and in the middle of its run: a disk is remembered, a clock wrong, a node lies."""
    path, out = tmp_path / "long.yaml", tmp_path / "out"
    small = {
        "duration_s": 300,
        "nodes": [{"count": NODES}],
        "faults": [
            {"kind": "disk", "disk": "rolled_back", "at_s": 0, "for_s": 200, "nodes": [0]},
            {"kind": "clock", "skew_ms": 1000, "drift_ppm": 50, "at_s": 0, "nodes": [0]},
        ],
        "adversaries": [{"kind": "staller", "nodes": [1]}],
    }
    path.write_text(as_text(Scenario.model_validate(QUICK | small)))
    tool = subprocess.Popen(
        [sys.executable, "-m", "simnet.cli", "run", str(path), "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # whoever runs tests in the background has it ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline_s = time.monotonic() + WAIT_S
    logs = [out / f"node-{node}" / "events.jsonl" for node in range(NODES)]
    while not all(log.exists() and "round_started" in log.read_text() for log in logs):
        assert tool.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    members = psutil.Process(tool.pid).children(recursive=True)
    here = network_of(tool.pid)
    scratch = list(leftovers.folder().glob(f"{tool.pid}-*"))
    yield Family(tool, members, {network_of(child.pid) for child in members} - {here, ""}, scratch)
    tool.kill()
    tool.wait()
    leftovers.clear_dead()  # what the next start would


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_neither_ctrl_c_nor_a_crash_leaves_processes_namespaces_or_devices(
    family: Family, how: signal.Signals
) -> None:
    # a daemon and a worker for each node, two warm parents, the switch
    assert len(family.members) == 2 * NODES + 3
    assert len(family.namespaces) == NODES
    assert family.inhabited() == family.namespaces
    (scratch,) = family.scratch
    assert any(scratch.glob("0-*/chain"))  # the disk as it was
    family.members[-1].suspend()  # the stopped, too, must go
    family.tool.send_signal(how)
    assert family.tool.wait(WAIT_S) == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert family.survivors() == []
    # without a process or a descriptor a namespace is gone, and its device with it
    assert family.inhabited() == set()
    if how == signal.SIGKILL:
        leftovers.clear_dead()  # what the next start does
    assert not any(directory.exists() for directory in family.scratch)


def test_a_cluster_outlives_its_command_and_goes_down(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    scenario = Scenario.model_validate(QUICK | {"nodes": [{"count": NODES}]})
    answer = supervisor.up(scenario, directory)
    members = psutil.Process(answer["pid"]).children(recursive=True)
    try:
        assert {node["pid"] for node in answer["nodes"]} <= {child.pid for child in members}
        for node in answer["nodes"]:
            status = control_socket.ask(Path(node["dir"]) / "control.sock", "status")
            assert status["pid"] == node["pid"]
        with pytest.raises(UserError, match="not empty"):
            supervisor.up(scenario, directory)
    finally:
        assert supervisor.down(directory)["stopped"]
    assert psutil.wait_procs(members, timeout=WAIT_S)[1] == []
    assert not supervisor.down(directory)["stopped"]
    assert (directory / "node-0" / "chain").is_dir()


def test_a_command_that_is_asked_to_end_takes_its_supervisor_along(tmp_path: Path) -> None:
    path, directory = tmp_path / "small.yaml", tmp_path / "cluster"
    path.write_text(as_text(Scenario.model_validate(QUICK)))
    order = [sys.executable, "-m", "simnet.cli", "cluster", "up", str(path)]
    with subprocess.Popen([*order, "--dir", str(directory)]) as command:
        log = directory / "supervisor.log"  # whoever writes it is just being started
        while not log.exists() or not (children := psutil.Process(command.pid).children()):
            assert command.poll() is None
        command.terminate()
        assert command.wait(WAIT_S) == 128 + signal.SIGTERM
    assert psutil.wait_procs(children, timeout=WAIT_S)[1] == []
    assert not (directory / "cluster.json").exists()
