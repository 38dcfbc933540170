"""What a network trains, on what and how: parts of the genesis, and a node's own worker settings.

Everything but `TrainerConfig` is the same on every node, because it is part of what the chain id
names. The table of tensors is computed here without torch, so that a verifier needs none either.
"""

import re
from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Annotated, Any, Literal, Self, assert_never

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from daa_dag.ids import BlobRoot, Digest, digest_of
from daa_node.tensors import TensorSpec, parameter_count_of
from daa_node.training.base_config import (
    BaseFolder,
    LowRank,
    ModelPlaces,
    Trainable,
    why_config_refused,
)
from daa_node.training.data_places import (
    DIGEST_PATTERN,
    NO_FILES,
    DataFile,
    DataPlaces,
    OwnFiles,
    TokenizerFile,
)
from daa_node.training.module_config import (
    BUILDER,
    PACKAGE,
    PATH_CHARS_MAX,
    Arguments,
    BuiltModule,
)
from daa_node.updates.config import UpdatesConfig
from daa_node.updates.grid import GRID_EXPONENT
from daa_node.updates.initial_weights import TensorInit

BYTE_VALUES = 256
DIGIT_CLASSES = 10
FileKind = Literal["text", "jsonl", "parquet", "tokens", "idx", "cifar10", "cifar100"]
EMBEDDED = ("shakespeare", "digits")  # kinds of data that come with the package
DOCUMENTS = ("text", "jsonl", "parquet")  # kinds of data that are texts
# Kinds of data that are pictures, and what a model of them must say.
PICTURES: Mapping[str, Mapping[str, int]] = {
    "digits": {"picture_channels": 1, "picture_side": 8, "classes": DIGIT_CLASSES},
    "idx": {"picture_channels": 1},
    "cifar10": {"picture_channels": 3, "picture_side": 32, "classes": 10},
    "cifar100": {"picture_channels": 3, "picture_side": 32, "classes": 100},
}
LANGUAGE_MODELS = ("byte_gpt", "hf_causal_lm")  # kinds of models that take tokens alone
KERNEL_PLACES = 9  # of a convolution, 3 x 3
RANKS_MAX = 16  # devices of one host
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

    kind: Kind = "byte_gpt"
    depth: int = Field(3, ge=1, le=128, description="blocks of the GPT, hidden layers of others")
    width: int = Field(96, ge=8, le=16_384, description="CNN: of its first layer; then it doubles")
    heads: int = Field(4, ge=1, le=256)
    context: int = Field(64, ge=2, le=65_536, description="tokens a window")
    vocabulary: int = Field(BYTE_VALUES, ge=BYTE_VALUES, le=1 << 20)
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


