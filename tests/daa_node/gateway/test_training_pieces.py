"""What a gateway gives volunteers to train and to merge again, and what it does not."""

from itertools import islice
from typing import cast

import numpy as np
import pytest

from daa_dag.ids import BlobRoot, Digest, NodeId, digest_of
from daa_node.adapters.offload import ThreadOffload
from daa_node.checkpoints.chain import ChainStore
from daa_node.gateway.training_pieces import (
    COORDINATES,
    PLACES,
    Gradients,
    Losses,
    Segments,
    Workshop,
    sampled,
)
from daa_node.seams import Offload, SegmentOrder
from daa_node.spot_checks import pieces
from daa_node.training.batches import batch_plan
from daa_node.training.config import EvaluationConfig, InnerConfig
from daa_node.training.datasets.digits import Digits
from daa_node.training.datasets.examples import Examples
from daa_node.training.model_config import ModelConfig
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.codec import codec_named, encode
from daa_node.updates.compression.delta import delta_format_of
from daa_node.updates.outer_step import Contribution, OuterRates, OuterState, aggregate_and_step

D = 70_000  # two chunks, the second one short
WEIGHTS = [5, 4, 4]
START, END = BlobRoot(b"s" * 32), BlobRoot(b"e" * 32)
OWN = ModelConfig.model_validate(
    {
        "kind": "module",
        "path": "somebodys_model.model:build",
        "built": {"source_digest": "ab" * 32, "tensors": [{"name": "w", "shape": [8]}]},
    }
)


def no_examples() -> Examples:
    raise AssertionError("nobody asked for a piece")


@pytest.mark.parametrize("codec", ["int8", "top_k"])
def test_coordinates_of_a_merge_hold_in_every_part_of_the_vector(codec: str) -> None:
    rng, coded = np.random.default_rng(4), delta_format_of(codec)
    updates = [
        encode(codec_named(codec), (rng.laplace(size=D) * 1e-3).astype(np.float32)) for _ in WEIGHTS
    ]
    state = OuterState(np.zeros(D, np.int32), np.zeros(D, np.int32))
    members = [Contribution(*each) for each in zip(updates, [codec] * 3, WEIGHTS, strict=True)]
    rates = OuterRates((7, 10), (6, 10))
    delta = aggregate_and_step(state, members, rule_named("mean"), 0, rates, state, coded)
    lots = [int(lot) for lot in rng.integers(0, 2**62, PLACES - 1)] + [D - 1]
    rows, claimed, shifts = sampled([*updates, delta], [codec] * 3, coded, D, lots)
    assert len(shifts) == len(claimed) > COORDINATES * 0.9  # the last block is a short one
    assert claimed.any()
    blobs = [row.tobytes() for row in rows]

    def verdict() -> list[int | bytes]:
        words = ["mean", 0, WEIGHTS, shifts]
        return pieces.result_of("slice", words, [*blobs, claimed.tobytes()], digest_of)

    assert verdict() == [1] * len(claimed)
    claimed[3] += 1
    assert verdict().index(0) == 3


START, END = BlobRoot(b"s" * 32), BlobRoot(b"e" * 32)


class Boundaries:
    """A work store that has what a segment begins and ends with, of one size."""

    def __init__(self, size_bytes: int) -> None:
        self._blobs = {root: root[:1] * size_bytes for root in (START, END)}

    async def blob_manifest(self, _kind: str, root: BlobRoot) -> bool | None:
        return root in self._blobs or None

    async def view_blob(self, _kind: str, root: BlobRoot) -> memoryview:
        return memoryview(self._blobs[root])


class Chain:
    def __init__(self, work: Boundaries) -> None:
        self.work = work


async def test_a_segments_piece_has_the_batches_of_its_own_steps() -> None:
    """Those that its author's plan has at them, as who replays it sees them."""
    model, inner = ModelConfig(kind="mlp", depth=1, width=8), InnerConfig(batch_size=3)
    examples = Digits(10, 1)
    work = Boundaries(3 * 4 * model.parameter_count() + 8)
    shop = Workshop(
        cast(ChainStore, Chain(work)),
        model,
        delta_format_of("int8"),
        inner,
        EvaluationConfig(),
        ThreadOffload(),
        lambda: examples,
    )
    seed, author = Digest(b"d" * 32), NodeId(b"a" * 32)
    segments = Segments(shop, is_drawn=True, tolerance=(1, 2))
    await segments.keep(SegmentOrder(seed, 7, author, 40, 5, 4, START, END, None))
    piece = await segments.make(lambda _what: 0)
    assert piece is not None
    plan = islice(batch_plan(seed, 7, author, 3, examples.train_count), 5, 9)
    batch = examples.train(np.concatenate(list(plan)))
    assert piece.blobs[2] == batch.inputs.astype("<f4").tobytes()
    assert piece.blobs[3] == batch.targets.astype("<i4").tobytes()
    assert piece.parameters[2:] == [45, 4, 3]


@pytest.mark.parametrize(("kind", "can_train"), [("mlp", True), ("byte_gpt", True), ("cnn", False)])
def test_a_tab_gets_no_piece_whose_work_its_parameters_do_not_tell(
    kind: str, can_train: bool
) -> None:
    model = ModelConfig.model_validate({"kind": kind, "depth": 1, "width": 8, "heads": 2})
    shop = Workshop(
        cast(ChainStore, None),
        model,
        delta_format_of("int8"),
        InnerConfig(),
        EvaluationConfig(),
        ThreadOffload(),
        lambda: Digits(10, 1),
    )
    assert shop.can_train == can_train


@pytest.mark.parametrize(("model", "has_some"), [(ModelConfig(), True), (OWN, False)])
def test_volunteers_compute_models_that_have_kernels_and_no_others(
    model: ModelConfig, has_some: bool
) -> None:
    shop = Workshop(
        cast(ChainStore, None),
        model,
        delta_format_of("int8"),
        InnerConfig(),
        EvaluationConfig(),
        cast(Offload, None),
        no_examples,
    )
    segments = Segments(shop, is_drawn=True, tolerance=(1, 200))
    found = [Losses(shop).has_some, Gradients(shop).has_some, segments.has_some]
    assert found == [has_some] * 3
