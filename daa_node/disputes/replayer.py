"""Bring what a replay takes, replay it in its turn, and let it go."""

from fractions import Fraction
from functools import partial

import trio

from daa_dag.ids import NodeId
from daa_node.disputes.bench import Bench
from daa_node.disputes.exhibits import Exhibits
from daa_node.seams import SegmentCheck, SegmentOrder, Trainer


class Replayer:
    """By our own worker."""

    def __init__(self, trainer: Trainer, bench: Bench, exhibits: Exhibits) -> None:
        self._trainer = trainer
        self._bench = bench
        self._exhibits = exhibits

    async def replayed(
        self, order: SegmentOrder, author: NodeId, accuser: NodeId | None = None
    ) -> SegmentCheck:
        """What our worker finds. Raises NodeError."""
        held = await self._exhibits.bring(order, author, accuser)
        try:
            return await self._bench.do(partial(self._trainer.check_segment, order))
        finally:
            with trio.CancelScope(shield=True):
                await self._exhibits.let_go(held)


def follows(found: SegmentCheck, tolerance: Fraction) -> bool:
    """Whether what is claimed is where the steps, or the seal, lead, as far as rounding goes.

    What error feedback owes does not change with steps: names tell that.
    """
    distances = [found.weights, found.first, found.second]
    if found.sealed is not None:
        distances += [found.residual, found.sealed]
    return found.steps_agree and max(distances) <= tolerance
