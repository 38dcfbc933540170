"""How near honest updates come to each other, and how much noise hides a copy among them.

    python benchmarks/honest_copies.py [--rounds 100] [--nodes 5] [--json]

Authors train for real on one data set, from one base in each round, merged by the daemon's own
outer step: every batch is drawn from the same examples, which is the hard case for telling copies.
Printed are, of all honest pairs of a job, the least distance (`1 - cos^2`, see
`spot_checks/copies.py`), the least quotient of a distance and the limit below which they would be
copies, and how many were taken for copies; then the share of copies that is found, by the noise
that is added to them as a share of the update's length.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from daa_dag.ids import BlobRoot, Digest, NodeId, digest_of
from daa_node.seams import StateRef, TrainOrder
from daa_node.spot_checks.copies import MILLIONTHS, MUCH_TOO_NEAR, TIMES_NEARER, Update, compare
from daa_node.tensors import UInt8Array
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.core import open_core
from daa_node.training.data_config import DataConfig
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.codec import codec_named, decode, encode
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.grid import to_float32
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
)

NOWHERE = StateRef(BlobRoot(bytes(32)), BlobRoot(bytes(32)))
NOISES = (0.05, 0.10, 0.15, 0.20, 0.25, 0.30)


def gpt(codec: str, batch_size: int, total_steps: int) -> TrainingJob:
    return TrainingJob(
        model=ModelConfig(width=32, depth=1, context=16),
        inner=InnerConfig(lr=0.006, warmup_steps=5, total_steps=total_steps, batch_size=batch_size),
        updates=updates_in(codec),
    )


def mlp(codec: str, batch_size: int, total_steps: int) -> TrainingJob:
    return TrainingJob(
        model=ModelConfig(kind="mlp", width=32, depth=1),
        data=DataConfig(kind="digits"),
        inner=InnerConfig(lr=0.01, warmup_steps=5, total_steps=total_steps, batch_size=batch_size),
        updates=updates_in(codec),
    )


def updates_in(codec: str) -> UpdatesConfig:
    return UpdatesConfig(codec=codec, rule="mean" if codec == "top_k" else "trimmed_mean")


@dataclass
class Seen:
    """Of one job."""

    job: str
    pairs: int = 0
    found: int = 0  # honest ones that were taken for copies
    nearest: float = 1.0
    closest: float = float("inf")
    copies_found: dict[float, float] = field(default_factory=dict)  # share, by noise


def rounds_of(job: TrainingJob, steps: int, rounds: int, nodes: int) -> Iterator[list[UInt8Array]]:
    """The blobs of each round, one of each author."""
    updates = job.updates
    directory = Path(tempfile.gettempdir()) / "daa-benchmark-examples"
    cores = [
        open_core(job, torch.device("cpu"), directory, time.perf_counter) for _ in range(nodes)
    ]
    weights_D = genesis_weights(job.model, job.seed).copy()
    state = OuterState(weights_D, np.zeros_like(weights_D))
    for number in range(rounds):
        blobs = [
            core.train_and_seal(
                TrainOrder(
                    base=NOWHERE,
                    seed=Digest(digest_of(b"%d" % number)),
                    round=number,
                    author=NodeId(bytes([node]) * 32),
                    steps_max=steps,
                    stop_after_s=1e9,
                    codec=updates.codec,
                    first_step=number * steps,
                    merged_round=number - 1,
                ),
                weights_D,
            ).blob.copy()
            for node, core in enumerate(cores)
        ]
        yield blobs
        aggregate_and_step(
            state,
            [Contribution(blob, updates.codec, 1) for blob in blobs],
            rule_named(updates.rule),
            updates.f_agg_among(nodes),
            OuterRates(updates.outer_lr, updates.outer_momentum),
            state,
            updates.delta_format,
        )


def measured(name: str, job: TrainingJob, steps: int, rounds: int, nodes: int) -> Seen:
    codec, size = codec_named(job.updates.codec), job.model.parameter_count()
    liars_max = (nodes - 1) // 3
    chance, seen = np.random.default_rng(1), Seen(name)
    hits = dict.fromkeys(NOISES, 0)
    for number, blobs in enumerate(rounds_of(job, steps, rounds, nodes)):
        seed = Digest(digest_of(b"sample %d" % number))
        honest = [Update(blob, codec.name) for blob in blobs]
        likeness = compare(honest, size, seed, liars_max)
        for one, other in combinations(range(nodes), 2):
            apart = likeness.apart[one][other]
            limit = min(
                MUCH_TOO_NEAR,
                min(likeness.to_others(one, other), likeness.to_others(other, one)) // TIMES_NEARER,
            )
            seen.pairs += 1
            seen.nearest = min(seen.nearest, apart / MILLIONTHS)
            seen.closest = min(seen.closest, apart / max(1, limit))
            seen.found += other in likeness.copies[one]
        sent_D = to_float32(decode(codec, blobs[0], 0, size, size))
        length = float(np.sqrt(np.mean(np.square(sent_D))))
        for noise in NOISES:
            noisy_D = sent_D + chance.normal(0, noise * length, size).astype(np.float32)
            # It takes the place of an honest one: as many as there are contribute.
            with_copy = [*honest[:-1], Update(encode(codec, noisy_D), codec.name)]
            hits[noise] += 0 in compare(with_copy, size, seed, liars_max).copies[nodes - 1]
    seen.copies_found = {noise: count / rounds for noise, count in hits.items()}
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    jobs = {
        "gpt int8, batches of 4": (gpt, "int8", 4, 8),
        "gpt int8, of 32": (gpt, "int8", 32, 8),
        "gpt int4, of 4": (gpt, "int4", 4, 8),
        "gpt top_k, of 4": (gpt, "top_k", 4, 8),
        "gpt int8, one step of 4": (gpt, "int8", 4, 1),
        "mlp int8, of 8": (mlp, "int8", 8, 10),
        "mlp int8, of 1,024 of 1,347": (mlp, "int8", 1024, 10),
    }
    for name, (make, codec, batch_size, steps) in jobs.items():
        job = make(codec, batch_size, max(100, steps * chosen.rounds))
        seen = measured(name, job, steps, chosen.rounds, chosen.nodes)
        if chosen.json:
            print(json.dumps(asdict(seen)), flush=True)
            continue
        print(
            f"{name:28} {seen.pairs} pairs, {seen.found} taken for copies; "
            f"{seen.nearest:.3f} apart at least, {seen.closest:.1f} times the limit",
            flush=True,
        )
        shares = ", ".join(f"{n:.0%}: {share:.0%}" for n, share in seen.copies_found.items())
        print(f"{'':28} copies found with noise of {shares}", flush=True)


if __name__ == "__main__":
    main()
