"""What goes wrong in a training world: processes die and come back, stop for a while, links fail.

A node that is killed loses the round's steps and its memory, not its disk; it is back when its
process has restarted and its worker is ready. A pause is not noticed by others, nor is a partition
before its connections break. Held nodes are cut off from everybody, as in other worlds. Faults
overlap: a node is up once all that keep it down have healed, and as slow as all make it together.
"""

from collections import defaultdict
from functools import partial
from math import prod

from daa_node.errors import UserError
from simnet.determinism import DOWN, FAULT, UP
from simnet.faults import Edge, parts
from simnet.heap.training_member import Member
from simnet.heap.training_reach import BREAK_S, Cut
from simnet.heap.training_world import TrainingWorld
from simnet.links import NS
from simnet.scenario import FaultConfig, Scenario
from simnet.training.tally import Stage


def check(scenario: Scenario) -> None:
    """Raises UserError for a fault that this world does not have."""
    for index, fault in enumerate(scenario.faults):
        if fault.kind == "clock":
            raise UserError(
                f"faults[{index}]: clock: nothing that training on the heap simulates reads a wall"
                " clock; whole daemons do, with --fidelity trio"
            )


class Failures:
    """Carries out the edges of a timeline."""

    def __init__(self, world: TrainingWorld) -> None:
        self._world = world
        self._held_down = [0] * len(world.members)
        self._pauses = [0] * len(world.members)
        self._link_faults: dict[int, list[FaultConfig]] = defaultdict(list)  # by node
        self._partitions: list[Edge] = []  # in force
        self._cuts: list[tuple[Edge, Cut]] = []  # in force, and not just open while they flap

    def schedule(self, edges: list[Edge], until_ns: int) -> None:
        for edge in edges:
            if edge.at_ns <= until_ns:
                self._world.agenda.at(edge.at_ns, partial(self._happen, edge))

    def _happen(self, edge: Edge) -> None:
        world, fault = self._world, edge.fault
        world.trace.note(world.now_ns, FAULT, **edge.told())
        world.parts.transfers.settle()
        if fault.kind in ("partition", "hold"):
            self._partition(edge)
            return
        had_quorum = world.reach.has_quorum
        for node in edge.nodes:
            member = world.members[node]
            match fault.kind:
                case "slow" | "loss":
                    self._impair(node, edge)
                case "pause":
                    self._pause(member, edge.begins)
                case _:
                    self._kill(member, edge.begins, fault.kind == "disk" and fault.disk == "wiped")
        if world.reach.has_quorum and not had_quorum:
            self._resume_all()
        world.parts.transfers.changed()
        world.go_on()
        world.parts.closing.look_soon()

    def _impair(self, node: int, edge: Edge) -> None:
        faults = self._link_faults[node]
        faults.append(edge.fault) if edge.begins else faults.remove(edge.fault)
        kept = prod(1 - fault.percent / 100 for fault in faults if fault.kind == "loss")
        self._world.links.slow(node, prod(f.factor for f in faults if f.kind == "slow"))
        self._world.links.lose(node, 1 - kept)

    def _partition(self, edge: Edge) -> None:
        """A partition or a hold begins or ends; one that flaps goes on by itself."""
        if edge.begins:
            self._partitions.append(edge)
            self._toggle(edge)
            return
        begun = next(e for e in self._partitions if (e.fault, e.nodes) == (edge.fault, edge.nodes))
        self._partitions.remove(begun)
        self._cuts = [(e, cut) for e, cut in self._cuts if e is not begun]
        self._world.books.hit("a partition healed")
        self._rewire()

    def _toggle(self, edge: Edge) -> None:
        """Cut, or, if that is done and it flaps, open again for a period."""
        world, fault = self._world, edge.fault
        if edge not in self._partitions:
            return
        open_now = [(e, cut) for e, cut in self._cuts if e is not edge]
        if len(open_now) == len(self._cuts):
            shape = "isolate" if fault.kind == "hold" else fault.shape
            groups = parts(shape, edge.nodes, len(world.members))
            cut = Cut(tuple(groups), world.now_ns)
            open_now.append((edge, cut))
            world.agenda.after(BREAK_S * NS, partial(self._noticed, cut))
        self._cuts = open_now
        if fault.kind == "partition" and fault.shape == "flapping":
            world.agenda.after(round(fault.period_s * NS), partial(self._toggle, edge))
        self._rewire()

    def _noticed(self, cut: Cut) -> None:
        if any(cut is held for _, held in self._cuts):
            self._rewire()

    def _rewire(self) -> None:
        """Others are linked now, or seen."""
        world = self._world
        world.parts.transfers.settle()
        world.set_cuts([cut for _, cut in self._cuts])
        self._resume_all()
        world.parts.transfers.changed()
        world.go_on()
        world.parts.closing.look_soon()

    def _resume_all(self) -> None:
        """Whatever waited for links, or for a quorum."""
        parts = self._world.parts
        parts.transfers.say_again()
        parts.closing.ask_all()
        parts.settlement.look_again()
        parts.execution.look_again()

    def _kill(self, member: Member, begins: bool, disk_lost: bool) -> None:
        node = member.node
        self._held_down[node] += 1 if begins else -1
        if begins and disk_lost:
            member.disk_lost = True
            self._world.links.lose_disk(node)
            self._world.payload.forget(node)
        if begins and self._held_down[node] == 1:
            self._down(member)
        elif not begins and self._held_down[node] == 0:
            self._up(member)

    def _down(self, member: Member) -> None:
        world = self._world
        member.account.crashes += 1
        member.forget_process()
        member.account.enter(Stage.DOWN, world.now_ns)
        world.set_up(member, False)
        world.links.set_active(member.node, False)
        world.open.recent.discard(member.node_id)
        world.open.closed.pop(member.node, None)
        world.open.executed.pop(member.node, None)
        world.trace.note(world.now_ns, DOWN, node=member.node)

    def _up(self, member: Member) -> None:
        world = self._world
        member.account.enter(Stage.WAITING, world.now_ns)
        if member.paused_ns is not None:
            member.pause(world.now_ns)
        world.set_up(member, True)
        world.links.set_active(member.node, member.is_able)
        world.trace.note(world.now_ns, UP, node=member.node)
        if member.is_able:
            self._come_back(member, world.parts.transfers.greeting_ns)

    def _pause(self, member: Member, begins: bool) -> None:
        world, node = self._world, member.node
        self._pauses[node] += 1 if begins else -1
        if begins and self._pauses[node] == 1:
            if member.is_up:
                member.pause(world.now_ns)
            member.paused_ns = world.now_ns
        elif not begins and self._pauses[node] == 0:
            if member.is_up:
                member.resume(world.now_ns)
                self._come_back(member, 0)
            member.paused_ns = None
        world.links.set_active(node, member.is_able)

    def _come_back(self, member: Member, greeting_ns: int) -> None:
        """Go on where it stood, or find out what it missed."""
        world = self._world
        if member.disk_lost or member.height < world.newest.height:
            world.parts.transfers.catch_up(member)
        elif member.work is not None:
            due = partial(world.work_due, member, member.life)
            world.agenda.at(member.work.until_ns, due)
        elif member.attempt is None:
            world.parts.authors.enter(member, greeting_ns)
