"""When nodes stop waiting for contributions: the daemon's own rule, asked when it may say yes.

A daemon asks every 50 ms. Here the moment at which the rule may say yes is reckoned beforehand: it
moves when a contribution becomes eligible or somebody is gone. The rule itself then decides.
"""

from dataclasses import dataclass
from functools import partial

from daa_node.autonomy.reason import GRACE_S, UNREACHABLE_GRACE_S, Gathering
from simnet.heap.training_agenda import grid_ns
from simnet.heap.training_member import Attempt, Member
from simnet.heap.training_round import OpenRound, why_close
from simnet.heap.training_world import TrainingWorld
from simnet.links import MS, NS


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What the rule says to all nodes of one view, see reason.stop_waiting."""

    grace_s: float
    awaited_each: float  # who is waited for, over those who are there
    is_impatient: bool  # lessons count


class Closing:
    """The collections of all nodes in the open round."""

    def __init__(self, world: TrainingWorld) -> None:
        self._world = world
        self._grid_ns = grid_ns(len(world.members))
        self._next_look_ns: int | None = None

    def entered(self, member: Member, attempt: Attempt) -> None:
        """Its window runs from now on."""
        over_ns = attempt.began_ns + self._world.rounds.window_ms * MS
        self._world.agenda.at(
            max(self._world.now_ns, over_ns), partial(self._check, member, attempt)
        )
        self.look_soon()

    def own_ready(self, member: Member, attempt: Attempt) -> None:
        """It has offered, and waits for the others."""
        attempt.own_ready_ns = self._world.now_ns
        self.look_soon()

    def eligible(self, opened: OpenRound, author: int) -> None:
        """A quorum holds this contribution, and everybody has heard so."""
        world = self._world
        if opened is not world.open or opened.over:
            return
        opened.make_eligible(author, world.ids[author], world.now_ns)
        self.look_soon()

    def look_soon(self) -> None:
        """Something changed: look whether somebody may close now, and when next."""
        self._look_at(self._world.now_ns)

    def ask_all(self) -> None:
        """What every daemon does every 50 ms: ask its rule."""
        for member in self._world.members:
            if member.attempt is not None:
                self._check(member, member.attempt)

    def _look_at(self, at_ns: int) -> None:
        at_ns = -(-at_ns // self._grid_ns) * self._grid_ns
        if self._next_look_ns is None or at_ns < self._next_look_ns:
            self._next_look_ns = at_ns
            self._world.agenda.at(at_ns, partial(self._look, at_ns))

    def _look(self, at_ns: int) -> None:
        if self._next_look_ns != at_ns:
            return  # an earlier look took this one's place
        self._next_look_ns = None
        world, opened = self._world, self._world.open
        if opened.over:
            return
        everybody = opened.expected <= opened.eligible_ids
        bounds: dict[int, _Bounds] = {}  # by view
        next_ns: list[int] = []
        for member in world.members:
            attempt = member.attempt
            if attempt is None or attempt.closed_ns is not None:
                continue
            if everybody:
                self._check(member, attempt)
            elif attempt.own_ready_ns is not None or attempt.makes_none:
                due_ns = self._due_ns(member, attempt, bounds)
                if due_ns is not None and due_ns <= world.now_ns:
                    self._check(member, attempt)
                elif due_ns is not None:
                    next_ns.append(due_ns)
        if next_ns:
            self._look_at(min(next_ns))

    def _due_ns(self, member: Member, attempt: Attempt, bounds: dict[int, "_Bounds"]) -> int | None:
        """When its rule may say yes, as things are; None if it may not."""
        world = self._world
        since_ns = attempt.since_ns or self.since_ns(member, attempt)
        if since_ns is None or not world.scenario.work.adaptive:
            return None
        if not world.reach.decides(member.node):
            return None
        view = world.reach.view(member.node)
        if view not in bounds:
            bounds[view] = self._bounds(view)
        least = bounds[view]
        grace_s = max(least.grace_s, (since_ns - attempt.began_ns) / NS * least.awaited_each)
        if least.is_impatient:
            grace_s = min(grace_s, member.policy.patience_s)
        return since_ns + round(grace_s * NS) + 1

    def _bounds(self, view: int) -> "_Bounds":
        opened = self._world.open
        here = (opened.expected - opened.eligible_ids) & self._world.seen_by(view)
        awaited, eligible = len(here & opened.recent), len(opened.eligible)
        return _Bounds(
            GRACE_S if here else UNREACHABLE_GRACE_S,
            awaited / max(1, eligible),
            not awaited or eligible > opened.half,
        )

    def since_ns(self, member: Member, attempt: Attempt) -> int | None:
        """Since when a node may call others late, as its Gather reckons: it stays what it is."""
        if attempt.since_ns is None:
            attempt.since_ns = self._since_ns(member, attempt)
        return attempt.since_ns

    def _since_ns(self, member: Member, attempt: Attempt) -> int | None:
        opened = self._world.open
        if attempt.own_ready_ns is None:
            return opened.first_eligible_ns if attempt.makes_none else None
        first_ns, half_ns = opened.eligible.get(member.node), opened.half_eligible_ns
        if first_ns is None or (half_ns is not None and half_ns < first_ns):
            first_ns = half_ns
        return None if first_ns is None else max(attempt.own_ready_ns, first_ns)

    def _check(self, member: Member, attempt: Attempt) -> None:
        world, opened = self._world, self._world.open
        if member.attempt is not attempt or attempt.closed_ns is not None:
            return
        if opened.over or not world.takes_part(member.node):
            return
        since_ns = self.since_ns(member, attempt)
        gathering = Gathering(
            elapsed_s=(world.now_ns - attempt.began_ns) / NS,
            since_own_s=None if since_ns is None else (world.now_ns - since_ns) / NS,
            window_s=world.rounds.window_ms / 1000,
            expected=opened.expected,
            eligible=opened.eligible_ids,
            reachable=world.seen_by(world.reach.view(member.node)),
            recent=opened.recent,
        )
        reason = why_close(gathering, member.policy, world.scenario.work.adaptive)
        if reason is None:
            return
        attempt.closed_ns = opened.closed[member.node] = world.now_ns
        world.trace.note(world.now_ns, "close", node=member.node, reason=reason)
        world.parts.settlement.closed(member)
