"""A job with somebody's module as `genesis create` makes it; imports torch."""

from pathlib import Path

from daa_node.training.config import TrainingJob
from daa_node.training.module_probe import probe
from tests.daa_node.training.own_modules import access, built


def probed(job: TrainingJob, directory: Path) -> TrainingJob:
    return built(job, probe(job, access(directory), is_checked=True))
