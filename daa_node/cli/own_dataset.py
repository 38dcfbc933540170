"""A data set that somebody brings as code: by which digest a new network names it."""

from daa_node import genesis
from daa_node.adapters.asked_process import probe_dataset
from daa_node.cli import identity
from daa_node.cli.data_directory import DataDirectory
from daa_node.errors import UserError
from daa_node.training.config import TrainingJob
from daa_node.training.module_config import check_allowed


def with_dataset_digest(job: genesis.Job, directory: DataDirectory) -> genesis.Job:
    """The job with its data's digest, where they are code. Raises UserError."""
    path = job.data.builder
    if path is None:
        return job
    if job.data.digest is not None:
        raise UserError("data.digest of a dataset is what this command finds out")
    directory.check()
    trainer = identity.trainer_settings(identity.open_config(directory).value, directory)
    check_allowed(path, trainer.allow_modules, "dataset")
    training = TrainingJob(model=job.model, data=job.data, seed=job.seed)
    data = job.data.model_copy(update={"digest": probe_dataset(training, trainer)})
    return job.model_copy(update={"data": data})
