"""What a network trains: the model as the genesis has it, and the table of its tensors.

It is computed here without torch, so that a verifier needs none either.
"""

from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any, Literal, Self, assert_never

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from daa_dag.ids import BlobRoot
from daa_node.tensors import TensorSpec, parameter_count_of
from daa_node.training.base_config import (
    BaseFolder,
    LowRank,
    ModelPlaces,
    Trainable,
    why_config_refused,
)
from daa_node.training.module_config import (
    BUILDER,
    PATH_CHARS_MAX,
    Arguments,
    BuiltModule,
)
from daa_node.updates.grid import GRID_EXPONENT
from daa_node.updates.initial_weights import TensorInit

BYTE_VALUES = 256
DIGIT_CLASSES = 10
LANGUAGE_MODELS = ("byte_gpt", "hf_causal_lm")  # kinds of models that take tokens alone
KERNEL_PLACES = 9  # of a convolution, 3 x 3
GRID_BITS = -GRID_EXPONENT  # standard deviations of initial weights count grid units
# A round's boundary, four vectors of so many fp32, is half of the largest blob.
PARAMETERS_MAX = 2**30


def _init(name: str, shape: tuple[int, ...], std: int) -> TensorInit:
    return TensorInit(TensorSpec(name, shape), std)


def _half_over_root(fan_in: int) -> int:
    """0.5 / sqrt(fan_in) in grid units, exactly rounded down."""
    return isqrt((1 << (2 * GRID_BITS)) // (4 * fan_in))


def _he(fan_in: int) -> int:
    """sqrt(2 / fan_in) in grid units, exactly rounded down."""
    return isqrt((2 << (2 * GRID_BITS)) // fan_in)


# Of ModelConfig: each kind has its own, and the genesis names no others.
_OF_BUILT_IN = frozenset({"depth", "width", "heads"})
_OF_MODULE = frozenset({"path", "arguments", "built", "base", "trainable"})
_OF_CAUSAL_LM = frozenset({"config", "built", "base", "trainable"})
_OF_SOME = _OF_BUILT_IN | _OF_MODULE | _OF_CAUSAL_LM
_UNLESS_GIVEN = frozenset({"weights_root", "config", "base", "trainable"})
Kind = Literal["byte_gpt", "mlp", "cnn", "module", "hf_causal_lm"]


def _of_kind(kind: Kind) -> frozenset[str]:
    match kind:
        case "module":
            return _OF_MODULE
        case "hf_causal_lm":
            return _OF_CAUSAL_LM
        case _:
            return _OF_BUILT_IN


class ModelConfig(BaseModel):
    """The shape of the model, or where the code is that builds it.

    `heads` is the byte GPT's alone, `context` and `vocabulary` are for what reads tokens, and for
    what reads pictures, which are square, what begins with `picture`, and `classes`. `path` and
    `arguments` are those of a module, `config` of a model of transformers; both of them may have a
    `base` and what of it is `trainable`. `genesis create` writes `built` and `weights_root`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind = Field("byte_gpt", description="of the package's own, or of somebody's code")
    depth: int = Field(3, ge=1, le=128, description="blocks of the GPT, hidden layers of others")
    width: int = Field(96, ge=8, le=16_384, description="CNN: of its first layer; then it doubles")
    heads: int = Field(4, ge=1, le=256, description="of attention; width is a multiple of it")
    context: int = Field(64, ge=2, le=65_536, description="tokens a window")
    vocabulary: int = Field(BYTE_VALUES, ge=BYTE_VALUES, le=1 << 20, description="kinds of tokens")
    picture_side: int = Field(8, ge=2, le=1024, description="pixels; MNIST has 28, CIFAR 32")
    picture_channels: int = Field(1, ge=1, le=4, description="1 for grey, 3 for colours")
    classes: int = Field(10, ge=2, le=65_536, description="of pictures")
    path: str | None = Field(
        None, pattern=BUILDER, max_length=PATH_CHARS_MAX, description="package.module:build"
    )
    arguments: Arguments | None = Field(None, description="of that function, by name")
    config: Arguments | None = Field(None, description="as in a config.json, instead of a base")
    base: BaseFolder | None = None
    trainable: Trainable | None = Field(None, description="names of tensors, or lora; all unless")
    built: BuiltModule | None = None
    weights_root: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="of first weights from a file"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        others = _OF_SOME - _of_kind(self.kind)
        given = {name for name in others & self.model_fields_set if getattr(self, name) is not None}
        if given:
            said = " and ".join(sorted(given))
            remedy = "; give it in arguments" if self.kind == "module" else ""
            raise ValueError(f"a model of kind {self.kind} takes no {said}{remedy}")
        if self.kind == "module" and self.path is None:
            raise ValueError("a model of kind module needs a path like my_package.model:build")
        if self.kind == "module" and self.built is not None and self.built.source_digest is None:
            raise ValueError("built: source_digest is required of a model of kind module")
        if self.built is not None and self.base is not None and self.base.files is None:
            raise ValueError("base: its files are required by digest once it is built")
        if self.kind == "hf_causal_lm" and (why := self._why_no_causal_lm()) is not None:
            raise ValueError(why)
        if self.kind == "byte_gpt" and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.kind == "cnn" and self.depth >= self.picture_side.bit_length():
            raise ValueError(
                f"depth {self.depth}: each layer of a CNN halves the picture's side of "
                f"{self.picture_side}; {self.picture_side.bit_length() - 1} layers at most"
            )
        if self.is_known and self.parameter_count() > PARAMETERS_MAX:
            raise ValueError(f"{self.parameter_count()} parameters, at most {PARAMETERS_MAX}")
        return self

    def _why_no_causal_lm(self) -> str | None:
        if (self.config is None) == (self.base is None):
            return "a model of kind hf_causal_lm needs a base, or a config: one of them"
        if self.base is None and self.trainable is not None:
            return "trainable needs a base: what is not trained comes from there"
        return None if self.config is None else why_config_refused(dict(self.config))

    @model_serializer(mode="wrap")
    def _what_is_of_its_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        others = _OF_SOME - _of_kind(self.kind)
        others |= {name for name in _UNLESS_GIVEN if getattr(self, name) is None}
        return {name: value for name, value in handler(self).items() if name not in others}

    @property
    def is_known(self) -> bool:
        """Whether its tensors are: of a module they are not before the genesis is made."""
        return self.is_canonical or self.built is not None

    @property
    def first_root(self) -> BlobRoot | None:
        """Of first weights that came from a file; None if they follow from seed and tensors."""
        root = self.weights_root
        if root is None and self.built is not None:
            root = self.built.base_root
        return None if root is None else BlobRoot(bytes.fromhex(root))

    @property
    def begins_at_base(self) -> bool:
        """Whether the first weights are the base's own: whoever has the base has them."""
        return self.weights_root is None and self.first_root is not None

    @property
    def adapters(self) -> LowRank | None:
        """What is trained beside a frozen base, if that is all."""
        return self.trainable if isinstance(self.trainable, LowRank) else None

    @property
    def label(self) -> str:
        """What errors call it."""
        return self.path or self.kind

    def placed(self, places: ModelPlaces, root: Path) -> Self:
        """With the base's path as it is on one host; `root` is the node's own directory."""
        path = places.base or (self.base and self.base.path)
        return self._with_base(path=path and root / path)

    def pinned(self, files: Mapping[str, str]) -> Self:
        """With the digests of its base's files."""
        return self._with_base(files=dict(files))

    def anywhere(self) -> Self:
        """Without the base's path."""
        return self._with_base(path=None)

    def _with_base(self, **values: object) -> Self:
        if self.base is None:
            return self
        return self.model_copy(update={"base": self.base.model_copy(update=values)})

    @property
    def is_canonical(self) -> bool:
        """Whether the canonical kernels take its steps, on every machine to the same bits."""
        return self.kind not in ("module", "hf_causal_lm")

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The model's tensors in the order in which they lie in the flat vector."""
        return tuple(init.spec for init in self.inits())

    def inits(self) -> tuple[TensorInit, ...]:
        """How each tensor starts, in integers, so that every machine starts from the same bits."""
        match self.kind:
            case "byte_gpt":
                return tuple(self._gpt_inits())
            case "mlp":
                return tuple(self._mlp_inits())
            case "cnn":
                return tuple(self._cnn_inits())
            case "module" | "hf_causal_lm":
                assert self.built is not None, "a genesis has it"
                return tuple(tensor.init for tensor in self.built.tensors)
            case _:
                assert_never(self.kind)

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
        widths = [self.width] * self.depth
        features = self.picture_channels * self.picture_side**2
        return self._hidden_inits(features, widths, kernel=1, features_per_width=1)

    def _cnn_inits(self) -> list[TensorInit]:
        widths = [self.width << layer for layer in range(self.depth)]
        side = -(-self.picture_side >> self.depth)
        return self._hidden_inits(self.picture_channels, widths, KERNEL_PLACES, side * side)

    def _hidden_inits(
        self, fan_in: int, widths: list[int], kernel: int, features_per_width: int
    ) -> list[TensorInit]:
        inits = []
        for layer, width in enumerate(widths):
            inits += [
                # He et al. 2015: sqrt(2 / fan_in) keeps the scale through a ReLU.
                _init(f"layers.{layer}.weight", (kernel * fan_in, width), _he(kernel * fan_in)),
                _init(f"layers.{layer}.bias", (width,), 0),
            ]
            fan_in = width
        return [
            *inits,
            _init("head.weight", (fan_in * features_per_width, self.classes), 0),
            _init("head.bias", (self.classes,), 0),
        ]
