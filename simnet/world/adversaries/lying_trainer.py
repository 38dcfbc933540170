"""A liar's trainer: what it seals is poisoned, or was never trained.

    sign_flip       the opposite of its own update, ten times as long
    little          honest mean minus z deviations, z as large as still looks honest (Baruch et al.
                    2019, "A Little Is Enough", section 3.3)
    inner_product   against the honest mean, and short (Xie et al. 2020, "Fall of Empires")
    noise           gaussian, as long as ten of its own
    label_flip      an honest update, trained on the wrong labels
    zeros, huge     nothing; as much as the grid holds
    nan             not a number: no integer form has one, so its blob breaks the form instead
    free rider      noise of the size of an update that it has seen: the look of work, at no cost

Met by the form of a blob (nothing but mantissas and exponents in range decodes), by a cap on its
norm, and by robust rules: with at most f_agg poisoners the trimmed mean stays within what honest
nodes say of each parameter. `little` and `label_flip` stay inside of that by design; what they cost
is measured, not prevented. A free rider is paid by planned tokens and never by claims; in the end
only recomputing some of its steps, whose batches depend on the author, finds it out.

Liars know what any member of a set knows: every update of the newest round that they executed. The
blob goes into the daemon's own store, and the Offer is the daemon's: to everybody else it is an
update like any other. N honest updates, D parameters.
"""

import random
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from daa_dag.chunking import cut, manifest_of
from daa_dag.ids import DIGEST_BYTES, BlobRoot, Digest, NodeId
from daa_node.seams import AggregateOrder, SealedUpdate, SteppedState, TrainOrder
from daa_node.tensors import Float32Array, Int64Array, UInt8Array
from daa_node.training.boundaries import boundary_steps
from daa_node.training.datasets.examples import Batch, Examples
from daa_node.updates.compression.codec import Codec, codec_named, decode, encode
from daa_node.updates.grid import block_count_of, to_float32
from simnet.world.scenario import Poison

if TYPE_CHECKING:  # a worker that sees wrong labels needs no daemon
    from daa_node.node_parts import LivingTrainer, NodeParts

UPDATES = "updates"
FLIP_SCALE = 10.0
NOISE_SCALE = 10.0
INNER_PRODUCT_SCALE = 0.5  # short enough not to stand out, and still against everybody
HUGE = 127.0  # the largest mantissa at the largest exponent
BAD_EXPONENT = 0xFF
BAD_MANTISSA = 0x80  # -128


@dataclass(frozen=True, slots=True)
class Sight:
    """What a poisoner knows: its own update, honest ones, and how many are in league."""

    own_D: Float32Array
    honest_ND: Float32Array
    poisoners: int
    chance: np.random.Generator


def poisoned(kind: Poison, sight: Sight) -> Float32Array:
    """What a poisoner would have the others merge."""
    own_D = sight.own_D
    match kind:
        case "sign_flip":
            return np.float32(-FLIP_SCALE) * own_D
        case "little":  # all say the same, so that it looks like a cluster at the edge
            z = np.float32(little_z(len(sight.honest_ND) + sight.poisoners, sight.poisoners))
            deviation_D: Float32Array = sight.honest_ND.std(axis=0, dtype=np.float32)
            return _mean(sight) - z * deviation_D
        case "inner_product":
            return np.float32(-INNER_PRODUCT_SCALE) * _mean(sight)
        case "noise":
            return whisper(own_D, sight.chance, NOISE_SCALE)
        case "label_flip":
            return own_D  # the harm is done before
        case "zeros":
            return np.zeros_like(own_D)
        case "huge":
            return np.copysign(np.float32(HUGE), -own_D)
        case "nan":
            return np.full_like(own_D, np.nan)


def _mean(sight: Sight) -> Float32Array:
    mean_D: Float32Array = sight.honest_ND.mean(axis=0, dtype=np.float32)
    return mean_D


def little_z(nodes: int, poisoners: int) -> float:
    """The largest z at which a majority still holds values beyond the poisoners' own."""
    supporters = nodes // 2 + 1 - poisoners
    share = (nodes - poisoners - supporters) / (nodes - poisoners)
    return NormalDist().inv_cdf(min(max(share, 1e-6), 1 - 1e-6))


def whisper(like_D: Float32Array, chance: np.random.Generator, scale: float = 1.0) -> Float32Array:
    """Noise with so many times the root mean square of a vector."""
    deviation = scale * float(np.sqrt(np.mean(np.square(like_D, dtype=np.float64))))
    return chance.normal(0.0, deviation, like_D.size).astype(np.float32)


