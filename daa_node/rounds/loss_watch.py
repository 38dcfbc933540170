"""Whether a certified step has spoilt the model: the one thing that no vote can see.

Votes say that a step is the one that its set makes; they say nothing of its worth. A rule that is
told of fewer liars than there are lets them carry the model away, and every node certifies it.
So each node looks at its own held-out loss and says so. Local: floats, and for people.
"""

from collections.abc import Iterable
from math import isfinite

# A step of honest contributions loses a little now and then, and less the lower the loss is.
JUMP_FACTOR = 1.5
JUMP_NATS = 0.1


class LossWatch:
    """Held-out losses of one model, oldest first, in nats."""

    def __init__(self) -> None:
        self._lowest_nats: float | None = None
        self.alarm: str | None = None  # why the newest loss is no honest step's, while it is none

    def look_back(self, losses_nats: Iterable[float | None]) -> None:
        """Take in losses that others reported while we were away: they raise no alarm."""
        for loss_nats in losses_nats:
            if loss_nats is not None and isfinite(loss_nats):
                self._take(loss_nats)

    def look(self, loss_nats: float) -> bool:
        """Judge the newest loss; whether it has just jumped."""
        lowest, before = self._lowest_nats, self.alarm
        if lowest is None and isfinite(loss_nats):
            self._take(loss_nats)
            return False
        if isfinite(loss_nats) and lowest is not None:
            jumped = loss_nats > JUMP_FACTOR * lowest + JUMP_NATS
        else:
            jumped = True
        if not jumped:
            self._take(loss_nats)
            self.alarm = None
            return False
        was = "no loss" if lowest is None else f"{lowest:.3f}"
        self.alarm = (
            f"held-out loss {loss_nats:.3f} nats, it was {was}: contributions may be poisoned by "
            "more members than updates.f_agg allows for"
        )
        return before is None

    def _take(self, loss_nats: float) -> None:
        lowest = self._lowest_nats
        self._lowest_nats = loss_nats if lowest is None else min(lowest, loss_nats)
