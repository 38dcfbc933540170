"""A language model of the transformers library, behind the face of somebody's module.

Its code is the library's; its weights are a base's, or by lot where the job gives a `config`. It is
computed in float32 (see frozen), as when it is used: without dropout, whose chance would keep
others from checking a step. The library is an extra, which only a process that opens such a model
imports, and it never looks at a network: what is not in the base's folder is not there.

Legend: B windows, T tokens of a window, V vocabulary.
"""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from daa_node.errors import UserError
from daa_node.training.base_config import BASE_CONFIG_REFUSED, names_in
from daa_node.training.base_files import CONFIG, opened, weights_files
from daa_node.training.model_config import PARAMETERS_MAX, ModelConfig

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
WHY_CHARS_MAX = 1000  # of the library's words
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16}  # all others become float32


class CausalLm(nn.Module):
    """The mean loss in nats a token, by a model of transformers, with adapters or without."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.train()

    def train(self, mode: bool = True) -> Self:
        """It computes as in use, always: dropout draws by chance."""
        self.training = mode
        self.model.train(False)
        return self

    def logits(self, inputs_BT: Tensor) -> Tensor:
        """(B, T, V)."""
        logits: Tensor = self.model(input_ids=inputs_BT, use_cache=False).logits
        return logits

    def forward(self, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(inputs_BT).flatten(0, 1), targets_BT.flatten())


def release() -> str:
    """Of the library. Raises UserError if it is not installed."""
    found: str = _library().__version__
    return found


def check_release(wanted: str | None) -> None:
    """Raises UserError unless it is that of the genesis: others would come to other steps."""
    found = release()
    if found != wanted:
        raise UserError(
            f"this network was made with transformers {wanted}, and {found} is installed: what a "
            f"release changes in a model would look like cheating. pip install "
            f"'transformers=={wanted}'"
        )


def build(model: ModelConfig, view: Path | None, seed: int) -> CausalLm:
    """On the CPU; `view`: the base's folder, if it has one. Raises UserError."""
    library = _library()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            config, inner = _built(library, model, view)
        except UserError:
            raise
        except Exception as fault:  # the library's, on whatever a folder or a config holds
            why = f"{type(fault).__name__}: {fault}"[:WHY_CHARS_MAX]
            of = "" if model.base is None else f" of {model.base.path}"
            raise UserError(f"the model of kind hf_causal_lm{of} cannot be built: {why}") from None
    _check_sizes(model, config)
    return CausalLm(inner)


def _built(library: Any, model: ModelConfig, view: Path | None) -> tuple[Any, nn.Module]:
    if view is None:
        config = _config_of(library, model)
        _check_room(library, model, config)
        inner: nn.Module = library.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        return config, inner
    if not (view / CONFIG).exists():
        assert model.base is not None, "it has a view"
        raise UserError(f"the model's base, {model.base.path}, has no {CONFIG} of transformers")
    _check_config((view / CONFIG).read_text())
    config = library.AutoConfig.from_pretrained(
        view, local_files_only=True, trust_remote_code=False
    )
    inner, left = library.AutoModelForCausalLM.from_pretrained(
        view,
        config=config,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=_dtype_in(model, view),
        output_loading_info=True,
    )
    for what in ("missing_keys", "mismatched_keys"):
        if left[what]:
            raise UserError(
                f"the model's base does not fit its {CONFIG}: {what.replace('_', ' ')}: "
                f"{str(sorted(map(str, left[what])))[:WHY_CHARS_MAX]}"
            )
    _widen_buffers(library, config, inner)
    return config, inner


def _widen_buffers(library: Any, config: Any, inner: nn.Module) -> None:
    """What a model computes of its config, a scale or positions, is rounded to no base's dtype."""
    halves = {name: b for name, b in inner.named_buffers() if b.dtype in DTYPES.values()}
    if not halves:
        return
    from accelerate import init_empty_weights  # peft is built on it

    with init_empty_weights(include_buffers=False):
        exact = library.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    stored, computed = inner.state_dict().keys(), dict(exact.named_buffers())
    for name, half in halves.items():
        owner, _, last = name.rpartition(".")
        wide = half if name in stored else computed[name]
        setattr(inner.get_submodule(owner), last, wide.float())


def build_empty(model: ModelConfig) -> Any:
    """The library's own model, with no numbers in it. Raises UserError."""
    library = _library()
    with ExitStack() as stack:
        if model.base is None:
            config = _config_of(library, model)
        else:
            view = stack.enter_context(opened(model.base))
            config = library.AutoConfig.from_pretrained(
                view, local_files_only=True, trust_remote_code=False
            )
        with torch.device("meta"):
            return library.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def _config_of(library: Any, model: ModelConfig) -> Any:
    settings: dict[str, Any] = dict(model.config or {})
    return library.AutoConfig.for_model(settings.pop("model_type"), **settings)


def _dtype_in(model: ModelConfig, view: Path) -> torch.dtype:
    """In which a base is mapped: its own, where it has one and some of it stays as it is."""
    if model.trainable is None:
        return torch.float32
    found = set()
    for file in weights_files(view):
        with safe_open(file, "pt") as weights:
            names = weights.keys()
            found |= {weights.get_slice(name).get_dtype() for name in names}
    return DTYPES.get(found.pop(), torch.float32) if len(found) == 1 else torch.float32


def _check_room(library: Any, model: ModelConfig, config: Any) -> None:
    """Before memory is taken: a genesis may ask for more than any host has."""
    with torch.device("meta"):
        empty = library.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    count = sum(parameter.numel() for parameter in empty.parameters())
    if model.built is None and count > PARAMETERS_MAX:
        raise UserError(f"model.config: {count} parameters, at most {PARAMETERS_MAX}")
    if model.built is not None and count != model.parameter_count():
        raise UserError(
            f"the model {model.label} is not the one of the genesis: its config makes {count} "
            f"parameters, and the genesis has {model.parameter_count()}; nothing was trained"
        )


def _check_config(text: str) -> None:
    for name in BASE_CONFIG_REFUSED.intersection(names_in(json.loads(text))):
        raise UserError(
            f"the model's base: its {CONFIG} has {name}, and a base is computed in float32 by the "
            "library's own code: take a copy of the model that was published without"
        )


def _check_sizes(model: ModelConfig, config: Any) -> None:
    """What would else fail in the middle of a step, or not at all, and be nonsense."""
    text = config.get_text_config()
    for ours, name in (("vocabulary", "vocab_size"), ("context", "max_position_embeddings")):
        wanted, most = getattr(model, ours), getattr(text, name, None)
        if most is not None and wanted > most:
            raise UserError(f"model.{ours} is {wanted}, and the model has {name} {most}")


def _library() -> Any:
    os.environ.update(OFFLINE)  # it reads them when it is imported
    try:
        import transformers
    except ImportError:
        raise UserError(
            "a model of kind hf_causal_lm needs the transformers library, which is not installed: "
            "pip install 'daa-compute[hf]'"
        ) from None
    library: Any = transformers  # parts of it have no types
    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    return library
