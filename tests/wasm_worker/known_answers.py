"""The page's practice pieces, made again from their seeds: the twin of src/known_answers.ts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daa_node.spot_checks.canonical import canonical_model
from daa_node.spot_checks.recompute import Batch, Model
from daa_node.training.model_config import BYTE_VALUES, ModelConfig

KNOWN_ANSWERS = Path(__file__).parents[2] / "wasm_worker/src/known_answers.json"
SEED_STEP = np.uint32(0x9E3779B1)
WEIGHT_SCALE = np.float32(2.0**-18)


def known_answers() -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = json.loads(KNOWN_ANSWERS.read_text(encoding="utf-8"))
    return answers


def mixed(seed: int, indices: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """32 mixed bits of each index: the finaliser of MurmurHash3."""
    h = indices * SEED_STEP + np.uint32(seed)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def piece(answer: dict[str, Any]) -> tuple[Model, NDArray[np.float32], Batch]:
    """Model, weights (D,) and batch of one practice piece."""
    windows, tokens = answer["windows"], answer["tokens"]
    config = ModelConfig(
        width=answer["width"], heads=answer["heads"], depth=answer["depth"], context=tokens
    )
    count = config.parameter_count()
    bits = mixed(answer["seed"], np.arange(count + windows * (tokens + 1), dtype=np.uint32))
    weights_D = (bits[:count].view(np.int32) >> 16).astype(np.float32) * WEIGHT_SCALE
    text = (bits[count:] & np.uint32(BYTE_VALUES - 1)).astype(np.int64).reshape(windows, tokens + 1)
    return canonical_model(config), weights_D, Batch(text[:, :-1], text[:, 1:])
