"""Whether PyTorch is installed here, found out without importing it, and what to say if it is not.

A base install brings none: validators, gateways and tools work without it.
"""

from importlib.util import find_spec

from daa_node.errors import UserError
from daa_node.training.config import TrainerConfig

INSTALL = 'pip install "daa-compute[train]"'


def is_there() -> bool:
    """A folder of that name, as a package that was removed may leave it, is none."""
    found = find_spec("torch")
    return found is not None and found.origin is not None


def need_torch(what: str) -> None:
    """Raises UserError, which says that `what` needs it, unless it is there."""
    if not is_there():
        raise UserError(f"{what} needs PyTorch, and it is not installed here: {INSTALL}")


def check_trains(config: TrainerConfig) -> None:
    """Raises UserError for a node that is to train and cannot."""
    if config.contribute and not is_there():
        raise UserError(
            "this node is to train, and PyTorch is not installed here. Install it: "
            f"{INSTALL}. Or have it vote, merge and serve without training: set "
            "trainer.contribute: false in config.yaml"
        )
