"""Whole runs of real daemons: faults come and go, nothing forks, and nothing is left behind."""

import json
import re
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
from simnet.checks.outcome import Outcome
from simnet.nodes.processes import backends, leftovers, supervisor
from simnet.results.run import run
from simnet.world.scenario import Scenario
from simnet.world.scenario_file import as_text

WAIT_S = 120.0
NODES = 2  # of the runs that are cut off
QUICK = {
    "name": "real",
    "fidelity": "process",
    "duration_s": 4,
    "nodes": [{"count": 4}],
    "topology": {"preset": "local", "latency_ms": [10, 20], "mbit_s": 20},
    "work": {"kind": "training", "rounds": 1000, "inner_steps_max": 5, "window_s": 3},
    "checks": {"finalizations_after_heal": 4, "heal_s": 30},
}
FAULTS = [
    {"kind": "kill", "at_s": 0.3, "for_s": 1, "nodes": [3]},
    {"kind": "partition", "shape": "halves", "at_s": 1.6, "for_s": 0.8, "nodes": [0, 1]},
    {"kind": "pause", "at_s": 2.8, "for_s": 0.8, "nodes": [2]},
]


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    findings = backends.examine()
    if findings.possible[0].name == "proxy":
        pytest.skip("; ".join(f"{probe.name}: {probe.detail}" for probe in findings.probes))


LIAR = 1
LIES = [{"kind": "conflicter", "nodes": [LIAR]}]
SLOW = FULL = 0
AHEAD, FORGETFUL, NEW = 1, 2, 3  # the last one alone, f, ever knows that it forgot
OBSERVER = 4
MISFORTUNES = [
    {"kind": "disk", "disk": "full", "at_s": 0.2, "for_s": 1.5, "nodes": [FULL]},
    {"kind": "kill", "at_s": 0.6, "for_s": 0.5, "nodes": [AHEAD]},
    {"kind": "clock", "skew_ms": 3_600_000, "at_s": 0.8, "for_s": 9.2, "nodes": [AHEAD]},
    {"kind": "disk", "disk": "rolled_back", "at_s": 1.5, "for_s": 1.5, "nodes": [FORGETFUL]},
    {"kind": "disk", "disk": "torn_write", "at_s": 3.5, "for_s": 0.5, "nodes": [FULL]},
    {"kind": "disk", "disk": "wiped", "at_s": 11.5, "for_s": 0.5, "nodes": [NEW]},
    {"kind": "disk", "disk": "bit_rot", "at_s": 13, "nodes": [NEW]},
]


@pytest.fixture(scope="module")
def stormy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """One run with a kill, a partition and a pause, and a node that lies."""
    out = tmp_path_factory.mktemp("stormy")
    stormy = QUICK | {"faults": FAULTS, "adversaries": LIES}
    return run(Scenario.model_validate(stormy), out), out


@pytest.mark.long
def test_everything_holds_through_a_kill_a_partition_and_a_pause(
    stormy: tuple[Outcome, Path],
) -> None:
    outcome, _ = stormy
    broken = [(held.name, held.detail) for held in outcome.invariants if not held.ok]
    assert not broken
    assert len(outcome.invariants) == 8
    assert len(outcome.final_roots) == 1
    assert min(outcome.facts["rounds"]) >= 1
    assert outcome.facts["faults_not_reached"] == 0
    assert outcome.facts["switch"]["cut"] > 0


@pytest.mark.long
def test_who_lies_is_convicted_and_nobody_else(stormy: tuple[Outcome, Path]) -> None:
    _, out = stormy
    started = (out / f"node-{LIAR}" / "events.jsonl").read_text().splitlines()
    liar = next(e["node_id"] for e in map(json.loads, started) if e["name"] == "node_started")
    told = [
        json.loads(line)
        for node in range(4)
        for line in (out / f"node-{node}" / "events.jsonl").read_text().splitlines()
    ]
    offenders = {event["offender"] for event in told if event["name"] == "evidence_found"}
    assert offenders == {liar}


