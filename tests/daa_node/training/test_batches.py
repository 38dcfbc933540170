"""The batch plan: recomputable by anybody, different for everybody."""

from itertools import islice

import numpy as np
from blake3 import blake3

from daa_dag import canonical
from daa_dag.ids import Digest, NodeId
from daa_node.training.batches import batch_indices, batch_plan

SEED, AUTHOR = Digest(b"s" * 32), NodeId(b"a" * 32)


def test_a_step_is_recomputed_from_its_five_names_alone() -> None:
    key = canonical.encode(["daa/v1/batch", SEED, 7, AUTHOR, 3])
    stream = blake3(key).digest(length=4 * 8)
    expected = [int.from_bytes(stream[i : i + 8], "little") % 1000 for i in range(0, 32, 8)]
    assert batch_indices(SEED, 7, AUTHOR, 3, 4, 1000).tolist() == expected


def test_the_plan_is_the_steps_in_order() -> None:
    plan = list(islice(batch_plan(SEED, 7, AUTHOR, 4, 1000), 5))
    for step, indices_B in enumerate(plan):
        assert (indices_B == batch_indices(SEED, 7, AUTHOR, step, 4, 1000)).all()


def test_every_name_changes_the_batch() -> None:
    batches = [
        batch_indices(SEED, 7, AUTHOR, 3, 8, 10**6),
        batch_indices(Digest(b"t" * 32), 7, AUTHOR, 3, 8, 10**6),
        batch_indices(SEED, 8, AUTHOR, 3, 8, 10**6),
        batch_indices(SEED, 7, NodeId(b"b" * 32), 3, 8, 10**6),
        batch_indices(SEED, 7, AUTHOR, 4, 8, 10**6),
    ]
    assert len({tuple(batch.tolist()) for batch in batches}) == 5


def test_draws_are_even_over_all_examples() -> None:
    drawn = np.concatenate([batch_indices(SEED, 1, AUTHOR, step, 100, 10) for step in range(200)])
    counts = np.bincount(drawn, minlength=10)
    assert counts.size == 10
    assert abs(counts - 2000).max() < 5 * np.sqrt(2000 * 0.9)  # five standard deviations
