"""One vertex's model as a folder that others' programs load, and replaced by no half of one.

Of low-rank adapters it is what the peft library loads beside their base: the genesis names these
tensors as that library's files do, so that neither it nor torch nor the base is needed to write it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daa_dag.checkpoint import Vertex
from daa_dag.ids import ChainId
from daa_node.checkpoints.beside import written_whole
from daa_node.checkpoints.export import write_safetensors
from daa_node.checkpoints.replay import ReplayedState, StateRules
from daa_node.training.base_config import Lora
from daa_node.training.model_config import ModelConfig

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, which gets its name once it is whole. Raises UserError."""
    with written_whole(target) as partial:
        partial.mkdir()  # with the rights that are usual here
        yield partial


def write_adapters(
    folder: Path,
    state: ReplayedState,
    rules: StateRules,
    chain_id: ChainId,
    vertex: Vertex,
    model: ModelConfig,
) -> None:
    """Into an empty folder. Raises OSError."""
    assert model.adapters is not None
    write_safetensors(folder / ADAPTER_WEIGHTS, state, rules, chain_id, vertex)
    base = None if model.base is None else model.base.path
    settings = _settings(model.adapters.lora, model.kind == "hf_causal_lm", base)
    (folder / ADAPTER_CONFIG).write_text(json.dumps(settings, indent=2) + "\n")


def _settings(lora: Lora, is_causal_lm: bool, base: Path | None) -> dict[str, object]:
    """What peft reads: what it does not find there is as it comes."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if is_causal_lm else None,
        "base_model_name_or_path": None if base is None else str(base),
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(lora.targets),
        "bias": "none",
        "inference_mode": True,
    }
