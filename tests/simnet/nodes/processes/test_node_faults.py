"""What befalls a node is done in the right order, and undone when it heals; nodes are fakes."""

from pathlib import Path
from time import time_ns

import pytest

from simnet.nodes.processes.cluster import Node
from simnet.nodes.processes.daemon import Nature
from simnet.nodes.processes.hardware import WrongClock
from simnet.nodes.processes.node_faults import FALLS_MAX, RESTART_S, NodeFaults, gone_for_good
from simnet.world.determinism import Streams, Trace
from simnet.world.faults import Edge, timeline
from simnet.world.links import NS
from simnet.world.scenario import FaultConfig, Scenario

WAIT_NS = int(RESTART_S * NS)
HOUR_NS = 3600 * NS
BLOCK = "chain/blocks/aa"


class FakeHosts:
    """Notes what is done to its only node, and what the disk holds at that moment."""

    def __init__(self, root: Path) -> None:
        (root / "node").mkdir()
        self.scratch = root
        self.nodes = [Node(0, Nature("aa", root / "node", root / "workers", True), pid=1)]
        self.done: list[str] = []
        self.write(b"one")

    @property
    def block(self) -> Path:
        return self.nodes[0].directory / BLOCK

    def write(self, words: bytes) -> None:
        self.block.parent.mkdir(parents=True, exist_ok=True)
        self.block.write_bytes(words)

    def start_node(self, node: Node) -> None:
        node.pid = 1
        self._note("start")

    def kill_node(self, node: Node) -> None:
        node.pid = None
        self._note("kill")

    def pause_node(self, node: Node, paused: bool) -> None:
        self._note("stop" if paused else "go on")

    def fill_disk(self, node: Node, full: bool) -> None:
        self._note("full" if full else "room")

    def _note(self, what: str) -> None:
        self.done.append(f"{what}: {self.block.read_text() if self.block.exists() else 'empty'}")


@pytest.fixture
def hosts(tmp_path: Path) -> FakeHosts:
    return FakeHosts(tmp_path)


@pytest.fixture
def faults(hosts: FakeHosts) -> NodeFaults:
    return NodeFaults(hosts, Streams(1), Trace())


def fault(**fields: object) -> FaultConfig:
    return FaultConfig.model_validate({"at_s": 0, "for_s": 1, "nodes": [0], **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": "kill"}, ["kill: one", "start: two"]),
        ({"kind": "pause"}, ["stop: one", "go on: two"]),
        ({"kind": "disk", "disk": "torn_write"}, ["kill: one", "start: two"]),
        ({"kind": "disk", "disk": "full"}, ["full: one", "room: two"]),
        (
            {"kind": "disk", "disk": "rolled_back"},
            ["stop: one", "go on: one", "kill: two", "start: one"],
        ),
        (
            {"kind": "disk", "disk": "lost_fsync"},
            ["stop: one", "go on: one", "kill: two", "start: one"],
        ),
    ],
)
def test_a_fault_begins_and_heals(
    fields: dict[str, object], expected: list[str], hosts: FakeHosts, faults: NodeFaults
) -> None:
    befalls = fault(**fields)
    faults.turn(Edge(0, True, befalls, (0,)), 0)
    hosts.write(b"two")
    faults.turn(Edge(NS, False, befalls, (0,)), NS)
    assert hosts.done == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": "kill"}, ["kill: one", "kill: one", "start: one"]),
        ({"kind": "pause"}, ["stop: one", "go on: one"]),
        ({"kind": "disk", "disk": "full"}, ["full: one", "room: one"]),
        ({"kind": "clock", "skew_ms": 3_600_000}, []),
    ],
)
def test_of_faults_that_overlap_the_last_to_heal_counts(
    fields: dict[str, object], expected: list[str], hosts: FakeHosts, faults: NodeFaults
) -> None:
    one, other = fault(**fields), fault(**fields, for_s=2)
    clock, skews = hosts.nodes[0].nature.clock, []
    for at_ns, (befalls, begins) in enumerate([(one, 1), (other, 1), (one, 0), (other, 0)]):
        faults.turn(Edge(at_ns, bool(begins), befalls, (0,)), at_ns)
        if fields["kind"] == "clock":
            skews.append(round((WrongClock(clock).wall_ns() - time_ns()) / HOUR_NS))
    assert hosts.done == expected
    assert skews == ([1, 2, 1, 0] if fields["kind"] == "clock" else [])


