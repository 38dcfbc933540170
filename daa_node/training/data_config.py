"""What a network trains on, as the genesis has it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from daa_node.training.data_places import (
    DIGEST_PATTERN,
    DataFile,
    DataPlaces,
    TokenizerFile,
)
from daa_node.training.model_config import DIGIT_CLASSES, LANGUAGE_MODELS, ModelConfig
from daa_node.training.module_config import (
    BUILDER,
    Arguments,
)

FileKind = Literal["text", "jsonl", "parquet", "tokens", "idx", "cifar10", "cifar100"]
EMBEDDED = ("shakespeare", "digits")  # kinds of data that come with the package
DOCUMENTS = ("text", "jsonl", "parquet")  # kinds of data that are texts
COLUMNS = ("jsonl", "parquet")  # whose documents have a name in the file
# Kinds of data that are pictures, and what a model of them must say.
PICTURES: Mapping[str, Mapping[str, int]] = {
    "digits": {"picture_channels": 1, "picture_side": 8, "classes": DIGIT_CLASSES},
    "idx": {"picture_channels": 1},
    "cifar10": {"picture_channels": 3, "picture_side": 32, "classes": 10},
    "cifar100": {"picture_channels": 3, "picture_side": 32, "classes": 100},
}


class DataConfig(BaseModel):
    """Which examples there are and which of them are held out.

    With `local` each host trains on what it alone has, and the files named here are held out.
    Every node opens files of its own disk. `digest` says what must be in them; where they lie,
    config.yaml may say otherwise than `path`. A relative path starts at the node's own directory.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FileKind | Literal["shakespeare", "digits", "local", "dataset"] = Field(
        "shakespeare", description="of files; local: each host's own; dataset: somebody's code"
    )
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
    column: str = Field(
        "text", min_length=1, max_length=256, description="of texts, in parquet; in jsonl, a field"
    )
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
        if self.column != "text" and self.items_kind not in COLUMNS:
            raise ValueError(f"column is for {' and '.join(COLUMNS)}, and not {self.items_kind}")
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
