"""Copies of updates that were really trained are told from updates that are alike by nature."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pytest

from daa_dag.ids import Digest, digest_of
from daa_node.spot_checks.copies import MILLIONTHS, Update, compare
from daa_node.tensors import Float32Array, UInt8Array
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig
from daa_node.updates.compression.codec import codec_named, decode, encode
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.grid import to_float32
from tests.daa_node.spot_checks.honest_rounds import NODES, honest_rounds

SEEDS = [Digest(digest_of(b"seed %d" % number)) for number in range(8)]
LIARS_MAX = 1


def gpt(codec: str, batch_size: int) -> TrainingJob:
    return TrainingJob(
        model=ModelConfig(width=32, depth=1, context=16),
        inner=InnerConfig(lr=0.006, warmup_steps=5, total_steps=100, batch_size=batch_size),
        updates=updates_in(codec),
    )


def mlp(codec: str, batch_size: int) -> TrainingJob:
    return TrainingJob(
        model=ModelConfig(kind="mlp", width=32, depth=1),
        data=DataConfig(kind="digits"),
        inner=InnerConfig(lr=0.01, warmup_steps=5, total_steps=100, batch_size=batch_size),
        updates=updates_in(codec),
    )


def updates_in(codec: str) -> UpdatesConfig:
    return UpdatesConfig(codec=codec, rule="mean" if codec == "top_k" else "trimmed_mean")


# Job, steps and rounds: first rounds, where all go one way, and such as are hardest for the rule.
TRAINED = {
    "gpt int8": (gpt("int8", 4), 8, 3),
    "gpt int4": (gpt("int4", 4), 8, 1),
    "gpt top_k": (gpt("top_k", 4), 8, 1),
    "gpt, one step": (gpt("int8", 4), 1, 4),
    "gpt, large batches": (gpt("int8", 32), 10, 1),
    "mlp int8": (mlp("int8", 8), 10, 3),
    "mlp top_k": (mlp("top_k", 8), 10, 2),
    "mlp, more than half of all examples": (mlp("int8", 1024), 10, 2),
}


def noisy(share: float, sent_D: Float32Array, chance: np.random.Generator) -> Float32Array:
    """Noise of so much of the update's length."""
    length = float(np.sqrt(np.mean(np.square(sent_D))))
    return sent_D + chance.normal(0, share * length, sent_D.size).astype(np.float32)


def scaled(factor: float, sent_D: Float32Array, chance: np.random.Generator) -> Float32Array:
    return sent_D * np.float32(factor)


DISGUISES: dict[str, Callable[[Float32Array, np.random.Generator], Float32Array]] = {
    "none": partial(scaled, 1.0),
    "a third": partial(scaled, 1 / 3),
    "its opposite": partial(scaled, -1.0),
    "noise": partial(noisy, 0.1),
    "noise in half of it": lambda sent_D, chance: np.where(
        np.arange(sent_D.size) % 2, noisy(0.1, sent_D, chance), sent_D
    ).astype(np.float32),
}


def trained(name: str) -> tuple[TrainingJob, list[list[UInt8Array]]]:
    job, steps, rounds = TRAINED[name]
    return job, honest_rounds(job.model_dump_json(), steps, rounds)


@pytest.mark.parametrize("name", TRAINED)
def test_no_two_honest_updates_are_copies(name: str) -> None:
    """Nor would they be if they were half as far apart, which no chance of a sample makes them."""
    job, rounds = trained(name)
    nearest = MILLIONTHS
    for blobs in rounds:
        for seed in SEEDS:
            updates = [Update(blob, job.updates.codec) for blob in blobs]
            found = compare(updates, job.model.parameter_count(), seed, LIARS_MAX)
            for one, other in combinations(range(NODES), 2):
                apart = [list(row) for row in found.apart]
                nearest = min(nearest, apart[one][other])
                apart[one][other] = apart[other][one] = apart[one][other] // 2
                assert not any(replace(found, apart=apart).copies)
    print(f"{name}: {nearest / MILLIONTHS:.3f} apart at least")


@pytest.mark.parametrize(
    ("name", "disguise"),
    # Where honest ones are as near to each other as that, noise hides a copy among them.
    [(n, d) for n in TRAINED for d in DISGUISES if "noise" not in d or "more than half" not in n],
)
def test_a_copy_is_found_whatever_is_done_to_it(name: str, disguise: str) -> None:
    job, rounds = trained(name)
    codec, size = codec_named(job.updates.codec), job.model.parameter_count()
    chance = np.random.default_rng(1)
    for blobs in rounds:
        sent_D = to_float32(decode(codec, blobs[2], 0, size, size))
        blob = encode(codec, DISGUISES[disguise](sent_D, chance))
        updates = [Update(each, codec.name) for each in (*blobs, blob)]
        found = compare(updates, size, SEEDS[0], LIARS_MAX)
        assert found.copies[2] == {NODES}
        assert found.copies[NODES] == {2}
        assert not any(found.copies[other] for other in (0, 1, 3, 4))


def test_a_copy_in_fewer_bits_is_found() -> None:
    job, rounds = trained("gpt int8")
    codec, size = codec_named("int8"), job.model.parameter_count()
    for blobs in rounds:
        blob = encode(codec_named("int4"), to_float32(decode(codec, blobs[0], 0, size, size)))
        updates = [*(Update(each, "int8") for each in blobs), Update(blob, "int4")]
        assert compare(updates, size, SEEDS[0], LIARS_MAX).copies[0] == {NODES}


def test_the_mean_of_all_is_no_reason_to_void_any_of_them() -> None:
    """A leader and one more liar could void all honest ones at once, where these are much alike."""
    job, rounds = trained("mlp, more than half of all examples")
    codec, size = codec_named("int8"), job.model.parameter_count()
    sent = [to_float32(decode(codec, blob, 0, size, size)) for blob in rounds[0]]
    blob = encode(codec, np.mean(sent, axis=0, dtype=np.float32))
    updates = [Update(each, "int8") for each in (*rounds[0], blob)]
    found = compare(updates, size, SEEDS[0], LIARS_MAX)
    honest = frozenset(range(NODES))
    assert len(found.origins(honest)) == 0
