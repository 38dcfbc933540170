"""Text that a language model over bytes goes on with, from weights that somebody certified.

One byte after the other, each drawn from softmax(logits / temperature) of the last one of the
window; with a temperature of 0 the likeliest. The window is the newest `context` bytes. A process
of its own (see one_question): "weights" is a grid vector's file, "prompt" hexadecimal.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from daa_node.errors import TrainerFailed, UserError
from daa_node.tensors import open_grid_vector
from daa_node.training.config import BYTE_VALUES, ModelConfig, TrainerConfig, TrainingJob
from daa_node.training.core import choose_device
from daa_node.training.models.byte_gpt import gpt_logits
from daa_node.training.models.module import ModuleLogits, open_module
from daa_node.training.models.parameters import FlatParameters
from daa_node.training.module_source import ModuleAccess
from daa_node.training.one_question import answer_one
from daa_node.updates.grid import to_float32

Logits = Callable[[Tensor], Tensor]  # tokens (1, T) -> (1, T, V)


def sample(
    logits: Logits, context: int, prompt: bytes, count: int, temperature: float, seed: int
) -> bytes:
    """`count` bytes after the prompt, which has one at least."""
    assert prompt
    chance, written = torch.Generator().manual_seed(seed), list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            window = torch.tensor([written[-context:]])
            # what a larger vocabulary has above bytes is never drawn: no data has it
            last_V = logits(window)[0, -1, :BYTE_VALUES].cpu().double()
            if temperature == 0:
                drawn = last_V.argmax()
            else:
                shares_V = torch.softmax(last_V / temperature, 0)
                drawn = torch.multinomial(shares_V, 1, generator=chance)
            written.append(int(drawn))
    return bytes(written[len(prompt) :])


def open_logits(model: ModelConfig, seed: int, weights: Path, config: TrainerConfig) -> Logits:
    """Raises UserError where the model may not run here, or has no logits."""
    device = choose_device(config.device)
    parameters = FlatParameters(model.tensors(), device)
    grid_D = open_grid_vector(weights, model.parameter_count())
    parameters.load(torch.from_numpy(to_float32(grid_D)))
    if model.kind == "module":
        module = ModuleLogits(model.path, open_module(model, seed, ModuleAccess.of(config)))
        return lambda tokens: module(parameters.views, tokens.to(device))
    by_views = gpt_logits(model)
    return lambda tokens: by_views(parameters.views, tokens.to(device))


def answer(job: TrainingJob, config: TrainerConfig, request: dict[str, Any]) -> str:
    """In hexadecimal. Raises UserError."""
    logits = open_logits(job.model, job.seed, Path(request["weights"]), config)
    prompt, count = bytes.fromhex(request["prompt"]), request["count"]
    temperature, seed = request["temperature"], request["seed"]
    try:
        return sample(logits, job.model.context, prompt, count, temperature, seed).hex()
    except (TrainerFailed, RuntimeError) as fault:
        raise UserError(f"the model wrote nothing: {fault}", exit_code=1) from None


if __name__ == "__main__":
    answer_one(answer)