def test_a_node_that_is_killed_while_it_is_paused_comes_back_paused(
    hosts: FakeHosts, faults: NodeFaults
) -> None:
    pause, kill = fault(kind="pause"), fault(kind="kill")
    for befalls, begins in ((pause, True), (kill, True), (kill, False), (pause, False)):
        faults.turn(Edge(0, begins, befalls, (0,)), 0)
    assert hosts.done == ["stop: one", "kill: one", "start: one", "stop: one", "go on: one"]


def test_a_new_disk_is_empty_once_the_daemon_is_dead(hosts: FakeHosts, faults: NodeFaults) -> None:
    wiped = fault(kind="disk", disk="wiped")
    faults.turn(Edge(0, True, wiped, (0,)), 0)
    faults.turn(Edge(NS, False, wiped, (0,)), NS)
    assert hosts.done == ["kill: one", "start: empty"]


def test_rot_waits_for_something_certified(hosts: FakeHosts, faults: NodeFaults) -> None:
    hosts.block.unlink()
    faults.turn(Edge(0, True, fault(kind="disk", disk="bit_rot"), (0,)), 0)
    faults.look(1)
    assert faults.rotten == {}
    hosts.write(b"one")
    faults.look(2)
    assert faults.rotten == {0: BLOCK}
    rotten = hosts.block.read_bytes()
    assert rotten != b"one"
    faults.look(3)
    assert hosts.block.read_bytes() == rotten


def fall(hosts: FakeHosts, faults: NodeFaults, now_ns: int) -> bool:
    """The daemon ends by itself; whether that is told to be its disk's fault."""
    hosts.nodes[0].pid = None
    forgiven = faults.fell(hosts.nodes[0], now_ns)
    faults.look(now_ns + WAIT_NS - 1)
    assert hosts.nodes[0].pid is None
    faults.look(now_ns + WAIT_NS)
    return forgiven


def test_a_daemon_that_falls_for_no_reason_is_not_forgiven(
    hosts: FakeHosts, faults: NodeFaults
) -> None:
    assert not faults.fell(hosts.nodes[0], 0)
    faults.look(10 * WAIT_NS)
    assert hosts.done == []


def test_a_disk_that_lost_something_is_replaced_after_the_third_fall_and_then_all_is_well(
    hosts: FakeHosts, faults: NodeFaults
) -> None:
    faults.turn(Edge(0, True, fault(kind="disk", disk="bit_rot"), (0,)), 0)
    told = [fall(hosts, faults, count * 2 * WAIT_NS) for count in range(FALLS_MAX + 1)]
    assert told == [True] * FALLS_MAX + [False]
    assert [line == "start: empty" for line in hosts.done] == [False, False, True, True]


def test_a_full_disk_is_never_replaced(hosts: FakeHosts, faults: NodeFaults) -> None:
    faults.turn(Edge(0, True, fault(kind="disk", disk="full"), (0,)), 0)
    assert all(fall(hosts, faults, count * 2 * WAIT_NS) for count in range(2 * FALLS_MAX))
    assert set(hosts.done) == {"full: one", "start: one"}


def test_whoever_the_seed_chooses_to_go_for_good_is_known_to_be_gone() -> None:
    scenario = Scenario.model_validate(
        {
            "name": "gone",
            "nodes": [{"count": 5}],
            "faults": [{"kind": "kill", "at_s": 1}, {"kind": "pause", "at_s": 2, "for_s": 3}],
        }
    )
    edges = timeline(scenario, Streams(4))
    (killed,) = {edge.nodes for edge in edges if edge.fault.kind == "kill"}
    assert len(killed) == 1
    assert gone_for_good(edges) == set(killed)
