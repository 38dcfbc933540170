"""What a job says of a model that others have trained: where it lies, and what of it is trained.

A base is a folder as such models are published: config.json beside weights in safetensors files. A
genesis names what is in each file by digest; each host says where its copy lies. `trainable` names
what is trained, and that alone is exchanged, agreed and stored: some of the base's own tensors, or
low-rank matrices beside them (LoRA, Hu et al. 2021).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from daa_node.training.data_places import DIGEST_PATTERN

WEIGHTS_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,115}\.safetensors"  # never a path
# No others: a library would take an adapter's file, or a program, for a part of the model.
FILE_NAME = rf"^(config\.json|model\.safetensors\.index\.json|{WEIGHTS_NAME})$"
FILES_MAX = 1024  # the largest models come in a few hundred
PATTERNS_MAX = 256
TARGETS_MAX = 64
RANK_MAX = 4096
ALPHA_MAX = 1 << 20
# What config.json may ask for, and no job may: it brings other code, or other arithmetic.
BASE_CONFIG_REFUSED = frozenset(
    {
        "quantization_config",
        "attn_implementation",
        "_attn_implementation",
        "experts_implementation",
        "_experts_implementation",
        "use_kernels",
    }
)
CONFIG_REFUSED = BASE_CONFIG_REFUSED | {"auto_map", "dtype", "torch_dtype"}

Digests = Annotated[
    dict[
        Annotated[str, Field(pattern=FILE_NAME)],
        Annotated[str, Field(pattern=DIGEST_PATTERN)],
    ],
    Field(min_length=1, max_length=FILES_MAX),
    AfterValidator(lambda files: {name: files[name] for name in sorted(files)}),
]
TensorPattern = Annotated[str, Field(pattern=r"^[!-~]{1,256}$")]


class BaseFolder(BaseModel):
    """A folder that has the same model on every host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path | None = Field(
        None,
        description="where it lies unless config.yaml says otherwise, from the node's directory",
    )
    files: Digests | None = Field(None, description="of what it is built from: name, blake3")

    @model_validator(mode="after")
    def _is_somewhere(self) -> Self:
        if self.path is None and self.files is None:
            raise ValueError("a base needs a path, or its files by digest")
        return self


class Lora(BaseModel):
    """Low-rank matrices beside each layer that `targets` names; the layers themselves are frozen.

    A layer W becomes W + B A alpha / rank, where A has `rank` rows and B, which starts as zeros,
    as many columns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(ge=1, le=RANK_MAX, description="rows of A; more learn more and cost more")
    alpha: int = Field(ge=1, le=ALPHA_MAX, description="what B A is multiplied by, over rank")
    targets: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,256}$")], ...] = Field(
        min_length=1,
        max_length=TARGETS_MAX,
        description="ends of layers' names, like q_proj",
    )
    dropout: Literal[0] = Field(0, description="chance would keep others from checking a step")


class LowRank(BaseModel):
    """`trainable: {lora: ...}`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lora: Lora


def _kind_of(trainable: object) -> str:
    """By which what is wrong with one of the two is not told of the other."""
    return "lora" if isinstance(trainable, dict | LowRank) else "names"


# Tensors by names in which `*` stands for anything, or low-rank matrices; None: all of them.
Trainable = Annotated[
    Annotated[
        tuple[TensorPattern, ...],
        Field(min_length=1, max_length=PATTERNS_MAX),
        Tag("names"),
    ]
    | Annotated[LowRank, Tag("lora")],
    Discriminator(_kind_of),
]


class ModelPlaces(BaseModel):
    """Where this host has what the genesis names of a model, in place of the path there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: Path | None = Field(None, description="of the base's folder; null: as the genesis says")


def why_config_refused(config: dict[str, object]) -> str | None:
    """Why no model is built from it; None where one may be."""
    if not isinstance(config.get("model_type"), str):
        return "config needs a model_type, like llama or gpt2"
    for name in names_in(config):
        if name in CONFIG_REFUSED or name.startswith("_"):
            return f"config takes no {name}: a job brings no other code and no other arithmetic"
    return None


def names_in(config: object) -> Iterator[str]:
    """Of all that it sets, in its sections too: a model may be made of others."""
    match config:
        case dict():
            for name, value in config.items():
                yield name
                yield from names_in(value)
        case list():
            for value in config:
                yield from names_in(value)
        case _:
            pass