class DataConfig(BaseModel):
    """Which examples there are and which of them are held out.

    With `local` each host trains on what it alone has, and the files named here are held out.
    Every node opens files of its own disk. `digest` says what must be in them; where they lie,
    config.yaml may say otherwise than `path`. A relative path starts at the node's own directory.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FileKind | Literal["shakespeare", "digits", "local", "dataset"] = "shakespeare"
    format: FileKind | None = Field(None, description="for local: of what each host trains on")
    path: Path | None = Field(
        None,
        description="of the file; of pictures alone, for idx; package.module:build for dataset",
    )
    arguments: Arguments | None = Field(None, description="of that function, by name")
    digest: str | None = Field(
        None,
        pattern=DIGEST_PATTERN,
        description="blake3 of the file's content; a node whose copy differs refuses to start",
    )
    labels: DataFile | None = Field(None, description="of the pictures, for idx")
    tokenizer: TokenizerFile | None = Field(None, description="for text, jsonl and parquet")
    tokens_digest: str | None = Field(
        None, pattern=DIGEST_PATTERN, description="blake3 of the tokens' bytes, where it must agree"
    )
    column: str = Field("text", min_length=1, max_length=256, description="of texts, in parquet")
    token_type: Literal["uint16", "uint32"] | None = Field(
        None, description="of tokens without a header, little-endian"
    )
    reveal: bool = Field(
        False,
        description="for local: members see the batches of contributions, and so can check them",
    )
    heldout_every: int = Field(10, ge=2, le=10_000, description="every n-th block is held out")
    heldout_block: int | None = Field(
        None, ge=1, le=2**24, description="tokens a block, 8192 unless set; pictures, 1"
    )

    @property
    def builder(self) -> str | None:
        """The function that builds a data set of somebody's own."""
        return str(self.path) if self.kind == "dataset" else None

    def predictions_each(self, model: ModelConfig) -> int:
        """How many an example asks for: tokens of a window, 1 for a picture."""
        of_pictures = self.kind == "dataset" and model.kind in ("mlp", "cnn")
        return 1 if self.are_pictures or of_pictures else model.context

    @property
    def heldout_block_items(self) -> int:
        default = 1 if self.are_pictures else 8192
        return default if self.heldout_block is None else self.heldout_block

    @property
    def items_kind(self) -> str:
        """What kind of files they are, whoever has them."""
        return self.format or self.kind

    @property
    def are_pictures(self) -> bool:
        """Whether an example is a picture with a class, or else a window of tokens."""
        return self.items_kind in PICTURES

    @model_validator(mode="after")
    def _files_where_needed(self) -> Self:
        if (self.format is not None) != (self.kind == "local"):
            raise ValueError("data of kind local have a format, and no other kind has one")
        if self.kind == "dataset" and re.fullmatch(BUILDER, str(self.path)) is None:
            raise ValueError("data of kind dataset need a path like my_package.data:build")
        if self.arguments is not None and self.kind != "dataset":
            raise ValueError(f"data of kind {self.kind} take no arguments")
        if self.reveal and self.kind != "local":
            raise ValueError(f"data of kind {self.kind} are everybody's: reveal is for local alone")
        is_named = self.path is not None or self.digest is not None
        if self.kind not in EMBEDDED and not is_named:
            raise ValueError(f"data of kind {self.kind} needs a path, or a digest")
        if self.kind in EMBEDDED and is_named:
            raise ValueError(f"data of kind {self.kind} takes no path: it comes with the package")
        if (self.labels is not None) != (self.items_kind == "idx"):
            raise ValueError(
                "pictures of kind idx have a file of labels, and no other kind has one"
            )
        if self.tokenizer is not None and self.items_kind not in DOCUMENTS:
            raise ValueError(f"a tokenizer reads {', '.join(DOCUMENTS)}, and not {self.items_kind}")
        if self.token_type is not None and self.items_kind != "tokens":
            raise ValueError(f"token_type says how tokens lie in a file, and not {self.items_kind}")
        return self

    @model_serializer(mode="wrap")
    def _what_is_of_its_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        given: dict[str, Any] = handler(self)
        if self.kind != "dataset":
            del given["arguments"]
        if not self.reveal:
            del given["reveal"]
        return given

    def unnamed(self) -> list[str]:
        """What no digest names."""
        if self.kind == "dataset":
            return [] if self.digest is not None else ["its source"]
        return [name for name, file in self.files().items() if file.digest is None]

    def files(self) -> Mapping[str, DataFile]:
        """What it names, by the setting of config.yaml that says where it lies."""
        if self.kind in EMBEDDED or self.kind == "dataset":
            return {}
        first = DataFile(path=self.path, digest=self.digest)
        found = {"path": first, "labels": self.labels, "tokenizer": self.tokenizer}
        return {name: file for name, file in found.items() if file is not None}

    def pinned(self, digests: Mapping[str, str]) -> Self:
        """With these digests, by the names that `files` has."""
        return self._with("digest", digests)

    def placed(self, places: DataPlaces, root: Path) -> Self:
        """With paths as they are on one host; `root` is the node's own directory."""
        found = {name: getattr(places, name) or file.path for name, file in self.files().items()}
        return self._with("path", {name: root / path for name, path in found.items() if path})

    def unused(self, places: DataPlaces) -> tuple[str, ...]:
        """Settings of one host that say where files lie which these data do not have."""
        own = {"path", "labels"} if self.labels is not None else {"path"}
        used = {*self.files(), *(f"own.{name}" for name in own if self.kind == "local")}
        said = {name: getattr(places, name) for name in ("path", "labels", "tokenizer")}
        said |= {"own.path": places.own.path, "own.labels": places.own.labels}
        return tuple(name for name, path in said.items() if path is not None and name not in used)

    def anywhere(self) -> Self:
        """Without paths."""
        return self._with("path", dict.fromkeys(self.files()))

    def _with(self, field: str, values: Mapping[str, object]) -> Self:
        """Files by their names with another value of a field."""
        update: dict[str, object] = {}
        for name, value in values.items():
            if name == "path":
                update[field] = value
            else:
                update[name] = self.files()[name].model_copy(update={field: value})
        return self.model_copy(update=update)

    def why_unfit(self, model: ModelConfig) -> str | None:
        """Why no such model trains on these data; None if one does, or nobody can tell yet."""
        if self.kind == "dataset":
            return None
        pictures = PICTURES.get(self.items_kind)
        takes_both, takes_tokens = model.kind == "module", model.kind in LANGUAGE_MODELS
        if not takes_both and takes_tokens == self.are_pictures:
            return (
                f"a model of kind {model.kind} does not train on data of kind {self.items_kind}: "
                f"{' and '.join(LANGUAGE_MODELS)} take tokens, mlp and cnn take pictures "
                f"({', '.join(PICTURES)})"
            )
        for name, wanted in (pictures or {}).items():
            if getattr(model, name) != wanted:
                found = getattr(model, name)
                return f"model.{name} is {found}, and data of kind {self.items_kind} have {wanted}"
        return None


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
    own: OwnFiles = NO_FILES  # of this host, not of the genesis
    inner: InnerConfig = InnerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    updates: UpdatesConfig = UpdatesConfig()
    seed: int = Field(0, ge=0, lt=2**63)

    def digest(self) -> Digest:
        """Names the job in this node's own files; not an id that others see."""
        # a file may be moved
        parts = {"model": self.model.anywhere(), "data": self.data.anywhere(), "own": NO_FILES}
        job = self.model_copy(update=parts)
        return digest_of(job.model_dump_json().encode())


