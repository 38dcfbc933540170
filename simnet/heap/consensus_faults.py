"""What a fault does to simulated validators when it begins, and when it ends."""

from typing import TYPE_CHECKING

from daa_node.errors import UserError
from simnet.determinism import FAULT
from simnet.faults import Edge
from simnet.heap.consensus_host import Host
from simnet.links import MS

if TYPE_CHECKING:
    from simnet.heap.consensus import Consensus

# What a disk may lie about at once. Log and guard together: the node forgets, and may sign twice.
LIES = (("log",), ("guard",), ("kept",), ("log", "kept"), ("log", "guard", "kept"))

BREAKS_STREAMS = ("partition", "loss", "kill", "disk")  # whoever was cut off opens new ones


def leader(world: "Consensus") -> int | None:
    """Of the newest view that anybody honest stands in, who is up; None if it has no node here."""
    up = [h.life for h in world.hosts if h.life is not None and world.is_honest(h.node)]
    newest = max((life.machine.known for life in up), key=lambda known: known.slot, default=None)
    if newest is None:
        return None
    return world.network.number_of.get(newest.committee.leader(newest.domain, newest.view))


def befall(world: "Consensus", edge: Edge) -> None:
    """Raises UserError for a fault that this world does not know."""
    edge = world.aims.taken(edge)
    fault, begins = edge.fault, edge.begins
    if fault.aim is not None:
        if not edge.nodes:
            return
        if begins:
            world.watch.sometimes["leader struck"] += 1
    world.note(FAULT, **edge.told())
    hosts = [host for node in edge.nodes for host in world.hosts_of[node]]
    match fault.kind:
        case "partition" | "slow" | "loss" | "hold":
            _links(world, edge)
        case "kill":
            for host in hosts:
                host.down_for(fault) if begins else host.up_for(fault)
        case "pause":
            for host in hosts:
                host.pause() if begins else host.resume()
        case "clock":
            for host in hosts:
                host.skew_ns += int(fault.skew_ms * MS) * (1 if begins else -1)
                host.drift_ppm += int(fault.drift_ppm) * (1 if begins else -1)
        case "disk":
            for host in hosts:
                _disk(world, edge, host)
        case _:
            raise UserError(f"heap consensus has no fault {fault.kind}")
    if not begins and fault.kind in BREAKS_STREAMS:
        world.greet(edge.nodes)


def _links(world: "Consensus", edge: Edge) -> None:
    if edge.begins:
        world.wire.begin(edge)
        return
    released = world.wire.end(world.now_ns, edge)
    if released:
        world.watch.sometimes["held letters released"] += 1
    if edge.fault.kind == "partition":
        world.watch.sometimes["partition healed"] += 1


def _disk(world: "Consensus", edge: Edge, host: Host) -> None:
    fault, disk = edge.fault, host.disk
    match fault.disk, edge.begins:
        case "torn_write", True:
            host.tear(fault)
        case "full", begins:
            disk.full = begins
        case "lost_fsync", True:
            host.impaired = True
            disk.lies_about = frozenset(host.chance.choice(LIES))
            if {"log", "guard"} <= disk.lies_about:
                world.distrust(host.node)  # its disk will make it forget what it signed
        case "lost_fsync", False:
            host.down_for(fault)
            disk.lies_about = frozenset()
            host.up_for(fault)
        case "bit_rot", True:
            host.impaired = True
            host.down_for(fault)
            disk.rot()
        case "wiped", True:
            host.impaired = True
            host.down_for(fault)
            disk.wipe()
        case "rolled_back", True:
            host.impaired = True
            world.distrust(host.node)  # it will not know what it signs in the meantime
            disk.remember()
        case "rolled_back", False:
            host.down_for(fault)
            disk.roll_back()
            host.up_for(fault)
        case _, False:
            host.up_for(fault)
