"""What a network's job needs of the host that is to train it, and the host does not have yet.

All of it at once, and without running anything of it or reading whole files: a worker compares
digests, and says so where one differs.
"""

from collections.abc import Callable, Iterator
from functools import partial

from daa_node.cli.compose import training_job
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.identity import trainer_settings
from daa_node.cli.starting import check_weights
from daa_node.config import NodeConfig
from daa_node.errors import UserError
from daa_node.genesis import Genesis
from daa_node.training import base_files
from daa_node.training.config import TrainingJob
from daa_node.training.datasets.files import Wanted, check_there
from daa_node.training.module_config import check_allowed, module_of
from daa_node.training.module_source import ModuleAccess, find_source


def lacking(made: Genesis, directory: DataDirectory, config: NodeConfig) -> list[str]:
    """A sentence each, which says what to do."""
    try:
        job = training_job(made, directory, config)
    except UserError as refused:
        return [str(refused)]
    checks = [partial(check_weights, made, directory), partial(_check_trains, config)]
    checks += _of_code(job, directory, config)
    checks += [partial(check_there, wanted) for wanted in _files(job)]
    if job.model.base is not None:
        checks.append(partial(base_files.check_there, job.model.base))
    return [told for told in map(_why_not, checks) if told is not None]


def _why_not(check: Callable[[], None]) -> str | None:
    try:
        check()
    except UserError as refused:
        return str(refused)
    return None


def _check_trains(config: NodeConfig) -> None:
    if not config.trainer.contribute:
        raise UserError(
            "trainer.contribute is false in config.yaml, and who joins with an invite is to train: "
            "take that out"
        )


def _of_code(
    job: TrainingJob, directory: DataDirectory, config: NodeConfig
) -> Iterator[partial[None]]:
    """Checks of code that is somebody's: that it may run here, and that it is here."""
    built = job.model.built
    if job.model.path is not None:
        digest = None if built is None else built.source_digest
        yield partial(check_allowed, job.model.path, config.trainer.allow_modules)
        yield partial(_check_found, job.model.path, digest, directory, config, "model")
    if job.data.builder is not None:
        yield partial(check_allowed, job.data.builder, config.trainer.allow_modules, "dataset")
        yield partial(_check_found, job.data.builder, job.data.digest, directory, config, "dataset")


def _check_found(
    path: str, digest: str | None, directory: DataDirectory, config: NodeConfig, what: str
) -> None:
    """Nothing of it runs, so it is looked for as if it was allowed already."""
    access = ModuleAccess((module_of(path),), trainer_settings(config, directory).module_path)
    try:
        find_source(path, access, what)
    except UserError as refused:
        told = "" if digest is None else f". Its file should have the blake3 {digest}"
        raise UserError(f"{refused}{told}") from None


def _files(job: TrainingJob) -> Iterator[Wanted]:
    for setting, file in job.data.files().items():
        yield Wanted(file.path, file.digest, f"data.{setting}")
    if job.data.kind == "local":
        yield Wanted(job.own.path, None, "data.own.path")
        if job.data.labels is not None:
            yield Wanted(job.own.labels, None, "data.own.labels")
