"""What a network asks of a node's settings and files before its daemon starts, or tells then."""

from daa_consensus.roll import Admission
from daa_dag.ids import ChainId
from daa_node.agreement import withdrawal
from daa_node.cli.data_directory import DataDirectory
from daa_node.config import NodeConfig
from daa_node.errors import UserError
from daa_node.genesis import Genesis
from daa_node.training.module_config import check_allowed

# Of a node that its operator has taken off the trainers' roll, as `status` and `doctor` say it.
RETIRED = (
    "this node has retired (daa-node trainers retire), and enrolls no more by itself: it trains "
    "again after `daa-node trainers enroll`, or an invite and `daa-node join`"
)


def has_retired(directory: DataDirectory, chain_id: ChainId) -> bool:
    """From this network, by its operator's own word, whether a daemon runs or not."""
    work = directory.work_of(chain_id.hex())
    return (work / withdrawal.KIND / withdrawal.NAME).exists()


def check_start(made: Genesis, directory: DataDirectory, config: NodeConfig) -> None:
    """Raise UserError for code that is not allowed here, and for weights that nobody would read.

    Nobody's code runs on a node that never trains.
    """
    if config.trainer.contribute:
        allowed = config.trainer.allow_modules
        if made.job.model.path is not None:
            check_allowed(made.job.model.path, allowed)
        if made.job.data.builder is not None:
            check_allowed(made.job.data.builder, allowed, "dataset")
    elif config.enroll:
        raise UserError(
            "config.yaml: enroll is true, which asks to train, and trainer.contribute is false, "
            "which never does: take out one of the two"
        )
    check_weights(made, directory)


def check_weights(made: Genesis, directory: DataDirectory) -> None:
    """Raise UserError for first weights that nobody would read."""
    weights = directory.weights
    if made.job.model.first_root is None and weights.exists():
        raise UserError(
            f"{weights} would be ignored: this network begins with weights by lot. Remove the "
            "file; a network that begins with it is made by daa-node genesis create --weights"
        )


def once(config: NodeConfig, made: Genesis, directory: DataDirectory) -> str:
    """What makes a node train, or vote, that is none of the first validators."""
    admission = made.job.trainers.admission
    if has_retired(directory, made.chain_id):
        return f"does not train: {RETIRED}"
    if config.enroll and admission is Admission.OPEN:
        return "trains once a set has enrolled it"
    if config.enroll and admission is Admission.VOUCHED:
        return (
            "trains once a validator lets it in: the one by whose invite it came does so by itself "
            "(`daa-node join INVITE`), any other one with `daa-node trainers vouch NODE`"
        )
    if not config.trainer.contribute:
        return "votes once it is a validator: `daa-node validators propose join`"
    told = "trains once it is a validator: `daa-node validators propose join`"
    without = {
        Admission.CLOSED: "",
        Admission.OPEN: ". Without a vote it trains with `enroll: true` in config.yaml",
        Admission.VOUCHED: ". Without a vote it trains with an invite (`daa-node join INVITE`)",
    }
    return f"{told}{without[admission]}"
