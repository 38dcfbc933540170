"""A liar's trainer: what it seals is poisoned, or was never trained.

Poisoners know what any member of a set knows: every update of the newest round that they executed.
The blob goes into the daemon's own store, and the Offer is the daemon's: to everybody else it is an
update like any other. N honest updates, D parameters.
"""

import random
from dataclasses import replace

import numpy as np

from daa_dag.chunking import cut, manifest_of
from daa_dag.ids import BlobRoot, NodeId
from daa_node.node import LivingTrainer, NodeParts
from daa_node.seams import (
    AggregateOrder,
    BlobStore,
    SealedUpdate,
    SteppedState,
    TrainOrder,
)
from daa_node.tensors import Float32Array, UInt8Array
from daa_node.updates.compression.codec import codec_named, decode, encode
from daa_node.updates.grid import to_float32
from simnet.adversaries.free_rider import nothing, whisper
from simnet.adversaries.poisoner import Sight, poisoned_blob
from simnet.scenario import Poison

UPDATES = "updates"


class PoisoningTrainer:
    """Trains as it is told, and turns what comes of it against the model."""

    def __init__(
        self,
        parts: NodeParts,
        poison: Poison,
        league: frozenset[NodeId],
        chance: random.Random,
    ) -> None:
        self._inner: LivingTrainer = parts.trainer
        self._store = parts.work_store
        self._poison = poison
        self._league = league
        self._chance = np.random.default_rng(chance.getrandbits(64))
        self._parameter_count = parts.genesis.job.model.parameter_count()
        self._seen_ND: list[Float32Array] = []  # of the newest set that we executed
        self.initial_state, self.evaluate = self._inner.initial_state, self._inner.evaluate
        self.apply_delta = self._inner.apply_delta

    @property
    def pid(self) -> int | None:
        return self._inner.pid

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        sealed = await self._inner.train_and_seal(order)
        own_D = await self._decoded(sealed.blob_root, sealed.codec)
        known_ND = np.stack(self._seen_ND or [own_D])
        sight = Sight(own_D, known_ND, len(self._league), self._chance)
        blob = poisoned_blob(self._poison, sight, codec_named(order.codec))
        return replace(sealed, blob_root=await put(self._store, blob))

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        self._seen_ND = [
            await self._decoded(update.blob_root, update.codec)
            for update in order.updates
            if update.author not in self._league
        ]
        return await self._inner.aggregate_and_step(order)

    async def _decoded(self, root: BlobRoot, codec: str) -> Float32Array:
        return await decoded(self._store, root, codec, self._parameter_count)


class FreeRidingTrainer:
    """Says that it took every step, and took none; executes honestly, or it would earn nothing."""

    def __init__(self, parts: NodeParts, chance: random.Random) -> None:
        self._inner: LivingTrainer = parts.trainer
        self._me = parts.keys.node_id
        self._store = parts.work_store
        self._tokens_per_step = parts.genesis.job.tokens_per_step
        self._parameter_count = parts.genesis.job.model.parameter_count()
        self._chance = np.random.default_rng(chance.getrandbits(64))
        self._like_D = nothing(self._parameter_count)  # some update that it has seen
        self.initial_state, self.evaluate = self._inner.initial_state, self._inner.evaluate
        self.apply_delta = self._inner.apply_delta

    @property
    def pid(self) -> int | None:
        return self._inner.pid

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        blob = encode(codec_named(order.codec), whisper(self._like_D, self._chance))
        return SealedUpdate(
            blob_root=await put(self._store, blob),
            size_bytes=blob.size,
            codec=order.codec,
            steps=order.steps_max,
            tokens=order.steps_max * self._tokens_per_step,
            us_per_step=1,
            loss_nats=0.0,
            snapshot_roots=(),
            seal_s=0.0,
        )

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        others = [update for update in order.updates if update.author != self._me]
        if others:
            seen = others[-1]
            self._like_D = await decoded(
                self._store, seen.blob_root, seen.codec, self._parameter_count
            )
        return await self._inner.aggregate_and_step(order)


async def decoded(
    store: BlobStore, root: BlobRoot, codec: str, parameter_count: int
) -> Float32Array:
    """An update in the store, as floats."""
    blob = np.frombuffer(await store.view_blob(UPDATES, root), np.uint8)
    return to_float32(decode(codec_named(codec), blob, 0, parameter_count, parameter_count))


async def put(store: BlobStore, blob: UInt8Array) -> BlobRoot:
    """An update into the store; it is synced when the daemon acknowledges it."""
    payload = blob.tobytes()
    manifest = manifest_of(payload, cut([len(payload)]))
    writer = await store.begin_blob(UPDATES, manifest)
    for index in writer.missing():
        at = manifest.offsets[index]
        await writer.write_chunk(index, payload[at : at + manifest.sizes[index]])
    await writer.commit()
    return manifest.root
