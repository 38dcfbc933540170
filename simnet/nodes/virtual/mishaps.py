"""A scenario's faults, done to a cluster at their times and undone when they heal.

A partition, a hold, a slow or lossy link: see Cluster. What fails on a disk: `torn_write` is a
crash in the middle of one of the next writes, `lost_fsync` a disk that only pretends to sync until
the fault heals in a crash, `full` one that takes nothing, `failed_sync` and `failed_rename` one on
which some of them fail, `slow` one that takes its time, `bit_rot` one turned bit in a stored blob,
`rolled_back` the files of when the fault began, `wiped` a new and empty disk, `cleared` one without
the states that only spare time. A machine is down, or stopped, until every fault that keeps it so
has healed; what is wrong with its clock adds up. A daemon that drains comes back when that heals.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

import trio

from daa_node.checkpoints.layout import STATES
from daa_node.errors import StorageFailed
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.disk import Disk
from simnet.nodes.virtual.link_faults import Heal, all_of
from simnet.nodes.virtual.scheduling import NODE
from simnet.nodes.virtual.shelves import WORK
from simnet.world.determinism import FAULT
from simnet.world.fault_marks import BEGUN, CLEARED, DRAINED
from simnet.world.faults import Aims, Edge, timeline
from simnet.world.links import MS, NS

CRASH_WITHIN_WRITES = 6  # a crash in the middle of a write strikes one of the next so many


class Mishaps:
    """All faults of the cluster's scenario; `run` ends with the last edge."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._chance = cluster.streams.random("mishaps")
        self._aims = Aims(cluster.leader)
        self._why_down: Counter[int] = Counter()  # faults that keep a node down, by the node
        self._why_paused: Counter[int] = Counter()
        self._heals: dict[int, Heal] = {}  # of faults that have begun, by their identity
        self._due = timeline(cluster.scenario, cluster.streams)
        self._carried_out = 0
        self._moved = trio.Event()

    async def run(self) -> None:
        for due in self._due:
            await trio.sleep_until(due.at_ns / NS)
            edge = self._aims.taken(due)
            self._cluster.note(FAULT, **edge.told())
            if edge.begins and edge.nodes and edge.fault.aim is not None:
                self._cluster.sightings.sometimes["leader struck"] += 1
            if edge.begins:
                self._heals[id(edge.fault)] = self._begin(edge)
            else:
                self._heals.pop(id(edge.fault))()
            self._carried_out += 1
            self._moved.set()
            self._moved = trio.Event()

    async def done_until(self, at_s: float) -> None:
        """Return when every edge up to then has been carried out."""
        wanted = sum(due.at_ns <= round(at_s * NS) for due in self._due)
        while self._carried_out < wanted:
            await self._moved.wait()

    def _begin(self, edge: Edge) -> Heal:
        cluster, fault, nodes = self._cluster, edge.fault, edge.nodes
        if nodes and fault.kind in BEGUN:
            cluster.sightings.sometimes[BEGUN[fault.kind]] += 1
        match fault.kind:
            case "partition":
                return self._seen(cluster.links.begin(fault, nodes))
            case "hold" | "slow" | "loss":
                return cluster.links.begin(fault, nodes)
            case "reorder":
                return cluster.links.reorder(nodes, fault.percent)
            case "duplicate":
                return cluster.links.duplicate(nodes, fault.percent)
            case "kill":
                return self._down(nodes)
            case "drain":
                for node in nodes:
                    cluster.start_soon(_drain, cluster, node)
                return partial(self._restart, nodes, _nothing)  # it may have ended by itself
            case "pause":
                self._why_paused.update(nodes)
                cluster.pause(*nodes)
                return partial(self._resume, nodes)
            case "disk":
                return self._disk(edge)
            case "clock":
                clocks = [cluster.machines[node].clock for node in nodes]
                skew_ns = round(fault.skew_ms * MS)
                return all_of(clock.go_wrong(skew_ns, fault.drift_ppm) for clock in clocks)
            case "attrition":
                raise AssertionError("the timeline gives its kills")
            case _:
                assert_never(fault.kind)

    def _seen(self, heal: Heal) -> Heal:
        """The same, and whether members have changed by then."""
        watch = self._cluster.sightings.watch
        before = watch.audit.now.committee

        def healed() -> None:
            heal()
            watch.sometimes["members changed across a partition"] += (
                watch.audit.now.committee != before
            )

        return healed

    def _down(self, nodes: Sequence[int]) -> Heal:
        """They are down until this and every other fault that keeps them so has healed."""
        self._why_down.update(nodes)
        self._cluster.kill(*nodes)
        return partial(self._start, nodes)

    def _restart(self, nodes: Sequence[int], meanwhile: Callable[[int], None]) -> None:
        """Kill them, do something to each that is down, and start them."""
        start = self._down(nodes)
        for node in nodes:
            meanwhile(node)
        start()

    def _start(self, nodes: Sequence[int]) -> None:
        """One fault less keeps them down."""
        self._why_down.subtract(nodes)
        for node in nodes:
            if not self._why_down[node]:
                self._cluster.start(node)

    def _resume(self, nodes: Sequence[int]) -> None:
        self._why_paused.subtract(nodes)
        for node in nodes:
            if not self._why_paused[node]:
                self._cluster.resume(node)

    def _disk(self, edge: Edge) -> Heal:
        cluster, nodes = self._cluster, edge.nodes
        disks = {node: cluster.machines[node].disk for node in nodes}
        if edge.fault.disk in ("lost_fsync", "bit_rot", "rolled_back"):
            cluster.sightings.lossy.update(nodes)
        if edge.fault.disk in ("lost_fsync", "rolled_back"):
            cluster.sightings.distrusted.update(nodes)  # they will not know what they signed
        match edge.fault.disk:
            case "torn_write":
                self._why_down.update(nodes)
                for node, disk in disks.items():
                    disk.on_crash_due = partial(cluster.kill, node)
                    disk.writes_until_crash = self._chance.randrange(CRASH_WITHIN_WRITES)
                return partial(self._end_tearing, nodes)
            case "lost_fsync":
                for disk in disks.values():
                    disk.lying = True
                return partial(self._restart, nodes, self._tell_truth)
            case "full" | "failed_sync" | "failed_rename" as what:
                return all_of(disk.fails_at(what) for disk in disks.values())
            case "slow":
                factor = edge.fault.factor
                return all_of(disk.slow_down(factor) for disk in disks.values())
            case "bit_rot":
                for node, disk in disks.items():
                    cluster.note("rotten", node=node, path=disk.rot() or "")
                return all_of(())  # what has rotted stays so
            case "wiped":
                start = self._down(nodes)
                cluster.wipe(*nodes)
                return start
            case "cleared":
                for disk in disks.values():
                    _clear(disk, f"{WORK}/{STATES}")
                return self._down(nodes)
            case "rolled_back":
                copies = {node: dict(disk.files) for node, disk in disks.items()}
                return partial(self._restart, nodes, lambda node: disks[node].wipe(copies[node]))
            case _:
                assert_never(edge.fault.disk)

    def _tell_truth(self, node: int) -> None:
        self._cluster.machines[node].disk.lying = False

    def _end_tearing(self, nodes: tuple[int, ...]) -> None:
        for node in nodes:
            self._cluster.machines[node].disk.writes_until_crash = None
        self._start(nodes)


async def _drain(cluster: Cluster, node: int) -> None:
    """Ask its daemon to end after the round, if it is up."""
    machine = cluster.machines[node]
    if "drain" in machine.desk.handlers:
        NODE.set(node)
        await machine.ask("drain")
        cluster.sightings.sometimes[DRAINED] += 1


def _clear(disk: Disk, folder: str) -> None:
    """Somebody deletes what lies there."""
    paths = [path for path in disk.files if path.startswith(f"{folder}/")]
    disk.befallen[CLEARED] += bool(paths)
    for path in paths:
        disk.remove(path)
    with suppress(StorageFailed):
        disk.sync_names(folder)


def _nothing(_node: int) -> None:
    """It comes back as it was."""
