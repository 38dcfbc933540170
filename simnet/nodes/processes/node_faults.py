"""What a fault does to real nodes when it begins, and when it ends; links have their conditions.

    kill          SIGKILL of daemon and worker             ends: started on the same disk
    pause         SIGSTOP                                  ends: SIGCONT
    clock         the daemon's wall clock is set wrong     ends: set right
    torn_write    killed in the middle of a write          ends: started
    wiped         killed, and given an empty disk          ends: started
    bit_rot       a bit turns under the running daemon,    (stays so)
                  once something certified is there
    lost_fsync,   the disk as it is now is remembered      ends: killed, and started on what
    rolled_back                                                  the disk remembers
    full          nothing can be written                   ends: there is room

The last but one are one thing to a disk: what was said to be synced since is gone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from simnet.nodes.processes import hardware
from simnet.nodes.processes.cluster import Node
from simnet.world.determinism import DOWN, Streams, Trace
from simnet.world.faults import Edge
from simnet.world.links import NS
from simnet.world.scenario import FOREVER_S, FaultConfig

RESTART_S = 2.0  # what a supervisor waits before it starts a daemon that fell over its disk
FALLS_MAX = 3  # of such a daemon, before somebody puts an empty disk in
FORGETS = ("lost_fsync", "rolled_back")  # kinds after which a node may sign what it signed before
TAKES_DOWN = ("kill", "pause", "torn_write", "wiped")  # its nodes stand still until it heals
LOSES = (*FORGETS, "bit_rot", "wiped")


class Hosts(Protocol):
    """As much of a Cluster as befalls nodes."""

    nodes: list[Node]
    scratch: Path

    def start_node(self, node: Node) -> None: ...

    def kill_node(self, node: Node) -> None: ...

    def pause_node(self, node: Node, paused: bool) -> None: ...

    def fill_disk(self, node: Node, full: bool) -> None: ...


def gone_for_good(edges: Iterable[Edge]) -> set[int]:
    """Who is taken down by what never heals."""
    return {
        node
        for edge in edges
        if edge.at_ns >= FOREVER_S * NS and _what(edge.fault) in TAKES_DOWN
        for node in edge.nodes
    }


def may_sign_twice(fault: FaultConfig) -> bool:
    """Whether its nodes forget what they signed, and do not know."""
    return _what(fault) in FORGETS


def _what(fault: FaultConfig) -> str:
    return fault.disk if fault.kind == "disk" else fault.kind


class NodeFaults:
    """Everything that befalls the nodes of one run."""

    def __init__(self, hosts: Hosts, streams: Streams, trace: Trace) -> None:
        self._hosts = hosts
        self._chance = streams.random("mishaps")
        self._trace = trace
        self._to_rot: list[Node] = []  # as soon as there is something on their disks
        self._due_ns: dict[int, int] = {}  # nodes that fell: when they are started again
        self._falls: Counter[int] = Counter()
        self._failed: defaultdict[int, set[str]] = defaultdict(set)  # how disks failed their nodes
        self._holding: Counter[tuple[int, str]] = Counter()  # faults that keep a node "down", ...
        self._wrong: defaultdict[int, list[FaultConfig]] = defaultdict(list)  # clock faults
        self.rotten: dict[int, str] = {}  # nodes under which a bit was turned, and in which file

    def turn(self, edge: Edge, now_ns: int) -> None:
        """A fault begins or ends."""
        for index in edge.nodes:
            if edge.fault.kind == "disk":
                self._failed[index].add(edge.fault.disk)
            self._turn(edge, self._hosts.nodes[index], now_ns)

    def _turn(self, edge: Edge, node: Node, now_ns: int) -> None:
        memory = self._hosts.scratch / f"{node.index}-{id(edge.fault)}"
        match _what(edge.fault), edge.begins:
            case "pause", begins:
                if self._is_news(node, "paused", begins):
                    self._hosts.pause_node(node, begins)
            case "clock", begins:
                self._clock(edge.fault, node, begins)
            case "kill" | "torn_write" | "wiped", False:
                self._holding[node.index, "down"] -= 1
                self._start(node)
            case "kill" | "torn_write" | "wiped" as what, True:
                self._holding[node.index, "down"] += 1
                self._kill(node, now_ns)
                if what == "torn_write":
                    hardware.tear(node.directory)
                elif what == "wiped":
                    hardware.wipe(node.directory)
            case "bit_rot", True:
                self._to_rot.append(node)
            case "lost_fsync" | "rolled_back", True:
                self._hosts.pause_node(node, True)
                hardware.remember(node.directory, memory)
                self._hosts.pause_node(node, bool(self._holding[node.index, "paused"]))
            case "lost_fsync" | "rolled_back", False:
                self._kill(node, now_ns)
                hardware.roll_back(node.directory, memory)
                self._start(node)
            case "full", begins:
                if self._is_news(node, "full", begins):
                    self._hosts.fill_disk(node, begins)

    def fell(self, node: Node, now_ns: int) -> bool:
        """A daemon has ended by itself; whether its disk explains that, and it will be back.

        A full disk may do so again and again; one that has lost something is replaced at last.
        """
        failed = self._failed[node.index]
        if not failed:
            return False
        self._falls[node.index] += 1
        self._trace.note(now_ns, DOWN, node=node.index)
        lost, falls = not failed.isdisjoint(LOSES), self._falls[node.index]
        if lost and falls == FALLS_MAX:
            hardware.wipe(node.directory)
        self._due_ns[node.index] = now_ns + int(RESTART_S * NS)
        return not lost or falls <= FALLS_MAX

    def look(self, now_ns: int) -> None:
        """Do what is due by now, or possible."""
        for index, due_ns in list(self._due_ns.items()):
            if due_ns <= now_ns:
                del self._due_ns[index]
                self._start(self._hosts.nodes[index])
        for node in list(self._to_rot):
            path = hardware.rot(node.directory, self._chance)
            if path is not None:
                self._to_rot.remove(node)
                self.rotten[node.index] = str(path.relative_to(node.directory))

    @property
    def falls(self) -> int:
        return self._falls.total()

    def _clock(self, fault: FaultConfig, node: Node, begins: bool) -> None:
        """Wrong by the sum of what makes it wrong."""
        wrong = self._wrong[node.index]
        if begins:
            wrong.append(fault)
        else:
            wrong.remove(fault)
        skew_ms = sum(each.skew_ms for each in wrong)
        hardware.set_clock(node.nature.clock, skew_ms, sum(each.drift_ppm for each in wrong))

    def _is_news(self, node: Node, what: str, begins: bool) -> bool:
        """Whether the first of several faults begins, or the last one heals."""
        self._holding[node.index, what] += 1 if begins else -1
        return self._holding[node.index, what] == int(begins)

    def _kill(self, node: Node, now_ns: int) -> None:
        self._hosts.kill_node(node)
        self._due_ns.pop(node.index, None)
        self._trace.note(now_ns, DOWN, node=node.index)

    def _start(self, node: Node) -> None:
        """Unless something else keeps it down. That it is up is its own to tell."""
        if self._holding[node.index, "down"]:
            return
        if node.pid is None:
            self._hosts.start_node(node)
            if self._holding[node.index, "paused"]:
                self._hosts.pause_node(node, True)
