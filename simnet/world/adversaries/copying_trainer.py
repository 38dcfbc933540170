"""A copycat's trainer: it trains, and then offers for its own what another has just offered.

It shows the boundaries of its own training, which the other's update does not follow from: met by a
check of the seal. Where nobody has offered before it, it waits a while.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from daa_dag.ids import BlobRoot
from daa_node.seams import SealedUpdate, TrainOrder

if TYPE_CHECKING:  # as the trainers beside it: no daemon is needed to know of it
    from daa_node.node_parts import LivingTrainer, NodeParts

UPDATES = "updates"
WAITS_S, LOOKS_EVERY_S = 1.0, 0.05


class CopyingTrainer:
    """The daemon's own, but for the update that it answers with."""

    def __init__(self, parts: "NodeParts") -> None:
        self._inner: LivingTrainer = parts.trainer
        self._store = parts.work_store
        self.initial_state, self.evaluate = self._inner.initial_state, self._inner.evaluate
        self.apply_delta = self._inner.apply_delta
        self.aggregate_and_step = self._inner.aggregate_and_step
        self.keep_boundaries = self._inner.keep_boundaries
        self.check_segment = self._inner.check_segment
        self.open_segment, self.canary = self._inner.open_segment, self._inner.canary

    @property
    def pid(self) -> int | None:
        return self._inner.pid

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        before = set(await self._store.blob_roots(UPDATES))
        sealed = await self._inner.train_and_seal(order)
        if order.merged_round < 0:
            return sealed
        with trio.move_on_after(WAITS_S):
            while (copied := await self._newcomer(before, sealed)) is None:
                await trio.sleep(LOOKS_EVERY_S)
            return replace(sealed, blob_root=copied)
        return sealed

    async def _newcomer(self, before: set[BlobRoot], own: SealedUpdate) -> BlobRoot | None:
        """Another's update that has come since, whole and like ours."""
        for root in sorted(set(await self._store.blob_roots(UPDATES)) - before - {own.blob_root}):
            manifest = await self._store.blob_manifest(UPDATES, root)
            if manifest is not None and manifest.size_bytes == own.size_bytes:
                return root
        return None