def poisoned_blob(kind: Poison, sight: Sight, codec: Codec) -> UInt8Array:
    """What a poisoner offers instead of its own blob."""
    if kind == "nan":  # which no codec seals
        return broken_blob(codec, sight.own_D.size)
    return encode(codec, poisoned(kind, sight))


def broken_blob(codec: Codec, parameter_count: int) -> UInt8Array:
    """Of the right length, every mantissa and every exponent out of range."""
    blob = np.full(codec.encoded_size_bytes(parameter_count), BAD_MANTISSA, np.uint8)
    blob[-block_count_of(parameter_count) :] = BAD_EXPONENT
    return blob


def flipped_labels(labels_B: Int64Array, classes: int) -> Int64Array:
    """Each class for its opposite: 0 for the last."""
    return classes - 1 - labels_B


class Mislabelled:
    """Examples that are wrong in training, and right where they are held out."""

    def __init__(self, inner: Examples, classes: int) -> None:
        self._inner = inner
        self._classes = classes
        self.train_count, self.heldout_count = inner.train_count, inner.heldout_count
        self.tokens_each, self.heldout = inner.tokens_each, inner.heldout

    def train(self, indices_B: Int64Array) -> Batch:
        batch = self._inner.train(indices_B)
        return replace(batch, targets=flipped_labels(batch.targets, self._classes))


class LyingTrainer:
    """The daemon's own, but for what it seals; executes honestly, or it would earn nothing."""

    def __init__(
        self,
        parts: "NodeParts",
        poison: Poison | None,
        league: frozenset[NodeId],
        chance: random.Random,
    ) -> None:
        """Without a `poison` a free rider's. `league`: whose updates it does not learn from."""
        self._inner: LivingTrainer = parts.trainer
        self._genesis, self._store = parts.genesis, parts.work_store
        self._poison = poison
        self._league = league
        self._chance = np.random.default_rng(chance.getrandbits(64))
        self._parameter_count = parts.genesis.job.model.parameter_count()
        self._seen_ND: list[Float32Array] = []  # of the newest set that we executed
        self.initial_state, self.evaluate = self._inner.initial_state, self._inner.evaluate
        self.apply_delta = self._inner.apply_delta
        self.keep_boundaries = self._inner.keep_boundaries
        self.check_segment = self._inner.check_segment
        self.open_segment, self.canary = self._inner.open_segment, self._inner.canary

    @property
    def pid(self) -> int | None:
        return self._inner.pid

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        if self._poison is None:
            return await self._free_ride(order)
        sealed = await self._inner.train_and_seal(order)
        own_D = await self._decoded(sealed.blob_root, sealed.codec)
        known_ND = np.stack(self._seen_ND or [own_D])
        sight = Sight(own_D, known_ND, len(self._league), self._chance)
        blob = poisoned_blob(self._poison, sight, codec_named(order.codec))
        return replace(sealed, blob_root=await self._put(blob))

    async def _free_ride(self, order: TrainOrder) -> SealedUpdate:
        """Says that it took every step, and took none."""
        like_D = self._seen_ND[-1] if self._seen_ND else np.zeros(self._parameter_count, np.float32)
        blob = encode(codec_named(order.codec), whisper(like_D, self._chance))
        claimed = len(boundary_steps(order.steps_max, order.segment_steps))
        return SealedUpdate(
            blob_root=await self._put(blob),
            size_bytes=blob.size,
            codec=order.codec,
            steps=order.steps_max,
            tokens=order.steps_max * self._genesis.job.tokens_per_step,
            us_per_step=1,
            loss_nats=0.0,
            snapshot_roots=tuple(Digest(self._chance.bytes(DIGEST_BYTES)) for _ in range(claimed)),
            seal_s=0.0,
        )

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        others = [update for update in order.updates if update.author not in self._league]
        seen_ND = [await self._decoded(update.blob_root, update.codec) for update in others]
        self._seen_ND = seen_ND or self._seen_ND
        return await self._inner.aggregate_and_step(order)

    async def _decoded(self, root: BlobRoot, codec: str) -> Float32Array:
        """An update in the daemon's own store, as floats."""
        count = self._parameter_count
        blob = np.frombuffer(await self._store.view_blob(UPDATES, root), np.uint8)
        return to_float32(decode(codec_named(codec), blob, 0, count, count))

    async def _put(self, blob: UInt8Array) -> BlobRoot:
        """It is synced when the daemon acknowledges it."""
        payload = blob.tobytes()
        manifest = manifest_of(payload, cut([len(payload)], self._genesis.job.updates.chunk_bytes))
        writer = await self._store.begin_blob(UPDATES, manifest)
        for index in writer.missing():
            at = manifest.offsets[index]
            await writer.write_chunk(index, payload[at : at + manifest.sizes[index]])
        await writer.commit()
        return manifest.root
