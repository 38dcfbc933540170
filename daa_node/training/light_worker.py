"""The worker of a node that never trains: `python -m daa_node.training.light_worker --fd N`.

It merges what others have trained, replays deltas, and takes disputed steps again where canonical
kernels take them: numpy alone, so that such a host needs no torch. No data are opened before a
dispute asks for them, and then beside the orders: to convert them may take longer than a round, and
no merging waits for that. How it lives is told in orders.
"""

import argparse
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path

from daa_node.errors import TrainerFailed
from daa_node.seams import SegmentOrder
from daa_node.training import orders
from daa_node.training.base_files import Marks
from daa_node.training.boundary_files import BoundaryFiles
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.examples import Examples
from daa_node.training.exact_replay import replay_exactly, replay_seal_exactly, step_exactly
from daa_node.training.merging import Merging
from daa_node.training.messages import Message
from daa_node.training.orders import Inbox

DEVICE = "cpu, which merges and does not train"
OPENED_S = 1.0  # for so long an order waits for the data


class LightWorker:
    """Carries out orders, one after another: an OrderTaker without a model."""

    told_device = DEVICE

    def __init__(
        self,
        job: TrainingJob,
        directory: Path,
        inbox: Inbox,
        open_: Callable[..., Examples] = open_examples,
        opened_s: float = OPENED_S,
    ) -> None:
        self._job = job
        self._open = open_
        self._opened_s = opened_s
        self._beside = ThreadPoolExecutor(1)
        self._opening: Future[Examples] | None = None
        self._cache_dir = directory / "cache"
        self._inbox = inbox
        self._merging = Merging(job)
        self.unsaved = False
        self.marks: Marks = {}  # of no base: none is read

    def restore(self) -> str:
        """There is nothing to take up."""
        return "none: it does not train"

    def save(self) -> None:
        """There is nothing to save."""

    def train_on(self) -> bool:
        return False

    def finish(self) -> None:
        """No order leaves anything to do."""

    def carry_out(self, order: Message) -> Message:
        """The answer's fields. Raises EXPECTED_FAULTS."""
        match order["verb"]:
            case "initial_state":
                return self._merging.initial_state(order)
            case "aggregate_and_step":
                return self._merging.aggregate_and_step(order)
            case "apply_delta":
                return self._merging.apply_delta(order)
            case "keep_boundaries":
                return self._merging.left_boundaries(order)
            case "check_segment":
                return self._check_segment(order)
            case "open_segment":
                return self._open_segment(order)
            case verb:
                raise TrainerFailed(f"{verb}: this node does not train (trainer.contribute)")

    def _check_segment(self, order: Message) -> Message:
        segment, claim = SegmentOrder(**order["segment"]), self._merging.claim(order)
        self._check_exact(segment)
        if claim.sealed is not None:
            return {"check": asdict(replay_seal_exactly(self._job, claim.start, claim.sealed))}
        is_cancelled = self._inbox.is_cancelled
        found = replay_exactly(self._job, self._opened(), segment, claim, is_cancelled)
        return {"check": asdict(found)}

    def _open_segment(self, order: Message) -> Message:
        """States between the ends of a segment, a file each."""
        segment, start = SegmentOrder(**order["segment"]), self._merging.boundary(order["start"])
        self._check_exact(segment)
        states = BoundaryFiles(Path(order["boundaries_out"]))
        is_cancelled = self._inbox.is_cancelled
        step_exactly(self._job, self._opened(), segment, start, states.add, is_cancelled)
        return {"manifests": [state.encode() for state in states.manifests]}

    def _check_exact(self, segment: SegmentOrder) -> None:
        if not segment.exact:
            raise TrainerFailed("steps that a device rounds as it likes are taken again by torch")

    def _opened(self) -> Examples:
        """The job's data.

        Raises UserError where they are not here, TrainerFailed for others' and until they are open.
        """
        job = self._job
        if not job.model.is_canonical:
            raise TrainerFailed(f"no canonical kernels take steps of {job.model.label}")
        if job.data.reveal:
            raise TrainerFailed("data that each host has for itself are judged by who trains")
        opening = self._opening or self._beside.submit(
            self._open, job.data, job.model, self._cache_dir, job.own
        )
        done, _ = wait([opening], self._opened_s)
        self._opening = None if done and opening.exception() else opening  # files may come later
        if not done:
            raise TrainerFailed("the job's data are being opened, which takes long the first time")
        return opening.result()


def open_light(
    job: TrainingJob, config: TrainerConfig, directory: Path, inbox: Inbox
) -> LightWorker:
    os.nice(config.niceness)
    return LightWorker(job, directory, inbox)


def main() -> None:
    """Serves until the daemon closes the socket."""
    arguments = argparse.ArgumentParser(prog="daa_node.training.light_worker")
    arguments.add_argument("--fd", type=int, required=True, help="our end of the daemon's socket")
    orders.serve(arguments.parse_args().fd, open_light)


if __name__ == "__main__":
    main()
