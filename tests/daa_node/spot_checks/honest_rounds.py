"""Updates of a few rounds that are really trained, on one base each and merged by the real step."""

from functools import cache
from pathlib import Path
from tempfile import gettempdir
from time import perf_counter

import numpy as np
import torch

from daa_dag.ids import BlobRoot, Digest, NodeId, digest_of
from daa_node.seams import StateRef, TrainOrder
from daa_node.tensors import UInt8Array
from daa_node.training.config import TrainingJob
from daa_node.training.core import open_core
from daa_node.training.genesis_state import genesis_weights
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.outer_step import (
    Contribution,
    OuterRates,
    OuterState,
    aggregate_and_step,
)

NODES = 5
NOWHERE = StateRef(BlobRoot(bytes(32)), BlobRoot(bytes(32)))


@cache
def honest_rounds(job_json: str, steps: int, rounds: int) -> list[list[UInt8Array]]:
    """Of each round the blobs of five authors."""
    job = TrainingJob.model_validate_json(job_json)
    updates = job.updates
    directory = Path(gettempdir()) / "daa-test-examples"
    cores = [open_core(job, torch.device("cpu"), directory, perf_counter) for _ in range(NODES)]
    weights_D = genesis_weights(job.model, job.seed).copy()
    state = OuterState(weights_D, np.zeros_like(weights_D))
    made = []
    for number in range(rounds):
        orders = [
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
            )
            for node in range(NODES)
        ]
        blobs = [
            core.train_and_seal(order, weights_D).blob.copy()
            for core, order in zip(cores, orders, strict=True)
        ]
        made.append(blobs)
        aggregate_and_step(
            state,
            [Contribution(blob, updates.codec, 1) for blob in blobs],
            rule_named(updates.rule),
            updates.f_agg_among(NODES),
            OuterRates(updates.outer_lr, updates.outer_momentum),
            state,
            updates.delta_format,
        )
    return made
