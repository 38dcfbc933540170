"""Pieces of training and merging, of the newest vertex and of segments that we are to check.

Blobs of the work store may be written over once they are deleted. So each is copied, and counts
only if the store still has it after that. What is too much for a browser's tab is not made.

Legend: D parameters, N contributions, C sampled coordinates.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daa_consensus.bft.messages import SetPayload
from daa_dag.ids import BlobRoot, Digest
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import STATES, UPDATES
from daa_node.errors import NodeError, UserError
from daa_node.gateway.piece import Piece
from daa_node.seams import Offload, SegmentOrder
from daa_node.spot_checks import pieces
from daa_node.spot_checks.canonical import canonical_inner, canonical_model
from daa_node.tensors import GRID_DTYPE
from daa_node.training.batches import batch_indices
from daa_node.training.boundaries import CLAIMED
from daa_node.training.config import EvaluationConfig, InnerConfig
from daa_node.training.datasets.examples import Batch, Examples
from daa_node.training.evaluation import heldout_indices
from daa_node.training.model_config import ModelConfig
from daa_node.updates.compression.blob import Blob
from daa_node.updates.compression.codec import Codec, codec_named
from daa_node.updates.compression.delta import DeltaFormat
from daa_node.updates.grid import BLOCK
from daa_node.wire.limits import TASK_BYTES_MAX
from daa_node.wire.volunteer_messages import TaskKind

Draw = Callable[[str], int]
COORDINATES = 200  # of a slice, from PLACES of the vector
PLACES = 4
SPOILT_EVERY = 6
PARAMETERS_MAX = 1 << 20  # 4 MiB of weights; more is no work for a tab
PREDICTIONS_MAX = 1024  # tokens or pictures of a loss
# Predictions times parameters: a tab computes some 10^8 a second, numpy in a daemon as many.
SEGMENT_WORK_MAX = 10**10
SEGMENTS_KEPT = 2
BYTES_A_PARAMETER = 24  # two states of three vectors
TASK_ROOM = TASK_BYTES_MAX - (1 << 20)  # for batches and words


@dataclass(slots=True)
class Workshop:
    """What the sources of this module share. `open_examples` blocks, and may raise UserError."""

    chain: ChainStore
    model: ModelConfig
    delta_format: DeltaFormat
    inner: InnerConfig
    evaluation: EvaluationConfig
    offload: Offload
    open_examples: Callable[[], Examples] | None
    _examples: Examples | None = None

    @property
    def parameter_count(self) -> int:
        """D."""
        return self.model.parameter_count()

    @property
    def can_train(self) -> bool:
        """Whether pieces with data can be made here, as far as we know.

        Not of a CNN: it uses each parameter at many places, so that what a tab computes in its
        time cannot be told from their count.
        """
        is_small = self.parameter_count <= PARAMETERS_MAX and self.model.kind != "cnn"
        return self.model.is_canonical and self.open_examples is not None and is_small

    async def examples(self) -> Examples | None:
        """Opened once; None where this node cannot."""
        if self._examples is None and self.open_examples is not None:
            try:
                self._examples = await self.offload.run(self.open_examples)
            except UserError:
                self.open_examples = None  # its worker says what is wrong with the data
        return self._examples

    async def copied(self, kind: str, root: BlobRoot) -> bytes | None:
        """All of a blob of the work store; None if it has gone meanwhile. Raises StorageFailed."""
        work = self.chain.work
        if await work.blob_manifest(kind, root) is None:
            return None
        view = await work.view_blob(kind, root)
        blob = await self.offload.run(lambda: bytes(view))
        return blob if await work.blob_manifest(kind, root) is not None else None


class Slices:
    """Coordinates of the newest aggregate against the contributions that it was made of."""

    kind = TaskKind.SLICE

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop

    @property
    def has_some(self) -> bool:
        return len(self._shop.chain.heights) > 1

    async def make(self, draw: Draw) -> Piece | None:
        """Raises NodeError."""
        shop, vertex = self._shop, await self._shop.chain.newest()
        block = await shop.chain.block(vertex.decided_block) if vertex.height else None
        if block is None or not isinstance(block.payload, SetPayload):
            return None
        payload = block.payload
        roots = [*(offer.blob_root for offer in payload.offers), vertex.delta_root]
        if not await self._hold(roots):
            return None
        views = [await shop.chain.work.view_blob(UPDATES, root) for root in roots]
        starts = [draw("coordinate") for _ in range(PLACES)]
        lots = [draw("spoil") for _ in range(COORDINATES)]
        codecs = [offer.codec for offer in payload.offers]
        drawn = await shop.offload.run(
            lambda: sampled(views, codecs, shop.delta_format, shop.parameter_count, starts)
        )
        if not await self._hold(roots):
            return None
        values_NC, delta_C, shifts_C = drawn
        found = range(len(delta_C))  # fewer, where a place is at the end of the vector
        planted = frozenset(c for c in found if lots[c] % SPOILT_EVERY == 0)
        for entry in planted:
            delta_C[entry] ^= 1 << lots[entry] // SPOILT_EVERY % 31
        weights = [int(weight) for weight in payload.weights]
        return Piece(
            self.kind,
            {"height": vertex.height},
            [payload.rule, payload.f_agg, weights, shifts_C],
            [*(row.tobytes() for row in values_NC), delta_C.tobytes()],
            planted,
        )

    async def _hold(self, roots: Sequence[BlobRoot]) -> bool:
        work = self._shop.chain.work
        return all([await work.blob_manifest(UPDATES, root) is not None for root in roots])


class Losses:
    """Held-out loss of the newest vertex, on a few of the examples that everybody evaluates on."""

    kind = TaskKind.LOSS

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop

    @property
    def has_some(self) -> bool:
        return self._shop.can_train

    async def make(self, draw: Draw) -> Piece | None:
        """Raises NodeError."""
        shop, examples = self._shop, await self._shop.examples()
        vertex = await shop.chain.newest()
        weights = await shop.copied(STATES, vertex.model_root)
        if examples is None or weights is None:
            return None
        indices = heldout_indices(shop.evaluation, examples.heldout_count)
        rows = min(len(indices), max(1, PREDICTIONS_MAX // examples.tokens_each))
        first = draw("example") % (len(indices) - rows + 1)
        batch = examples.heldout(indices[first : first + rows])
        return Piece(
            self.kind,
            {"height": vertex.height},
            [_model_words(shop.model), rows],
            [weights, *_batch_bytes(shop.model, batch)],
        )


class Gradients:
    """Gradient of the first batch that a contributor takes on the newest vertex."""

    kind = TaskKind.GRADIENT

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop

    @property
    def has_some(self) -> bool:
        return self._shop.can_train

    async def make(self, draw: Draw) -> Piece | None:
        """Raises NodeError."""
        shop, examples = self._shop, await self._shop.examples()
        vertex = await shop.chain.newest()
        weights = await shop.copied(STATES, vertex.model_root)
        if examples is None or weights is None or not vertex.contributors:
            return None
        author = vertex.contributors[draw("author") % len(vertex.contributors)].author
        rows, next_round = shop.inner.batch_size, vertex.training_round + 1
        indices = batch_indices(
            Digest(vertex.vertex_id), next_round, author, 0, rows, examples.train_count
        )
        weights_D = await shop.offload.run(
            lambda: pieces.to_float32(np.frombuffer(weights, GRID_DTYPE))
        )
        return Piece(
            self.kind,
            {"height": vertex.height, "author": author},
            [_model_words(shop.model), rows],
            [
                weights_D.astype(pieces.FP32).tobytes(),
                *_batch_bytes(shop.model, examples.train(indices)),
            ],
        )


class Segments:
    """Segments that the lot gave this node, while it has their boundaries."""

    kind = TaskKind.SEGMENT

    def __init__(self, shop: Workshop, is_drawn: bool, tolerance: tuple[int, int]) -> None:
        """`is_drawn`: whether the genesis has anybody checked."""
        self._shop = shop
        self._is_drawn = is_drawn
        self._tolerance = tolerance
        self._kept: deque[Piece] = deque(maxlen=SEGMENTS_KEPT)

    @property
    def has_some(self) -> bool:
        room = self._shop.parameter_count * BYTES_A_PARAMETER <= TASK_ROOM
        return self._is_drawn and room and self._shop.can_train

    async def make(self, draw: Draw) -> Piece | None:
        return self._kept.pop() if self._kept else None

    async def keep(self, order: SegmentOrder) -> None:
        """Take a copy of a segment whose boundaries are here, for volunteers who come for it."""
        if not self.has_some:
            return
        try:
            piece = await self._piece_of(order)
        except NodeError:
            return  # whoever checks it himself learns of it as well
        if piece is not None:
            self._kept.append(piece)

    async def _piece_of(self, order: SegmentOrder) -> Piece | None:
        shop, examples = self._shop, await self._shop.examples()
        start = await shop.copied(CLAIMED, order.start_root)
        end = await shop.copied(CLAIMED, order.end_root)
        if examples is None or start is None or end is None:
            return None
        rows = shop.inner.batch_size
        predictions = order.steps * rows * examples.tokens_each
        if predictions * shop.parameter_count > SEGMENT_WORK_MAX:
            return None
        count, seed = examples.train_count, order.seed
        indices = [
            batch_indices(seed, order.round, order.author, order.step + step, rows, count)
            for step in range(order.steps)
        ]
        batch = examples.train(np.concatenate(indices))
        schedule_step = order.first_step + order.step
        inner = pieces.inner_words(canonical_inner(shop.inner))
        blobs = [
            _state_of(start, shop.parameter_count),
            _state_of(end, shop.parameter_count),
            *_batch_bytes(shop.model, batch),
        ]
        if sum(map(len, blobs)) > TASK_ROOM:
            return None
        return Piece(
            self.kind,
            {"round": order.round, "author": order.author, "step": order.step},
            [_model_words(shop.model), inner, schedule_step, order.steps, rows],
            blobs,
            tolerance=self._tolerance,
        )


def sampled(
    views: Sequence[Blob],
    codecs: Sequence[str],
    delta_format: DeltaFormat,
    parameter_count: int,
    lots: Sequence[int],
) -> tuple[list[Any], Any, list[int]]:
    """Some coordinates of each update and of the delta, int32, and the delta's shift at each.

    The last view is the delta. Each lot draws a place of the vector, with PLACES of them for all
    COORDINATES; a short vector has fewer.
    """
    formats: list[Codec | DeltaFormat] = [codec_named(codec) for codec in codecs]
    formats.append(delta_format)
    span = max(each.block_parameters for each in formats)
    each = COORDINATES // PLACES
    rows: list[list[Any]] = [[] for _ in views]
    shifts: list[int] = []
    for lot in lots:
        start = lot % parameter_count // span * span
        stop = min(start + span, parameter_count)
        at = np.arange(start, stop)
        at = at[lot // parameter_count % max(1, len(at) - each + 1) :][:each] - start
        blocks_stop = -(-stop // BLOCK) * BLOCK
        room_C = np.empty(blocks_stop - start, np.int32)
        for row, view, coded in zip(rows, views, formats, strict=True):
            coded.decode_blocks(view, start, parameter_count, room_C)
            row.append(room_C[at])
        found = delta_format.shifts(views[-1], start, blocks_stop, parameter_count)
        shifts += [int(shift) for shift in found[at // BLOCK]]
    *values, claimed = (np.concatenate(row).astype(pieces.INT32) for row in rows)
    return values, claimed, shifts


def _model_words(model: ModelConfig) -> list[Any]:
    return pieces.model_words(canonical_model(model))


def _state_of(boundary: bytes, parameter_count: int) -> bytes:
    """Weights and moments, and the steps in these: without what error feedback owes."""
    vectors = 3 * parameter_count * pieces.FP32.itemsize
    return boundary[:vectors] + boundary[-pieces.INT64.itemsize :]


def _batch_bytes(model: ModelConfig, batch: Batch) -> list[bytes]:
    dtype = pieces.INT32 if model.kind == "byte_gpt" else pieces.FP32
    return [
        np.ascontiguousarray(batch.inputs, dtype).tobytes(),
        np.ascontiguousarray(batch.targets, pieces.INT32).tobytes(),
    ]
