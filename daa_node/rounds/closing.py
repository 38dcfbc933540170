"""When the collection of one round closes: what became eligible when, and since when we wait."""

from collections.abc import Callable

import trio

from daa_consensus.bft.messages import OfferBody
from daa_dag.ids import ContributionRoot, NodeId
from daa_node.observability import events
from daa_node.rounds.collect import Collection
from daa_node.rounds.context import RoundContext

# How often the closing rule is asked while patience runs: who has waited for long may notice later
# that it is over. Before, only the window's end closes a round in which nothing changes.
CLOSE_CHECK_S = 0.05
CLOSE_CHECK_SHARE = 1 / 20  # of the time that we have waited
CLOSE_CHECK_S_MAX = 1.0

# (collection, seconds since the window opened, seconds since others may be called late) -> why to
# close
MayClose = Callable[[Collection, float, float | None], str | None]


class Closing:
    """Of one collection; `why` once it is closed."""

    def __init__(self, context: RoundContext, collection: Collection, may_close: MayClose) -> None:
        self._context = context
        self._collection = collection
        self._may_close = may_close
        self._opened_s = trio.current_time()
        self._own_ready_s: float | None = None
        self._makes_none = False
        self._newest_s: float | None = None  # when the newest contribution became eligible
        self._eligible_since_s: dict[ContributionRoot, float] = {}
        self._noted = collection.eligible()  # as it was when we looked last
        self._changed = trio.lowlevel.ParkingLot()  # something that the closing rule goes by
        self.why: str | None = None
        self._closed_s = float("inf")

    @property
    def elapsed_s(self) -> float:
        """Since the window opened."""
        return trio.current_time() - self._opened_s

    @property
    def spread_s(self) -> float | None:
        """How much later than most the newest counted; None if we made no update.

        Whoever is missing is taken to have come first. Else a member that stays away teaches no
        patience with the slowest of the others, and has it left out by coming early again.
        """
        most_s = self._most_since_s(len(self._context.plan.shares) - len(self._noted))
        if self._own_ready_s is None or most_s is None or self._newest_s is None:
            return None
        return max(0.0, self._newest_s - max(self._own_ready_s, most_s))

    def own_ready(self) -> None:
        """Our own update was offered."""
        self._own_ready_s = trio.current_time()
        self._changed.unpark_all()

    def own_missing(self) -> None:
        """No update of ours is to be waited for: the others' tell when patience begins."""
        self._makes_none = True
        self._changed.unpark_all()

    def note_eligible(self) -> None:
        """Look whether more contributions have become so."""
        eligible, now_s = self._collection.eligible(), trio.current_time()
        if eligible is self._noted:
            return
        self._noted = eligible
        for contribution in eligible:
            if contribution.root not in self._eligible_since_s:
                self._eligible_since_s[contribution.root] = self._newest_s = now_s
                self._context.events.emit(
                    events.OFFER_ELIGIBLE, round=contribution.round, author=contribution.author
                )
        self._changed.unpark_all()

    def owes(self, contribution: OfferBody) -> bool:
        """Whether every set must list it: eligible before we closed, and for a delta by now.

        What becomes eligible later is demanded by nobody, or who sends its Acks one by one could
        always make one more set unacceptable.
        """
        since_s = self._eligible_since_s[contribution.root]
        age_s = trio.current_time() - since_s
        return since_s <= self._closed_s and age_s > self._context.agreement.delta_s

    async def run(self) -> None:
        """Return once it is closed."""
        while self.why is None:
            since_s = self._waiting_since_s()
            waiting_s = None if since_s is None else trio.current_time() - since_s
            self.why = self._may_close(self._collection, self.elapsed_s, waiting_s)
            if self.why is None:
                with trio.move_on_after(self._pause_s(waiting_s)):
                    await self._changed.park()
        self._closed_s = trio.current_time()
        round_number = self._context.plan.round
        self._context.events.emit(
            events.DECISION, decision=f"close round {round_number}", reason=self.why
        )
        self._context.agreement.round_ready(round_number)

    def _pause_s(self, waiting_s: float | None) -> float:
        """Until the closing rule may say something else although nothing has changed."""
        if waiting_s is not None:
            return max(CLOSE_CHECK_S, min(CLOSE_CHECK_S_MAX, waiting_s * CLOSE_CHECK_SHARE))
        window_s, agreement = self._context.rules.rounds.window_s, self._context.agreement
        return max(CLOSE_CHECK_S, agreement.round_began_s + window_s - trio.current_time())

    def _waiting_since_s(self) -> float | None:
        """Since when others may be called late: since a quorum held the updates of most.

        Who was planned little is done first, and that makes nobody else late. Before most are
        there our own update tells: theirs take the same way, and on thin links that is hours. If
        we make none, the first of the others' does.
        """
        if self._own_ready_s is None and not self._makes_none:
            return None
        since_s = self._most_since_s()
        if since_s is None and self._own_ready_s is None:
            since_s = min(self._noted_since_s().values(), default=None)
        elif since_s is None:
            since_s = self._noted_since_s().get(self._context.me)
        return None if since_s is None else max(self._own_ready_s or 0.0, since_s)

    def _most_since_s(self, came_first: int = 0) -> float | None:
        """Since when a quorum holds the updates of most, if so many more had come first."""
        plan = self._context.plan
        most = max(len(plan.shares) // 2, 2 * self._context.rules.f_agg(plan)) + 1
        place = max(0, most - 1 - came_first)
        in_order_s = sorted(self._noted_since_s().values())
        return in_order_s[place] if place < len(in_order_s) else None

    def _noted_since_s(self) -> dict[NodeId, float]:
        return {each.author: self._eligible_since_s[each.root] for each in self._noted}
