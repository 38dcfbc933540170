"""Bring what a replay takes, replay it in its turn, and let it go.

Exact steps take some ten times as long as an author's, so that no round has time for a segment of
them: each has a turn, and where one has led is kept on the shelf of disputes until the next.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import inf
from typing import TypeVar

import trio

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.disputes.bench import Bench
from daa_node.disputes.exhibits import Exhibits
from daa_node.errors import Unavailable
from daa_node.seams import SegmentCheck, SegmentOrder, Trainer

TURNS_MAX = 8  # for one step: a round may have had less time than the one before
NO_NUMBERS = SegmentCheck(inf, inf, inf, 0.0, None, steps_agree=False)

Found = TypeVar("Found")


class Replayer:
    """By our own worker."""

    def __init__(self, trainer: Trainer, bench: Bench, exhibits: Exhibits) -> None:
        self._trainer = trainer
        self._bench = bench
        self._exhibits = exhibits
        self._step_s = 0.0  # that the newest exact step of many has taken

    async def replayed(
        self, order: SegmentOrder, author: NodeId, accuser: NodeId | None = None
    ) -> SegmentCheck:
        """What our worker finds. Raises NodeError."""
        held = await self._exhibits.bring(order, author, accuser)
        try:
            if order.exact and order.steps > 1:
                return await self._walked(order, held)
            return await self._bench.do(partial(self._trainer.check_segment, order))
        finally:
            with trio.CancelScope(shield=True):
                await self._exhibits.let_go(held)

    async def _walked(self, order: SegmentOrder, held: list[Digest]) -> SegmentCheck:
        """One step after the other; `held` is to be let go in the end. Raises NodeError."""
        at = order.start_root
        for number in range(order.step, order.step + order.steps - 1):
            step = replace(order, step=number, steps=2, start_root=at)  # states but the last
            reached = await self._step(partial(self._trainer.open_segment, step))
            if not reached:
                return NO_NUMBERS
            self._exhibits.hold(reached[0])
            held.append(reached[0])
            if at != order.start_root:
                held.remove(Digest(at))
                await self._exhibits.let_go([Digest(at)])
            at = BlobRoot(reached[0])
        last = replace(
            order,
            step=order.step + order.steps - 1,
            steps=1,
            start_root=at,
            origin_root=order.start_root,
        )
        return await self._step(partial(self._trainer.check_segment, last))

    async def _step(self, work: Callable[[], Awaitable[Found]]) -> Found:
        """Raises NodeError."""

        async def timed() -> Found:
            began_s = trio.current_time()
            found = await work()
            self._step_s = trio.current_time() - began_s
            return found

        for _ in range(TURNS_MAX - 1):
            with suppress(Unavailable):  # cut off
                return await self._bench.do(timed, self._step_s)
        return await self._bench.do(timed, self._step_s)


def follows(found: SegmentCheck, tolerance: Fraction) -> bool:
    """Whether what is claimed is where the steps, or the seal, lead, as far as rounding goes.

    What error feedback owes does not change with steps: names tell that.
    """
    distances = [found.weights, found.first, found.second]
    if found.sealed is not None:
        distances += [found.residual, found.sealed]
    return found.steps_agree and max(distances) <= tolerance
