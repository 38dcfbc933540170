"""What a codec costs in loss: four authors train for real, codec by codec and rule by rule.

    python benchmarks/codec_losses.py [--rounds 60] [--steps 15] [--authors 4] [--width 64] [--json]

The training core, the codecs and the outer step are the daemon's own, called in one process: a byte
GPT of 119k parameters on Shakespeare, outer rates as in the demo. Printed is the held-out loss in
nats a byte on the way, and the last one over that of int8 and a mean. Two cases are
none that a genesis accepts, and here to show why: a trimmed mean of sparse updates, and a sparse
codec without error feedback. In others authors train on while updates travel, so that a third of
each round's steps, or three quarters, begin before the updates of the round before are merged.
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.seams import StateRef, TrainOrder
from daa_node.training.config import InnerConfig, TrainingJob
from daa_node.training.core import Core, open_core
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.model_config import ModelConfig
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.compression.delta import delta_format_of
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
)

SEED = 7
SHOWN = 6  # losses on the way
NOWHERE = StateRef(BlobRoot(bytes(32)), BlobRoot(bytes(32)))


@dataclass(frozen=True)
class Case:
    codec: str
    rule: str
    f_agg: int
    error_feedback: bool = True
    late: float = 0.0  # of a round's steps, taken while the updates of the one before travel

    @property
    def words(self) -> str:
        feedback = "" if self.error_feedback else ", no error feedback"
        late = f", {self.late:.0%} late" if self.late else ""
        return f"{self.codec} {self.rule}{feedback}{late}"


CASES = (
    Case("int8", "mean", 0),
    Case("int8", "trimmed_mean", 1),
    Case("int4", "mean", 0),
    Case("top_k", "mean", 0),
    Case("top_k", "trimmed_mean", 1),
    Case("top_k", "mean", 0, error_feedback=False),
    Case("int8", "mean", 0, late=1 / 3),
    Case("int8", "mean", 0, late=3 / 4),
    Case("top_k", "mean", 0, late=1 / 3),
    Case("top_k", "mean", 0, late=3 / 4),
)


@dataclass(frozen=True)
class Trained:
    case: str
    update_bytes: int
    delta_bytes: int  # of the last round
    losses: list[float]  # after each round


@dataclass(frozen=True)
class Size:
    authors: int
    width: int
    rounds: int
    steps: int  # of an author in a round


def job_of(case: Case, size: Size) -> TrainingJob:
    return TrainingJob(
        model=ModelConfig(kind="byte_gpt", depth=2, width=size.width),
        inner=InnerConfig(lr=0.006, total_steps=size.rounds * size.steps),
        updates=UpdatesConfig(error_feedback=case.error_feedback, train_on=case.late > 0),
        seed=SEED,
    )


def train(case: Case, size: Size, cache: Path) -> Trained:
    job, steps = job_of(case, size), size.steps
    cores = [
        open_core(job, torch.device("cpu"), cache, time.monotonic) for _ in range(size.authors)
    ]
    weights_D = genesis_weights(job.model, job.seed)
    state = OuterState(weights_D, np.zeros_like(weights_D))
    rates = OuterRates(job.updates.outer_lr, job.updates.outer_momentum)
    losses = []
    update_bytes = delta_bytes = 0
    for number in range(size.rounds):
        members = [
            contribution(core, author, number, steps, case.codec, state)
            for author, core in enumerate(cores)
        ]
        for core in cores:
            for _ in range(round(case.late * steps)):
                core.train_on()
        rule = rule_named(case.rule)
        delta = aggregate_and_step(
            state, members, rule, case.f_agg, rates, state, delta_format_of(case.codec)
        )
        losses.append(cores[0].evaluate(state.weights_D))
        update_bytes, delta_bytes = len(members[0].blob), delta.size
    return Trained(case.words, update_bytes, delta_bytes, losses)


def contribution(
    core: Core, author: int, number: int, steps: int, codec: str, state: OuterState
) -> Contribution:
    order = TrainOrder(
        base=NOWHERE,
        seed=Digest(number.to_bytes(32)),
        round=number,
        author=NodeId(author.to_bytes(32)),
        steps_max=steps,
        stop_after_s=float("inf"),
        codec=codec,
        first_step=number * steps,
        merged_round=number - 1,
        ahead_max=steps - 1,
    )
    sealed = core.train_and_seal(order, state.weights_D)
    return Contribution(sealed.blob, codec, sealed.trained.tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=15, help="of an author in a round")
    parser.add_argument("--authors", type=int, default=4)
    parser.add_argument("--width", type=int, default=64, help="of the model, two blocks deep")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = Size(options.authors, options.width, options.rounds, options.steps)
    found: list[Trained] = []
    with tempfile.TemporaryDirectory() as cache:
        for case in CASES:
            trained = train(case, size, Path(cache))
            found.append(trained)
            if options.json:
                continue
            every = max(1, options.rounds // SHOWN)
            shown = " ".join(f"{loss:.3f}" for loss in trained.losses[every - 1 :: every])
            ratio = trained.losses[-1] / found[0].losses[-1]
            sizes = f"{trained.update_bytes:7} bytes, delta {trained.delta_bytes:7}"
            print(f"{trained.case:34} {sizes}  {shown}  {ratio:.3f} x int8")
    if options.json:
        print(json.dumps([asdict(each) for each in found]))


if __name__ == "__main__":
    main()
