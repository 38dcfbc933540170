"""From a DataConfig to examples: the one place that knows every kind of data set."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from daa_node.errors import UserError
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import NO_FILES, DataFile, OwnFiles
from daa_node.training.datasets import jsonl, parquet
from daa_node.training.datasets.built import build_examples
from daa_node.training.datasets.conversion import converted
from daa_node.training.datasets.digits import Digits
from daa_node.training.datasets.examples import (
    AnyArray,
    Examples,
    OwnExamples,
    Split,
    split,
    undivided,
)
from daa_node.training.datasets.files import (
    Content,
    Wanted,
    digest_of_array,
    is_packed,
    open_wanted,
)
from daa_node.training.datasets.pictures import Pictures, map_cifar, map_idx
from daa_node.training.datasets.shakespeare import map_shakespeare
from daa_node.training.datasets.text import map_text, passages
from daa_node.training.datasets.tokenizer import ByteEncoder, Encoder, FileEncoder, encoded
from daa_node.training.datasets.tokens import (
    TokenWindows,
    check_vocabulary,
    map_bare_tokens,
    map_tokens,
)
from daa_node.training.model_config import ModelConfig
from daa_node.training.module_source import NO_MODULES, ModuleAccess

EMBEDDED = Path("the embedded corpus")
NOTHING_KEPT = Path("no cache")  # where nothing is unpacked or converted


@dataclass(frozen=True, slots=True)
class _Part:
    """Which files of the job are opened, and what of them."""

    settings: str  # of config.yaml, where their places are said
    is_whole: bool = False  # all of it is on either side: another file has the other side

    def wanted(self, setting: str, file: DataFile) -> Wanted:
        return Wanted(file.path, file.digest, f"{self.settings}.{setting}")

    def split(self, data: DataConfig, item_count: int, span: int, what: Path) -> Split:
        if self.is_whole:
            return undivided(item_count, span, str(what))
        block, every = data.heldout_block_items, data.heldout_every
        return split(item_count, block, every, span, str(what))


def open_examples(
    data: DataConfig,
    model: ModelConfig,
    cache_dir: Path,
    own: OwnFiles = NO_FILES,
    modules: ModuleAccess = NO_MODULES,
) -> Examples:
    """Maps the data and numbers its examples. Raises UserError naming the file and the remedy.

    `own` is what this host trains on where the job leaves that to each host; `modules` says which
    code may run here.
    """
    if data.kind == "dataset":
        assert data.digest is not None, "a genesis has it"
        return build_examples(data, model, modules, data.digest)
    why = data.why_unfit(model)
    if why is not None:
        raise UserError(why)
    if data.kind != "local":
        return _open(data, model, cache_dir, _Part("data"))
    if own.path is None:
        raise UserError(
            f"this network trains on data of each host's own, in the format {data.format}: say in "
            "config.yaml, data.own.path, where yours lie"
        )
    heldout = data.model_copy(update={"kind": data.format, "format": None})
    labels = None if data.labels is None else DataFile(path=own.labels)
    update = {"path": own.path, "digest": None, "labels": labels, "tokens_digest": None}
    return OwnExamples(
        _open(heldout.model_copy(update=update), model, cache_dir, _Part("data.own", True)),
        _open(heldout, model, cache_dir, _Part("data", True)),
    )


def _open(data: DataConfig, model: ModelConfig, cache_dir: Path, part: _Part) -> Examples:
    match data.kind:
        case "digits":
            return Digits(data.heldout_every, data.heldout_block_items)
        case "shakespeare":
            return _windows(data, model, map_shakespeare(cache_dir), EMBEDDED, part)
        case "idx" | "cifar10" | "cifar100":
            return _pictures(data, model, cache_dir, part)
        case "text" | "jsonl" | "parquet" | "tokens":
            content = open_wanted(part.wanted("path", data.files()["path"]), cache_dir)
            tokens = _tokens(data, model, content, cache_dir)
            _check_tokens(tokens, data.tokens_digest, content.source)
            return _windows(data, model, tokens, content.source, part)
        case "local" | "dataset":
            raise AssertionError("opened as what they are")
        case _:
            assert_never(data.kind)


def look_over(data: DataConfig, model: ModelConfig) -> None:
    """Raises UserError, as `open_examples` will on every host, for what can be told at once.

    Nothing is kept, and no library is asked: of documents it is the first one, and nothing of
    Parquet or of what gzip has packed. `data` has the paths and digests of its files.
    """
    part = _Part("data", is_whole=data.kind == "local")
    if data.kind == "local":
        data = data.model_copy(update={"kind": data.format, "format": None})
    files = [file.path for file in data.files().values() if file.path is not None]
    if not files or any(is_packed(path) for path in files):
        return
    content = Content(files[0], data.digest or "", files[0])
    if data.are_pictures:
        _pictures(data, model, NOTHING_KEPT, part)
    elif data.kind == "jsonl" or data.tokenizer is not None:
        if data.kind != "parquet":
            next(_made(data, content, ByteEncoder()), None)
    elif data.kind in ("text", "tokens"):
        _windows(data, model, _tokens(data, model, content, NOTHING_KEPT), content.source, part)


def _pictures(data: DataConfig, model: ModelConfig, cache_dir: Path, part: _Part) -> Pictures:
    content = open_wanted(part.wanted("path", data.files()["path"]), cache_dir)
    where = content.source
    if data.kind == "idx":
        assert data.labels is not None, "DataConfig refuses idx without labels"
        labels = open_wanted(part.wanted("labels", data.labels), cache_dir)
        found, where = map_idx(content, labels, model.picture_side), labels.source
    else:
        found = map_cifar(content, label_bytes=1 if data.kind == "cifar10" else 2)
    found.check_classes(model.classes, where)
    return Pictures(found, part.split(data, len(found.labels_N), 1, content.source))


def _tokens(data: DataConfig, model: ModelConfig, content: Content, cache_dir: Path) -> AnyArray:
    if data.kind == "tokens":
        if data.token_type is not None:
            return map_bare_tokens(content.path, data.token_type, content.source)
        return map_tokens(content.path, content.source)
    if data.kind == "text" and data.tokenizer is None:
        return map_text(content.path, content.source)
    encoder: Encoder = ByteEncoder()
    if data.tokenizer is not None:
        file = data.tokenizer
        found = open_wanted(Wanted(file.path, file.digest, "data.tokenizer"), cache_dir)
        encoder = FileEncoder(found, model.vocabulary, file.document_end)
    made_from = [data.kind, content.digest, data.column, *encoder.made_from]
    return converted(
        made_from,
        cache_dir,
        encoder.token_bytes,
        lambda: _some(_made(data, content, encoder), content.source),
    )


def _some(pieces: Iterator[AnyArray], where: Path) -> Iterator[AnyArray]:
    """The same; raises UserError if there is nothing in them."""
    token_count = 0
    for piece in pieces:
        token_count += len(piece)
        yield piece
    if token_count == 0:
        raise UserError(f"{where}:1: no tokens come of it; there is nothing to train on")


def _made(data: DataConfig, content: Content, encoder: Encoder) -> Iterator[AnyArray]:
    match data.kind:
        case "text":  # one document
            return (encoder.encode(passage) for passage in passages(content))
        case "jsonl":
            return encoded(jsonl.documents(content, data.column), encoder)
        case kind:
            assert kind == "parquet", f"{kind} holds no documents"
            return encoded(parquet.documents(content, data.column), encoder)


def _check_tokens(tokens: AnyArray, wanted: str | None, where: Path) -> None:
    if wanted is None:
        return
    found = digest_of_array(tokens)
    if found != wanted:
        raise UserError(
            f"{where}:1: the blake3 of its tokens is {found}, the genesis names {wanted} "
            "(data.tokens_digest): install the release of the tokenizers library that the others "
            "have"
        )


def _windows(
    data: DataConfig, model: ModelConfig, tokens: AnyArray, where: Path, part: _Part
) -> TokenWindows:
    check_vocabulary(tokens, model.vocabulary, where)
    parts = part.split(data, len(tokens), model.context + 1, where)
    return TokenWindows(tokens, model.context, parts)
