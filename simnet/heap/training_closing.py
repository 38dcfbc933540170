"""When nodes stop waiting for contributions: the daemon's own rule, asked when it may say yes.

A daemon asks every 50 ms. Here the moment at which the rule may say yes is reckoned beforehand: it
moves when a contribution becomes eligible or somebody is gone. The rule itself then decides.
"""

from functools import partial

from daa_node.autonomy.reason import GRACE_S, UNREACHABLE_GRACE_S, Gathering
from simnet.heap.training_agenda import grid_ns
from simnet.heap.training_member import Attempt, Member
from simnet.heap.training_round import OpenRound, why_close
from simnet.heap.training_world import TrainingWorld
from simnet.links import MS, NS


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
        missing = opened.expected - opened.eligible_ids
        graces: dict[int, tuple[float, int]] = {}  # of each view: at least so long, for so many
        next_ns: list[int] = []
        for member in world.members:
            attempt = member.attempt
            if attempt is None or attempt.closed_ns is not None or opened.over:
                continue
            if not world.reach.decides(member.node):
                continue
            if not missing:
                self._check(member, attempt)
                continue
            since_ns = self.since_ns(member, attempt)
            if since_ns is None or not world.scenario.work.adaptive:
                continue
            view = world.reach.view(member.node)
            if view not in graces:
                here = missing & world.seen_by(view)
                graces[view] = (
                    GRACE_S if here else UNREACHABLE_GRACE_S,
                    len(here & opened.recent),
                )
            grace_s, awaited = graces[view]
            if awaited:
                ready_s = (since_ns - attempt.began_ns) / NS
                grace_s = max(grace_s, ready_s * awaited / max(1, len(opened.eligible)))
            if not awaited or len(opened.eligible) > opened.half:
                grace_s = min(grace_s, member.policy.patience_s)
            due_ns = since_ns + round(grace_s * NS) + 1
            if due_ns <= world.now_ns:
                self._check(member, attempt)
            else:
                next_ns.append(due_ns)
        if next_ns:
            self._look_at(min(next_ns))

    def since_ns(self, member: Member, attempt: Attempt) -> int | None:
        """Since when a node may call others late, as its Gather reckons."""
        eligible = self._world.open.eligible
        if attempt.own_ready_ns is None:
            return self._world.open.first_eligible_ns if attempt.makes_none else None
        signs_ns = [eligible[member.node]] if member.node in eligible else []
        half_ns = self._world.open.half_eligible_ns
        signs_ns += [] if half_ns is None else [half_ns]
        return max(attempt.own_ready_ns, min(signs_ns)) if signs_ns else None

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
