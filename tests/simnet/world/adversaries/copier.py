"""A copier's trainer: it waits for an update of the round, and offers it with noise as its own."""

import random

import numpy as np
import trio

from daa_dag.chunking import cut, manifest_of
from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.node_parts import NodeParts
from daa_node.seams import SealedUpdate, TrainOrder
from daa_node.training.boundaries import boundary_steps
from daa_node.updates.compression.codec import codec_named, decode, encode
from daa_node.updates.grid import to_float32
from simnet.world.adversaries.lying_trainer import whisper

UPDATES = "updates"
LOOK_S = 0.05
NOISE = 0.08  # of the update's length


class Copier:
    """Takes the place of a free rider's trainer."""

    def __init__(
        self, parts: NodeParts, poison: None, league: frozenset[NodeId], chance: random.Random
    ) -> None:
        self._inner = parts.trainer
        self._genesis, self._store = parts.genesis, parts.work_store
        self._chance = np.random.default_rng(chance.getrandbits(64))
        self.initial_state, self.evaluate = self._inner.initial_state, self._inner.evaluate
        self.apply_delta = self._inner.apply_delta
        self.keep_boundaries = self._inner.keep_boundaries
        self.check_segment, self.canary = self._inner.check_segment, self._inner.canary
        self.aggregate_and_step = self._inner.aggregate_and_step

    @property
    def pid(self) -> int | None:
        return self._inner.pid

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        there = set(await self._store.blob_roots(UPDATES))
        while not (new := set(await self._store.blob_roots(UPDATES)) - there):
            await trio.sleep(LOOK_S)
        blob = await self._disguised(min(new), order.codec)
        claimed = len(boundary_steps(order.steps_max, order.segment_steps))
        return SealedUpdate(
            blob_root=blob.root,
            size_bytes=blob.size_bytes,
            codec=order.codec,
            steps=order.steps_max,
            tokens=order.steps_max * self._genesis.job.tokens_per_step,
            us_per_step=1,
            loss_nats=0.0,
            snapshot_roots=tuple(Digest(self._chance.bytes(32)) for _ in range(claimed)),
            seal_s=0.0,
        )

    async def _disguised(self, root: BlobRoot, name: str):  # type: ignore[no-untyped-def]
        codec, size = codec_named(name), self._genesis.job.model.parameter_count()
        view = await self._store.view_blob(UPDATES, root)
        sent_D = to_float32(decode(codec, view, 0, size, size))
        payload = encode(codec, sent_D + whisper(sent_D, self._chance, NOISE)).tobytes()
        manifest = manifest_of(payload, cut([len(payload)]))
        writer = await self._store.begin_blob(UPDATES, manifest)
        for index in writer.missing():
            at = manifest.offsets[index]
            await writer.write_chunk(index, payload[at : at + manifest.sizes[index]])
        await writer.commit()
        return manifest
