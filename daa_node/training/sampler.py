"""Text that a language model goes on with, from weights that somebody certified.

One token after the other, each drawn from softmax(logits / temperature) of the last one of the
window; with a temperature of 0 the likeliest. The window is the newest `context` tokens: bytes, or
those of the job's tokenizer. A process of its own (see one_question): "weights" is a grid vector's
file, "cache" a directory, "prompt" hexadecimal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from daa_node.errors import TrainerFailed, UserError
from daa_node.tensors import open_grid_vector
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.core import choose_device
from daa_node.training.data_config import DataConfig
from daa_node.training.datasets.files import Wanted, open_wanted
from daa_node.training.datasets.tokenizer import FileEncoder
from daa_node.training.model_config import BYTE_VALUES, ModelConfig
from daa_node.training.models.byte_gpt import gpt_logits
from daa_node.training.models.module import ModuleLogits
from daa_node.training.models.opening import open_model
from daa_node.training.models.parameters import FlatParameters
from daa_node.training.module_source import ModuleAccess
from daa_node.training.one_question import answer_one

Logits = Callable[[Tensor], Tensor]  # tokens (1, T) -> (1, T, V)


@dataclass(frozen=True, slots=True)
class Draw:
    """How many tokens, how boldly, and by which seed."""

    count: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Which tokens there are, and what they are to a person."""

    size: int
    encode: Callable[[bytes], Sequence[int]]
    decode: Callable[[Sequence[int]], bytes]


BYTES = Alphabet(BYTE_VALUES, list, bytes)


def sample(
    logits: Logits, context: int, prompt: Sequence[int], draw: Draw, alphabet: Alphabet = BYTES
) -> list[int]:
    """Tokens after the prompt, which has one at least."""
    assert prompt
    chance, written = torch.Generator().manual_seed(draw.seed), list(prompt)
    with torch.inference_mode():
        for _ in range(draw.count):
            window = torch.tensor([written[-context:]])
            # what a larger vocabulary has above them is never drawn: no data has it
            last_V = logits(window)[0, -1, : alphabet.size].cpu().double()
            if draw.temperature == 0:
                drawn = last_V.argmax()
            else:
                shares_V = torch.softmax(last_V / draw.temperature, 0)
                drawn = torch.multinomial(shares_V, 1, generator=chance)
            written.append(int(drawn))
    return written[len(prompt) :]


def go_on(
    logits: Logits, context: int, prompt: bytes, draw: Draw, alphabet: Alphabet = BYTES
) -> bytes:
    """What comes after the prompt. Raises UserError for one that has no tokens."""
    tokens = list(alphabet.encode(prompt))
    if not tokens:
        raise UserError("the tokenizer makes no token of --prompt: give another one")
    written = sample(logits, context, tokens, draw, alphabet)
    # of the whole, since a word may be written otherwise at the beginning
    said, head = alphabet.decode([*tokens, *written]), alphabet.decode(tokens)
    return said[len(head) :] if said.startswith(head) else alphabet.decode(written)


def alphabet_of(data: DataConfig, model: ModelConfig, cache_dir: Path) -> Alphabet:
    """Raises UserError for a tokenizer that is not there, or not that of the genesis."""
    file = data.tokenizer
    if file is None:
        return BYTES
    found = open_wanted(Wanted(file.path, file.digest, "data.tokenizer"), cache_dir)
    encoder = FileEncoder(found, model.vocabulary, file.document_end)
    return Alphabet(
        encoder.size,
        lambda text: [int(token) for token in encoder.encode(text.decode(errors="replace"))],
        lambda tokens: encoder.decode(tokens).encode(),
    )


def open_logits(model: ModelConfig, seed: int, weights: Path, config: TrainerConfig) -> Logits:
    """Raises UserError where the model may not run here, or has no logits."""
    device = choose_device(config.device)
    parameters = FlatParameters(model.tensors(), device)
    grid_D = open_grid_vector(weights, model.parameter_count())
    parameters.load_pieces(grid_D)
    if not model.is_canonical:
        module = ModuleLogits(open_model(model, seed, ModuleAccess.of(config)))
        return lambda tokens: module(parameters.views, tokens.to(device))
    by_views = gpt_logits(model)
    return lambda tokens: by_views(parameters.views, tokens.to(device))


def answer(job: TrainingJob, config: TrainerConfig, request: dict[str, Any]) -> str:
    """In hexadecimal. Raises UserError."""
    model, draw = job.model, Draw(request["count"], request["temperature"], request["seed"])
    alphabet = alphabet_of(job.data, model, Path(request["cache"]))
    logits = open_logits(model, job.seed, Path(request["weights"]), config)
    try:
        return go_on(logits, model.context, bytes.fromhex(request["prompt"]), draw, alphabet).hex()
    except (TrainerFailed, RuntimeError) as fault:
        raise UserError(f"the model wrote nothing: {fault}", exit_code=1) from None


if __name__ == "__main__":
    answer_one(answer)