@pytest.fixture(scope="module")
def misfortune(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """One run in which disks and a clock fail, over the relay, which needs no measurement."""
    out = tmp_path_factory.mktemp("misfortune")
    nodes = [
        {"name": "slow", "count": 1, "speed": 0.02},
        {"name": "quick", "count": 3},
        {"name": "eye", "count": 1, "role": "observer"},
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMNET_BACKEND", "proxy")
        checks = {"finalizations_after_heal": 6, "heal_s": 90}
        changes = {"nodes": nodes, "faults": MISFORTUNES, "duration_s": 14, "checks": checks}
        return run(Scenario.model_validate(QUICK | changes), out), out


@pytest.mark.long
def test_everything_holds_though_disks_and_a_clock_fail(misfortune: tuple[Outcome, Path]) -> None:
    outcome, _ = misfortune
    broken = [(held.name, held.detail) for held in outcome.invariants if not held.ok]
    assert not broken
    assert outcome.facts["faults_not_reached"] == 0
    assert all(outcome.facts["rounds"][node] for node in (FULL, AHEAD, FORGETFUL))


@pytest.mark.long
def test_each_failure_was_met_by_the_daemon_that_it_befell(
    misfortune: tuple[Outcome, Path],
) -> None:
    outcome, out = misfortune
    told = [
        [json.loads(line) for line in (out / f"node-{node}/events.jsonl").read_text().splitlines()]
        for node in range(4)
    ]
    names = [[event["name"] for event in events] for events in told]
    assert "events_lost" in names[FULL]  # not even its log took anything
    assert "clock_skewed" in [
        name for node in range(OBSERVER) if node != AHEAD for name in names[node]
    ]
    assert names[FORGETFUL].count("node_started") == 2
    assert "quarantined" in names[NEW]
    assert "quarantined" not in names[FULL]  # torn is not lost
    # Who reads rotten bytes falls, and gets an empty disk; who does not is told by the verifier.
    (rot,) = outcome.facts["rot"]
    assert rot["node"] == NEW
    assert rot["found"] or outcome.facts["fell"]


@pytest.mark.long
def test_a_slow_class_is_measured_to_be_slow(misfortune: tuple[Outcome, Path]) -> None:
    _, out = misfortune
    speeds = []
    for node in range(4):
        text = (out / f"node-{node}" / "events.jsonl").read_text()
        speeds.append([float(ms) for ms in re.findall(r"at ([0-9.]+) ms a step", text)])
    # Fifty times as slow. What all of them wait for a busy core was half of its time already.
    assert min(speeds[SLOW]) > 1.25 * min(min(told) for told in speeds[SLOW + 1 :] if told)


@pytest.mark.long
def test_an_observer_follows_and_says_nothing(misfortune: tuple[Outcome, Path]) -> None:
    outcome, out = misfortune
    told = (out / f"node-{OBSERVER}" / "events.jsonl").read_text()
    assert "statement_sent" not in told
    assert outcome.facts["rounds"][OBSERVER] >= 1


@pytest.mark.long
def test_members_vouch_for_whoever_comes_to_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a cap of its own: its settings are as its class says. Time is counted in rounds."""
    monkeypatch.setenv("SIMNET_BACKEND", "proxy")
    coming = {"name": "coming", "count": 1, "role": "newcomer", "limits": {"upload_mbit_s": 5}}
    vouched = {"rounds": 25, "trainers": {"admission": "vouched"}}
    work = QUICK["work"] | vouched  # type: ignore[operator]
    changes = {"nodes": [{"count": 4}, coming], "work": work, "duration_s": 900}
    outcome = run(Scenario.model_validate(QUICK | changes), tmp_path)
    assert outcome.ok, outcome.invariants
    assert outcome.facts["contributors"][0] <= 4
    assert 5 in outcome.facts["contributors"]
    assert "upload_mbit_s: 5" in (tmp_path / "node-4" / "config.yaml").read_text()


@pytest.mark.long
def test_the_trace_tells_when_faults_came_and_went(stormy: tuple[Outcome, Path]) -> None:
    _, out = stormy
    told = [json.loads(line) for line in (out / "trace.jsonl").read_text().splitlines()]
    faults = [(event["kind"], event["begins"]) for event in told if event["what"] == "fault"]
    expected = [(fault["kind"], begins) for fault in FAULTS for begins in (True, False)]
    assert faults == expected
    (down,) = (event for event in told if event["what"] == "down")
    ups = [event for event in told if event["what"] == "up"]
    assert sorted(event["node"] for event in ups) == [0, 1, 2, 3, 3]
    assert down["node"] == 3
    assert sum(event["t_ns"] > down["t_ns"] for event in ups) == 1


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


def test_the_doctor_names_what_a_run_uses_and_a_remedy_for_all_else() -> None:
    findings = backends.examine()
    assert findings.as_json()["backend"] == backends.choose().name == findings.possible[0].name
    assert all(probe.remedy for probe in findings.probes)
    assert all(probe.name in findings.as_text() for probe in findings.probes)
