"""What goes wrong in a training world: processes die and come back, stop for a while, links slow.

A node that is killed loses the round's steps and its memory, not its disk; it is back when its
process has restarted and its worker is ready. A pause is not noticed by others. Faults overlap: a
node is up once all that keep it down have healed.
"""

from functools import partial

from daa_node.errors import UserError
from simnet.determinism import DOWN, FAULT, UP
from simnet.faults import Edge
from simnet.heap.training_member import Member
from simnet.heap.training_world import TrainingWorld
from simnet.scenario import Scenario
from simnet.training.tally import Stage

KNOWN = ("kill", "attrition", "pause", "slow", "disk")


def check(scenario: Scenario) -> None:
    """Raises UserError for a fault that this world does not have."""
    for index, fault in enumerate(scenario.faults):
        if fault.kind not in KNOWN:
            raise UserError(
                f"faults[{index}]: training on the heap has no {fault.kind}; "
                f"it has {', '.join(KNOWN)}"
            )


class Failures:
    """Carries out the edges of a timeline."""

    def __init__(self, world: TrainingWorld) -> None:
        self._world = world
        self._held_down = [0] * len(world.members)
        self._pauses = [0] * len(world.members)

    def schedule(self, edges: list[Edge], until_ns: int) -> None:
        for edge in edges:
            if edge.at_ns <= until_ns:
                self._world.agenda.at(edge.at_ns, partial(self._happen, edge))

    def _happen(self, edge: Edge) -> None:
        world, fault = self._world, edge.fault
        world.trace.note(
            world.now_ns,
            FAULT,
            kind=fault.kind,
            begins=edge.begins,
            nodes=list(edge.nodes),
            detail=fault.disk if fault.kind == "disk" else "",
        )
        world.parts.transfers.settle()
        for node in edge.nodes:
            member = world.members[node]
            match fault.kind:
                case "slow":
                    world.links.slow(node, fault.factor if edge.begins else 1.0)
                case "pause":
                    self._pause(member, edge.begins)
                case _:
                    self._kill(member, edge.begins, fault.kind == "disk" and fault.disk == "wiped")
        world.parts.transfers.changed()
        world.parts.closing.look_soon()

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
        member.is_up = False
        member.account.enter(Stage.DOWN, world.now_ns)
        world.set_reachable(member, False)
        world.links.set_active(member.node, False)
        world.open.recent.discard(member.node_id)
        world.open.closed.pop(member.node, None)
        world.open.executed.pop(member.node, None)
        world.trace.note(world.now_ns, DOWN, node=member.node)

    def _up(self, member: Member) -> None:
        world = self._world
        member.is_up = True
        member.account.enter(Stage.WAITING, world.now_ns)
        if member.paused_ns is not None:
            member.pause(world.now_ns)
        world.set_reachable(member, True)
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
