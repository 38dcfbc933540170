"""The steps that a simulated trainer takes between two orders: their time, and when they count.

idle --resume--> steps pass --an order comes: the one under way is done--> counted
                                               ... --> the next training works them out
"""

from math import ceil

import trio

from daa_node.training.ahead import Ahead
from simnet.checks.training_books import Account, Stage
from simnet.world.links import NS

STEP_ROUNDING = 1e-6  # of a step: times are whole nanoseconds


class BetweenOrders:
    """Of one trainer; without an `ahead` nothing passes."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._step_s = 0.0
        self.ahead: Ahead | None = None
        self.steps = 0  # taken, and not yet worked out

    def begin(self, ahead: Ahead | None, step_s: float) -> None:
        self.ahead, self._step_s, self.steps = ahead, step_s, 0

    def resume(self) -> None:
        """Nobody has an order."""
        if self.ahead is not None:
            left = self.ahead.steps_max - self.steps
            self._account.trains_on(round(left * self._step_s * NS))

    async def stop(self) -> None:
        """Return when the step under way is done."""
        if self.ahead is None:
            return
        trained_s = self._account.stops_training_on() / NS
        steps = ceil(trained_s / self._step_s - STEP_ROUNDING)
        self.steps += steps
        rest_s = steps * self._step_s - trained_s
        if rest_s > 0:
            with self._account.at_work(Stage.TRAINING):
                await trio.sleep(rest_s)