class TrainerConfig(BaseModel):
    """One node's worker process: what this machine has and how much of it may be used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: Device = Field(
        "auto", description="auto, cpu, cuda, mps, or cuda:1 for the second GPU of this machine"
    )
    devices: tuple[Device, ...] = Field(
        (),
        max_length=RANKS_MAX,
        description="several of this machine that take each step together, a process each; "
        "[cuda:0, cuda:1]",
    )
    threads: int = Field(1, ge=1, le=1024, description="CPU threads of each process")
    niceness: int = Field(5, ge=0, le=19)
    start_timeout_s: float = Field(120.0, gt=0, description="import torch, map the data")
    heartbeat_timeout_s: float = Field(8.0, gt=0, description="16 beats: a starved CPU is no hang")
    order_timeout_s: float = Field(900.0, gt=0, description="beyond an order's own stop_after_s")
    allow_modules: tuple[Annotated[str, Field(pattern=PACKAGE)], ...] = Field(
        (), description="packages whose code a job's model may run here; none unless named"
    )
    module_path: Path | None = Field(
        None, description="directory with these packages, where they are not installed"
    )

    @model_validator(mode="after")
    def _devices_are_alike(self) -> Self:
        if self.devices and self.device != "auto":
            raise ValueError("name the devices in trainer.devices alone, and no trainer.device")
        are_gpus = bool(self.devices) and all(name.startswith("cuda:") for name in self.devices)
        if are_gpus and len(set(self.devices)) < len(self.devices):
            raise ValueError("trainer.devices names a GPU twice; one process has each")
        if not are_gpus and set(self.devices) - {"cpu"}:
            raise ValueError("trainer.devices are GPUs by their numbers, [cuda:0, cuda:1], or cpu")
        return self
