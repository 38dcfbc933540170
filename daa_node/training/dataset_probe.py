"""Build somebody's data set, try it, and say the digest that a genesis names it by.

A process of its own (see one_question). Tried is what would spoil a network later: rows that come
out otherwise the second time, and a model of this package that cannot take them.
"""

from typing import Any

import numpy as np

from daa_node.errors import TrainerFailed, UserError
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.datasets.built import WHAT, BuiltExamples, build_examples
from daa_node.training.datasets.examples import Batch
from daa_node.training.module_source import ModuleAccess, find_source
from daa_node.training.one_question import answer_one

ROWS = 8  # of each side, spread over it


def probe(job: TrainingJob, access: ModuleAccess) -> str:
    """The digest of its source. Raises UserError for what no network can train on."""
    path = job.data.builder
    assert path is not None
    digest = find_source(path, access, WHAT).digest
    once, again = (build_examples(job.data, job.model, access, digest) for _ in range(2))
    for side in ("train", "heldout"):
        first, *others = (_seen(dataset, side) for dataset in (once, once, again))
        if not all(_same(first, other) for other in others):
            raise UserError(
                f"the {WHAT} {path}: {side}(indices) gives other rows the second time: nobody "
                "could check what is trained on them. Let what it draws by chance follow from the "
                "index alone"
            )
    return digest


def _seen(dataset: BuiltExamples, side: str) -> Batch:
    count: int = getattr(dataset, f"{side}_count")
    rows = [count * at // ROWS for at in range(ROWS)] + [count - 1]
    try:
        batch: Batch = getattr(dataset, side)(np.array(rows, np.int64))
    except TrainerFailed as fault:
        raise UserError(str(fault)) from None
    return batch


def _same(one: Batch, other: Batch) -> bool:
    return np.array_equal(one.inputs, other.inputs) and np.array_equal(one.targets, other.targets)


def answer(job: TrainingJob, config: TrainerConfig, _request: dict[str, Any]) -> Any:
    """Raises UserError."""
    return probe(job, ModuleAccess.of(config))


if __name__ == "__main__":
    answer_one(answer)
