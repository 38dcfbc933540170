"""Compute a little on each device that this node's settings name, and say what they are.

A process of its own (see one_question). What is tried is what a worker begins with: that torch can
be imported, finds the device, and multiplies two matrices on it to a finite number.
"""

from typing import Any

import torch

from daa_node.errors import UserError
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.core import choose_device
from daa_node.training.one_question import answer_one

SIDE = 64  # of the matrices: a few kilobytes, and a kernel of every library that training uses


def probe(config: TrainerConfig) -> str:
    """Torch's version and the devices, in words. Raises UserError for one that cannot be used."""
    named = config.devices or (config.device,)
    devices = [choose_device(name) for name in dict.fromkeys(named)]
    for device in devices:
        _compute(device)
    makes = ", ".join(
        f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
        for device in devices
    )
    return f"torch {torch.__version__} computes on {makes}"


def _compute(device: torch.device) -> None:
    try:
        ones = torch.ones((SIDE, SIDE), device=device)
        total = (ones @ ones).sum().item()
    except RuntimeError as fault:
        why = str(fault).partition("\n")[0]
        raise UserError(f"torch cannot compute on {device}: {why}") from None
    if total != SIDE**3:
        raise UserError(
            f"{device} computes {total:g} where {SIDE**3} is right: it is broken, or its driver "
            "is. Take another device, as cpu"
        )


def answer(_job: TrainingJob, config: TrainerConfig, _request: dict[str, Any]) -> Any:
    """Raises UserError."""
    return probe(config)


if __name__ == "__main__":
    answer_one(answer)
