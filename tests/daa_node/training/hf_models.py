"""Small models of transformers, made here and saved in a folder as published ones are."""

import os
from pathlib import Path
from typing import Any

import torch

from daa_node.training.base_config import BaseFolder
from daa_node.training.base_files import digests_of
from daa_node.training.config import EvaluationConfig, InnerConfig, TrainingJob
from daa_node.training.core import Core, open_core
from daa_node.training.model_config import ModelConfig
from daa_node.training.models.causal_lm import OFFLINE
from daa_node.training.module_probe import probe
from daa_node.training.module_source import NO_MODULES
from tests.daa_node.training.own_modules import built

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 256,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
}
LORA = {"lora": {"rank": 4, "alpha": 8, "targets": ["q_proj", "v_proj"]}}
GPT2_LORA = {"lora": {"rank": 2, "alpha": 4, "targets": ["c_attn"]}}


def save_model(folder: Path, config: dict[str, Any] = LLAMA, seed: int = 1) -> Path:
    """Random weights of that seed."""
    os.environ.update(OFFLINE)
    import transformers

    library: Any = transformers  # parts of it have no types
    settings = dict(config)
    torch.manual_seed(seed)
    made = library.AutoConfig.for_model(settings.pop("model_type"), **settings)
    library.AutoModelForCausalLM.from_config(made).save_pretrained(folder)
    return folder


def load_plain(folder: Path) -> Any:
    """As anybody loads it."""
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)


def base_of(folder: Path) -> BaseFolder:
    """As a genesis and one host's settings name it."""
    return BaseFolder(path=folder, files=digests_of(folder))


def job_of(**model: object) -> TrainingJob:
    """Before its genesis is made."""
    return TrainingJob(
        model=ModelConfig.model_validate({"kind": "hf_causal_lm", "context": 12, **model}),
        inner=InnerConfig(lr=0.01, warmup_steps=0, batch_size=8),
        evaluation=EvaluationConfig(windows=32),
        seed=3,
    )


def core_of(job: TrainingJob, directory: Path) -> Core:
    """What trains it, on the CPU."""
    return open_core(job, torch.device("cpu"), directory / "cache", lambda: 0.0)


def probed(job: TrainingJob) -> TrainingJob:
    """As its genesis has it."""
    return built(job, probe(job, NO_MODULES, is_checked=True))
