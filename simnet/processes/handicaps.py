"""In what a node's training worker is worse than others: a slow processor, wrong labels."""

from pathlib import Path
from time import perf_counter, sleep, thread_time
from typing import Any

from daa_node.training import worker
from daa_node.training.config import DIGIT_CLASSES, TrainingJob
from daa_node.training.core import Core
from daa_node.training.datasets.catalogue import open_examples
from simnet.adversaries.poisoner import Mislabelled
from simnet.processes import kernel


def serve(descriptor: int, parent_pid: int, order: kernel.Message) -> None:
    """The whole life of a worker; `order` is what SpawnWarm asks for."""
    worker.serve(descriptor, parent_pid, opener(**order))


def opener(slowness: float, mislabelled: bool) -> worker.OpenCore:
    """What makes the core of such a worker."""

    def open_core(job: TrainingJob, device: Any, cache_dir: Path) -> Core:
        examples = open_examples(job.data, job.model, cache_dir)
        if mislabelled:
            examples = Mislabelled(examples, DIGIT_CLASSES)
        return Core(job, examples, device, SlowProcessor(slowness).now_s)

    return open_core


class SlowProcessor:
    """A worker's clock on a processor that is `slowness` times slower than ours.

    What the worker computes between two looks takes as many times as long; it looks after every
    inner step. Only its own processor time counts, not what others take of it.
    """

    def __init__(self, slowness: float) -> None:
        self._slowness = slowness
        self._busy_s: float | None = None  # at the last look

    def now_s(self) -> float:
        """Called by the thread that computes."""
        if self._busy_s is not None:
            sleep((thread_time() - self._busy_s) * (self._slowness - 1))
        self._busy_s = thread_time()
        return perf_counter()
