"""When to give up on a view: timers that double with every view that makes nothing final.

    PARKED --open--> RUNNING --park--> PARKED
                      | delta * 2^k / 2   a leader closes a stuck finalization with an empty block
                      | 2 delta * 2^k     leader timer: nothing notarized by me? Nullify
                      | 3 delta * 2^k     advance timer: no certificate? Nullify
                      | every delta       ask again for what is missing
                      | 1, 2, 4, 8, then every 8 delta     send my last votes again

k counts the views that are over above the newest final block, but for one that is notarized, up to
a cap. It follows from what is certified: all who know the same wait equally long, and a restart
changes nothing. The empty block waits for a delta at least. Votes are sent again ever more seldom
while they are the same and nobody shows that it may lack them. Timers never matter to safety; a
view whose timers are parked goes on as soon as somebody has something to decide.
"""

from dataclasses import dataclass

LEADER_DELTAS = 2  # the proposal's way here, and that of the certificate that let the leader enter
ADVANCE_DELTAS = 3  # and the votes' way on top
# Between two times that the same votes are sent again: a third of what liveness allows, see
# docs/consensus.md
RESEND_DELTAS_MAX = 8


@dataclass(frozen=True, slots=True)
class Timing:
    delta_ns: int  # an upper bound on one message's way once the network behaves
    doublings_max: int = 5  # 32-fold: a view lasts at most 96 delta


class Pacemaker:
    """The timers of one view at a time."""

    def __init__(self, timing: Timing) -> None:
        assert timing.delta_ns > 0
        self._timing = timing
        self._doublings = 0
        self._opened_ns: int | None = None
        self._beat_ns = 0  # the next, a delta after the one before
        self._pause, self._beats_left = 0, 1  # between resends, and until the next one; in beats

    @property
    def running(self) -> bool:
        return self._opened_ns is not None

    def open(self, now_ns: int) -> None:
        """Start the timers, if they do not run."""
        if self._opened_ns is None:
            self._opened_ns = now_ns
            self._beat_ns = now_ns + self._timing.delta_ns
            self._pause, self._beats_left = 0, 1

    def park(self) -> None:
        self._opened_ns = None

    def enter_view(self) -> None:
        """A new view: its timers have yet to be opened."""
        self._opened_ns = None

    def be_patient(self, views: int) -> None:
        """So many views have come to nothing since the newest final block."""
        self._doublings = min(views, self._timing.doublings_max)

    def empty_block_due(self, now_ns: int) -> bool:
        return self._passed(now_ns, self._empty_block_ns)

    def leader_timer_passed(self, now_ns: int) -> bool:
        return self._passed(now_ns, LEADER_DELTAS * self._patience_ns)

    def advance_timer_passed(self, now_ns: int) -> bool:
        return self._passed(now_ns, ADVANCE_DELTAS * self._patience_ns)

    def take_beat(self, now_ns: int) -> bool:
        """Whether it is time to try again what waits for others; the next is a delta from now."""
        if self._opened_ns is None or now_ns < self._beat_ns:
            return False
        self._beat_ns = now_ns + self._timing.delta_ns
        return True

    def take_resend(self, is_news: bool) -> bool:
        """Whether to send the last votes again, at a beat; `is_news`: they, or who may lack them.

        Then pauses begin anew; else each is twice as long as the one before, up to a limit.
        """
        self._beats_left -= 1
        if is_news:
            self._pause = 0
        elif self._beats_left:
            return False
        self._pause = self._beats_left = max(1, min(2 * self._pause, RESEND_DELTAS_MAX))
        return True

    def deadline_ns(self, now_ns: int) -> int | None:
        """The next moment after `now_ns` at which a timer passes; None while parked."""
        if self._opened_ns is None:
            return None
        opened_ns, patience_ns, delta_ns = self._opened_ns, self._patience_ns, self._timing.delta_ns
        next_ns = now_ns + delta_ns
        for moment_ns in (
            self._beat_ns,
            opened_ns + self._empty_block_ns,
            opened_ns + LEADER_DELTAS * patience_ns,
            opened_ns + ADVANCE_DELTAS * patience_ns,
        ):
            if now_ns < moment_ns < next_ns:
                next_ns = moment_ns
        return next_ns

    @property
    def _patience_ns(self) -> int:
        return self._timing.delta_ns << self._doublings

    @property
    def _empty_block_ns(self) -> int:
        # Half, so that it is with everybody before a leader timer passes: see docs/consensus.md.
        return max(self._timing.delta_ns, self._patience_ns // 2)

    def _passed(self, now_ns: int, after_ns: int) -> bool:
        return self._opened_ns is not None and now_ns >= self._opened_ns + after_ns
