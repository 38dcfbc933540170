"""When nodes stop waiting for contributions: the daemon's own rule, asked when it may say yes.

A node's answer can change when a contribution becomes eligible and leaves nobody to wait for, when
somebody is gone, when a grace or its patience is over, and when its window ends. The daemon asks
every 50 ms as well; asking at these moments alone comes to the same.
"""

from functools import partial

from daa_node.autonomy.reason import Gathering
from simnet.heap.training_member import Attempt, Member
from simnet.heap.training_round import OpenRound, moments_ns, why_close
from simnet.heap.training_world import TrainingWorld
from simnet.links import MS, NS


class Closing:
    """The collections of all nodes in the open round."""

    def __init__(self, world: TrainingWorld) -> None:
        self._world = world

    def entered(self, member: Member, attempt: Attempt) -> None:
        """Its window runs from now on."""
        window_ns = self._world.rounds.window_ms * MS
        check = partial(self._check, member, attempt)
        self._world.agenda.after(window_ns, check)
        if attempt.makes_none and self._world.open.eligible:
            self._ask_later(member, attempt)
        check()

    def own_ready(self, member: Member, attempt: Attempt) -> None:
        """It has offered, and waits for the others."""
        attempt.own_ready_ns = self._world.now_ns
        self._ask_later(member, attempt)
        self._check(member, attempt)

    def eligible(self, opened: OpenRound, author: int) -> None:
        """A quorum holds this contribution, and everybody has heard so."""
        world = self._world
        if opened is not world.open or opened.over:
            return
        first = not opened.eligible
        opened.make_eligible(author, world.ids[author], world.now_ns)
        if first:  # for whoever makes none, patience begins
            for member in world.members:
                if member.attempt is not None and member.attempt.makes_none:
                    self._ask_later(member, member.attempt)
        self.check_all()

    def check_all(self) -> None:
        """Ask everybody, if there is nobody to wait for."""
        world, opened = self._world, self._world.open
        missing = opened.expected - opened.eligible_ids
        if missing & world.reachable & opened.recent:
            return
        for member in world.members:
            if member.attempt is not None:
                self._check(member, member.attempt)

    def _ask_later(self, member: Member, attempt: Attempt) -> None:
        for at_ns in moments_ns(self._world.now_ns, member.policy):
            self._world.agenda.at(at_ns, partial(self._check, member, attempt))

    def _check(self, member: Member, attempt: Attempt) -> None:
        world, opened = self._world, self._world.open
        if member.attempt is not attempt or attempt.closed_ns is not None:
            return
        if opened.over or not member.is_able:
            return
        ready_ns = attempt.own_ready_ns
        if ready_ns is None and attempt.makes_none:
            ready_ns = opened.first_eligible_ns
        gathering = Gathering(
            elapsed_s=(world.now_ns - attempt.opened_ns) / NS,
            since_own_s=None if ready_ns is None else (world.now_ns - ready_ns) / NS,
            window_s=world.rounds.window_ms / 1000,
            expected=opened.expected,
            eligible=opened.eligible_ids,
            reachable=world.reachable,
            recent=opened.recent,
        )
        reason = why_close(gathering, member.policy, world.scenario.work.adaptive)
        if reason is None:
            return
        attempt.closed_ns = opened.closed[member.node] = world.now_ns
        world.trace.note(world.now_ns, "close", node=member.node, reason=reason)
        world.parts.settlement.closed(member)
