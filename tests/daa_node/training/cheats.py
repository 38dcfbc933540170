"""An author with a round behind it, who then contributes honestly or in one of seven other ways.

Every cheat shows boundaries that begin where they must and count their steps right: what is left to
tell it by is where training led to. D parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.seams import SegmentCheck, SegmentOrder, StateRef, TrainOrder
from daa_node.tensors import Float32Array, Int32Array, UInt8Array
from daa_node.training.boundaries import Boundary, boundary_steps, open_boundary
from daa_node.training.config import TrainingJob
from daa_node.training.core import Core, open_core
from daa_node.training.genesis_state import genesis_weights
from daa_node.training.sealed_claims import Claim, ClaimedSeal
from daa_node.updates.compression.codec import codec_named, decode, encode
from daa_node.updates.grid import to_float32

ALICE, BOB = NodeId(b"a" * 32), NodeId(b"b" * 32)
CPU = torch.device("cpu")
NO_ROOT = BlobRoot(bytes(32))
NOWHERE = StateRef(NO_ROOT, NO_ROOT)
CODEC = "int8"


@dataclass
class Shown:
    """What an author shows of its round: boundaries, first to last, and the update."""

    boundaries: list[Boundary]
    blob: UInt8Array


@dataclass(frozen=True)
class Stage:
    """The job, Alice's second round of it, and a checker."""

    job: TrainingJob
    cache: Path
    steps: int
    segment_steps: int

    @property
    def places(self) -> tuple[int, ...]:
        return boundary_steps(self.steps, self.segment_steps)

    def core(self) -> Core:
        return open_core(self.job, CPU, self.cache, perf_counter)

    def author(self) -> Core:
        """With moments and a residual that are no zeros."""
        core = self.core()
        core.train_and_seal(self.order(round=1, merged_round=-1, first_step=0), self.base_D(0))
        return core

    def base_D(self, seed: int) -> Int32Array:
        return genesis_weights(self.job.model, seed)

    def order(self, author: NodeId = ALICE, **changes: object) -> TrainOrder:
        made = TrainOrder(
            *(NOWHERE, Digest(b"s" * 32), 2, author, self.steps, 1e9, CODEC, self.steps, 1),
            segment_steps=self.segment_steps,
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    def contribute(
        self,
        core: Core,
        task: TrainOrder | None = None,
        base_seed: int = 0,
        meddle: Callable[[Float32Array], None] = lambda _weights_D: None,
    ) -> Shown:
        """`meddle` may change the weights after each step."""
        passed: list[Boundary] = []

        def note(boundary: Boundary) -> None:
            passed.append(own(boundary))
            if len(passed) > 1:
                meddle(boundary.weights_D)

        order = task or self.order()
        each = replace(order, segment_steps=1)
        sealed = core.train_and_seal(each, self.base_D(base_seed), on_boundary=note)
        passed.append(own(sealed.end))
        places = boundary_steps(order.steps_max, order.segment_steps)
        return Shown([passed[place] for place in places], sealed.blob)

    def checks(self, checker: Core, shown: Shown) -> list[SegmentCheck]:
        """Of every segment."""
        task, found = self.order(), list[SegmentCheck]()
        sealed = ClaimedSeal(self.base_D(0), shown.boundaries[-1], shown.blob, CODEC)
        for index, (step, end) in enumerate(zip(self.places, self.places[1:], strict=False)):
            segment = SegmentOrder(
                *(task.seed, task.round, ALICE, task.first_step, step, end - step),
                *(NO_ROOT, NO_ROOT, None),
            )
            claim = Claim(shown.boundaries[index], shown.boundaries[index + 1], sealed)
            found.append(checker.check_segment(segment, claim))
        return found


def own(boundary: Boundary) -> Boundary:
    """The same in memory of its own."""
    blob = np.frombuffer(b"".join(boundary.parts()), np.uint8).copy()
    owes, shows = boundary.residual_D is not None, boundary.revealed is not None
    return open_boundary(blob, boundary.weights_D.size, owes, shows)


def honest(stage: Stage) -> Shown:
    return stage.contribute(stage.author())


def skips_half_of_the_steps(stage: Stage) -> Shown:
    half = stage.order(steps_max=stage.steps // 2, segment_steps=stage.segment_steps // 2)
    shown = stage.contribute(stage.author(), half)
    start = shown.boundaries[0].adam_steps
    counted = [
        replace(boundary, adam_steps=start + place)
        for boundary, place in zip(shown.boundaries, stage.places, strict=True)
    ]
    return replace(shown, boundaries=counted)


def trains_from_a_stale_base(stage: Stage) -> Shown:
    shown = stage.contribute(stage.author(), base_seed=1)
    return replace(shown, boundaries=[honest(stage).boundaries[0], *shown.boundaries[1:]])


def rounds_weights_to_bf16(stage: Stage) -> Shown:
    def meddle(weights_D: Float32Array) -> None:
        weights_D[:] = torch.from_numpy(weights_D).bfloat16().float().numpy()

    return stage.contribute(stage.author(), meddle=meddle)


def doubles_its_gradients(stage: Stage) -> Shown:
    """AdamW does not know 2g on (m, v) from g on (m/2, v/4), but for its epsilon."""
    core = stage.author()
    state = core.inner_state()
    first_D = state.tried.first_D * np.float32(0.5)
    second_D = state.tried.second_D * np.float32(0.25)
    core.set_inner_state(
        replace(state, tried=replace(state.tried, first_D=first_D, second_D=second_D))
    )
    shown = stage.contribute(core)
    doubled = [
        replace(
            boundary,
            first_D=boundary.first_D * np.float32(2),
            second_D=boundary.second_D * np.float32(4),
        )
        for boundary in shown.boundaries
    ]
    return replace(shown, boundaries=doubled)


def trains_on_other_batches(stage: Stage) -> Shown:
    return stage.contribute(stage.author(), stage.order(BOB))


def copies_an_update(stage: Stage) -> Shown:
    return replace(honest(stage), blob=trains_on_other_batches(stage).blob)


def doubles_its_update(stage: Stage) -> Shown:
    shown, count = honest(stage), stage.job.model.parameter_count()
    codec = codec_named(CODEC)
    sent_D = to_float32(decode(codec, shown.blob, 0, count, count))
    return replace(shown, blob=encode(codec, sent_D * np.float32(2)))


# What nobody but its seal tells of, whichever segment is drawn.
AT_THE_SEAL: tuple[Callable[[Stage], Shown], ...] = (copies_an_update, doubles_its_update)
CHEATS: tuple[Callable[[Stage], Shown], ...] = (
    skips_half_of_the_steps,
    trains_from_a_stale_base,
    rounds_weights_to_bf16,
    doubles_its_gradients,
    trains_on_other_batches,
    *AT_THE_SEAL,
)
