"""What a network trains, on what and how: parts of the genesis, and a node's own worker settings.

Everything but `TrainerConfig` is the same on every node, because it is part of what the chain id
names. The table of tensors is computed here without torch, so that a verifier needs none either.
"""

import re
from math import isqrt
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from daa_dag.ids import Digest, digest_of
from daa_node.tensors import TensorSpec, parameter_count_of
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.grid import GRID_EXPONENT
from daa_node.updates.initial_weights import TensorInit

BYTE_VALUES = 256
DIGIT_FEATURES = 64  # 8 x 8 pixels
DIGIT_CLASSES = 10
GRID_BITS = -GRID_EXPONENT  # standard deviations of initial weights count grid units
# 2 GiB of fp32: beyond it one worker no longer holds weights, gradient and two moments at ease.
PARAMETERS_MAX = 2**29


_DEVICE = re.compile("auto|cpu|mps|cuda(:(0|[1-9][0-9]{0,2}))?")


def _is_device(text: str) -> str:
    if _DEVICE.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is no device: auto, cpu, cuda, mps, or one GPU by its number, from cuda:0 on"
        )
    return text


Device = Annotated[str, AfterValidator(_is_device)]


def _init(name: str, shape: tuple[int, ...], std: int) -> TensorInit:
    return TensorInit(TensorSpec(name, shape), std)


def _half_over_root(fan_in: int) -> int:
    """0.5 / sqrt(fan_in) in grid units, exactly rounded down."""
    return isqrt((1 << (2 * GRID_BITS)) // (4 * fan_in))


def _he(fan_in: int) -> int:
    """sqrt(2 / fan_in) in grid units, exactly rounded down."""
    return isqrt((2 << (2 * GRID_BITS)) // fan_in)


class ModelConfig(BaseModel):
    """The shape of the model. `heads` and `context` are the byte GPT's alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["byte_gpt", "mlp"] = "byte_gpt"
    depth: int = Field(3, ge=1, le=128, description="blocks of the GPT, hidden layers of the MLP")
    width: int = Field(96, ge=8, le=16_384)
    heads: int = Field(4, ge=1, le=256)
    context: int = Field(64, ge=2, le=65_536, description="tokens a window")
    vocabulary: int = Field(BYTE_VALUES, ge=BYTE_VALUES, le=65_536)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind == "byte_gpt" and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.parameter_count() > PARAMETERS_MAX:
            raise ValueError(f"{self.parameter_count()} parameters, at most {PARAMETERS_MAX}")
        return self

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The model's tensors in the order in which they lie in the flat vector."""
        return tuple(init.spec for init in self.inits())

    def inits(self) -> tuple[TensorInit, ...]:
        """How each tensor starts, in integers, so that every machine starts from the same bits."""
        return tuple(self._gpt_inits() if self.kind == "byte_gpt" else self._mlp_inits())

    def parameter_count(self) -> int:
        return parameter_count_of(self.tensors())

    def _gpt_inits(self) -> list[TensorInit]:
        width, root = self.width, _half_over_root
        inits = [
            # Tied: small enough that the first logits are nearly even, ln(vocabulary) nats.
            _init("embedding", (self.vocabulary, width), (1 << GRID_BITS) // 20),
            _init("position", (self.context, width), (1 << GRID_BITS) // 50),
        ]
        summands = 2 * self.depth  # what joins the residual stream shrinks with their number
        for layer in range(self.depth):
            block = f"blocks.{layer}."
            inits += [
                _init(block + "attention.qkv", (width, 3 * width), root(width)),
                _init(block + "attention.out", (width, width), root(width * summands)),
                _init(block + "mlp.up", (width, 4 * width), root(width)),
                _init(block + "mlp.down", (4 * width, width), root(4 * width * summands)),
            ]
        return inits

    def _mlp_inits(self) -> list[TensorInit]:
        inits, fan_in = [], DIGIT_FEATURES
        for layer in range(self.depth):
            inits += [
                # He et al. 2015: sqrt(2 / fan_in) keeps the scale through a ReLU.
                _init(f"layers.{layer}.weight", (fan_in, self.width), _he(fan_in)),
                _init(f"layers.{layer}.bias", (self.width,), 0),
            ]
            fan_in = self.width
        return [
            *inits,
            _init("head.weight", (fan_in, DIGIT_CLASSES), 0),
            _init("head.bias", (DIGIT_CLASSES,), 0),
        ]


class DataConfig(BaseModel):
    """Where tokens come from and which of them are held out.

    Every node opens `path` on its own disk; a relative one starts where its daemon was started.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["shakespeare", "text", "jsonl", "tokens", "digits"] = "shakespeare"
    path: Path | None = Field(None, description="for text, jsonl and tokens")
    digest: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="blake3 of the tokens' bytes; a node whose copy differs refuses to start",
    )
    heldout_every: int = Field(10, ge=2, le=10_000, description="every n-th block is held out")
    heldout_block: int | None = Field(
        None, ge=1, le=2**24, description="tokens a block, 8192 unless set; examples for digits, 1"
    )

    @property
    def heldout_block_items(self) -> int:
        default = 1 if self.kind == "digits" else 8192
        return default if self.heldout_block is None else self.heldout_block

    @model_validator(mode="after")
    def _path_where_needed(self) -> Self:
        wants_path = self.kind in ("text", "jsonl", "tokens")
        if wants_path and self.path is None:
            raise ValueError(f"data of kind {self.kind} needs a path")
        if not wants_path and self.path is not None:
            raise ValueError(f"data of kind {self.kind} takes no path: it comes with the package")
        return self


class InnerConfig(BaseModel):
    """AdamW on one node between two outer steps (Loshchilov and Hutter 2019)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lr: float = Field(4e-3, gt=0, le=1)
    lr_final_fraction: float = Field(0.1, ge=0, le=1, description="of lr, where the cosine ends")
    warmup_steps: int = Field(20, ge=0, le=10**9)
    total_steps: int = Field(400, ge=1, le=10**9, description="of one author, for the cosine")
    batch_size: int = Field(4, ge=1, le=65_536, description="windows (or examples) a step")
    weight_decay: float = Field(0.1, ge=0, le=10)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    grad_clip: float = Field(1.0, gt=0, le=1e6, description="L2 norm of one step's gradient")


class EvaluationConfig(BaseModel):
    """Held-out loss: how many windows (or examples), evenly spread over what is held out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    windows: int = Field(160, ge=1, le=1_000_000)
    batch_windows: int = Field(32, ge=1, le=65_536)


class TrainingJob(BaseModel):
    """All that a genesis says about the work of one worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    inner: InnerConfig = InnerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    updates: UpdatesConfig = UpdatesConfig()
    seed: int = Field(0, ge=0, lt=2**63)

    def digest(self) -> Digest:
        """Names the job in this node's own files; not an id that others see."""
        return digest_of(self.model_dump_json().encode())


class TrainerConfig(BaseModel):
    """One node's worker process: what this machine has and how much of it may be used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: Device = Field(
        "auto", description="auto, cpu, cuda, mps, or cuda:1 for the second GPU of this machine"
    )
    threads: int = Field(1, ge=1, le=1024, description="CPU threads of the worker")
    niceness: int = Field(5, ge=0, le=19)
    start_timeout_s: float = Field(120.0, gt=0, description="import torch, map the data")
    heartbeat_timeout_s: float = Field(8.0, gt=0, description="16 beats: a starved CPU is no hang")
    order_timeout_s: float = Field(900.0, gt=0, description="beyond an order's own stop_after_s")
