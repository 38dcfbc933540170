"""A liar's trainer: what it seals is poisoned, or was never trained.

Poisoners know what any member of a set knows: every update of the newest round that they executed.
The blob goes into the daemon's own store, and the Offer is the daemon's: to everybody else it is an
update like any other. N honest updates, D parameters.
"""

import random
from dataclasses import replace
from typing import Protocol

import numpy as np

from daa_dag.chunking import cut, manifest_of
from daa_dag.ids import BlobRoot, NodeId
from daa_node.node_parts import LivingTrainer, NodeParts
from daa_node.seams import (
    AggregateOrder,
    SealedUpdate,
    SteppedState,
    TrainOrder,
)
from daa_node.tensors import Float32Array, UInt8Array
from daa_node.updates.compression.codec import codec_named, decode, encode
from daa_node.updates.grid import to_float32
from simnet.world.adversaries.free_rider import nothing, whisper
from simnet.world.adversaries.poisoner import Sight, poisoned_blob
from simnet.world.scenario import Poison

UPDATES = "updates"


class Updates:
    """Updates in the daemon's own store: out of it as floats, into it as blobs."""

    def __init__(self, parts: NodeParts) -> None:
        self._store = parts.work_store
        self.parameter_count = parts.genesis.job.model.parameter_count()

    async def decoded(self, root: BlobRoot, codec: str) -> Float32Array:
        count = self.parameter_count
        blob = np.frombuffer(await self._store.view_blob(UPDATES, root), np.uint8)
        return to_float32(decode(codec_named(codec), blob, 0, count, count))

    async def put(self, blob: UInt8Array) -> BlobRoot:
        """It is synced when the daemon acknowledges it."""
        payload = blob.tobytes()
        manifest = manifest_of(payload, cut([len(payload)]))
        writer = await self._store.begin_blob(UPDATES, manifest)
        for index in writer.missing():
            at = manifest.offsets[index]
            await writer.write_chunk(index, payload[at : at + manifest.sizes[index]])
        await writer.commit()
        return manifest.root


class Lie(Protocol):
    """What a liar seals."""

    async def sealed(self, order: TrainOrder) -> SealedUpdate: ...

    async def sees(self, order: AggregateOrder) -> None:
        """A decided set is about to be executed here."""


class LyingTrainer:
    """The daemon's own, but for what it seals; executes honestly, or it would earn nothing."""

    def __init__(self, inner: LivingTrainer, lie: Lie) -> None:
        self._inner = inner
        self._lie = lie
        self.initial_state, self.evaluate = inner.initial_state, inner.evaluate
        self.apply_delta, self.train_and_seal = inner.apply_delta, lie.sealed

    @property
    def pid(self) -> int | None:
        return self._inner.pid

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        await self._lie.sees(order)
        return await self._inner.aggregate_and_step(order)


class Poisoning:
    """Trains as it is told, and turns what comes of it against the model."""

    def __init__(
        self,
        parts: NodeParts,
        poison: Poison,
        league: frozenset[NodeId],
        chance: random.Random,
    ) -> None:
        self._trainer: LivingTrainer = parts.trainer
        self._updates = Updates(parts)
        self._poison = poison
        self._league = league
        self._chance = np.random.default_rng(chance.getrandbits(64))
        self._seen_ND: list[Float32Array] = []  # of the newest set that we executed

    async def sealed(self, order: TrainOrder) -> SealedUpdate:
        sealed = await self._trainer.train_and_seal(order)
        own_D = await self._updates.decoded(sealed.blob_root, sealed.codec)
        known_ND = np.stack(self._seen_ND or [own_D])
        sight = Sight(own_D, known_ND, len(self._league), self._chance)
        blob = poisoned_blob(self._poison, sight, codec_named(order.codec))
        return replace(sealed, blob_root=await self._updates.put(blob))

    async def sees(self, order: AggregateOrder) -> None:
        self._seen_ND = [
            await self._updates.decoded(update.blob_root, update.codec)
            for update in order.updates
            if update.author not in self._league
        ]


class FreeRiding:
    """Says that it took every step, and took none."""

    def __init__(self, parts: NodeParts, chance: random.Random) -> None:
        self._me = parts.keys.node_id
        self._updates = Updates(parts)
        self._tokens_per_step = parts.genesis.job.tokens_per_step
        self._chance = np.random.default_rng(chance.getrandbits(64))
        self._like_D = nothing(self._updates.parameter_count)  # some update that it has seen

    async def sealed(self, order: TrainOrder) -> SealedUpdate:
        blob = encode(codec_named(order.codec), whisper(self._like_D, self._chance))
        return SealedUpdate(
            blob_root=await self._updates.put(blob),
            size_bytes=blob.size,
            codec=order.codec,
            steps=order.steps_max,
            tokens=order.steps_max * self._tokens_per_step,
            us_per_step=1,
            loss_nats=0.0,
            snapshot_roots=(),
            seal_s=0.0,
        )

    async def sees(self, order: AggregateOrder) -> None:
        others = [update for update in order.updates if update.author != self._me]
        if others:
            seen = others[-1]
            self._like_D = await self._updates.decoded(seen.blob_root, seen.codec)
