"""Documents of Parquet and jsonl, and text, made into tokens by a tokenizer's file."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daa_node.errors import UserError
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import TokenizerFile
from daa_node.training.datasets import parquet
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.files import Wanted, digest_of_content, open_wanted
from daa_node.training.datasets.tokens import HEADER, map_tokens
from daa_node.training.model_config import ModelConfig

MODEL = ModelConfig(width=16, depth=1, heads=2, context=8, vocabulary=400)
LINES = [f"All the world's a stage, line {number} of it.\n" for number in range(400)]

WORDS: dict[str, Any] = {"type": "WordLevel", "vocab": {"stage": 0}, "unk_token": "none"}


@pytest.fixture(scope="module")
def tokenizer_json() -> str:
    """Byte pairs learned from the lines, all bytes, and a token that ends documents."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<end>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(LINES, trainer)
    return str(made.to_str())


def write_text(path: Path) -> None:
    path.write_text("".join(LINES))


def write_jsonl(path: Path) -> None:
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES))


def write_parquet(path: Path, column: str = "text", texts: Any = LINES) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"id": list(range(len(texts))), column: texts}), path)


WRITERS: dict[str, Callable[[Path], None]] = {
    "text": write_text,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
}


def job(directory: Path, kind: str, tokenizer_json: str | None, **changes: Any) -> DataConfig:
    """Data of all the lines, read with the tokenizer if there is one."""
    WRITERS[kind](directory / kind)
    fields: dict[str, Any] = {"kind": kind, "path": directory / kind, "heldout_block": 128}
    if tokenizer_json is not None:
        path = directory / "tokenizer.json"
        path.write_text(tokenizer_json)
        fields["tokenizer"] = {"path": path, "digest": digest_of_content(path)}
    return DataConfig.model_validate(fields | changes)


def cached(directory: Path) -> list[int]:
    (file,) = (directory / "cache").glob("*.tokens")
    return [int(token) for token in map_tokens(file)]


@pytest.mark.parametrize("kind", ["text", "jsonl", "parquet"])
def test_tokens_are_those_of_the_library_and_are_made_once(
    tmp_path: Path, tokenizer_json: str, kind: str
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    data = job(tmp_path, kind, tokenizer_json)
    assert data.tokenizer is not None
    if kind != "text":
        ended = data.tokenizer.model_copy(update={"document_end": "<end>"})
        data = data.model_copy(update={"tokenizer": ended})
    open_examples(data, MODEL, tmp_path / "cache")
    library = tokenizers.Tokenizer.from_str(tokenizer_json)
    if kind == "text":
        expected = library.encode("".join(LINES)).ids
    else:
        end = library.token_to_id("<end>")
        expected = [token for line in LINES for token in [*library.encode(line).ids, end]]
    assert cached(tmp_path) == expected
    (file,) = (tmp_path / "cache").glob("[!.]*")
    stamp_ns = file.stat().st_mtime_ns
    open_examples(data, MODEL, tmp_path / "cache")
    assert [(file, stamp_ns)] == [
        (f, f.stat().st_mtime_ns) for f in (tmp_path / "cache").glob("[!.]*")
    ]


def test_parquet_without_a_tokenizer_has_the_tokens_of_jsonl(tmp_path: Path) -> None:
    batches = []
    for kind in ("jsonl", "parquet"):
        examples = open_examples(job(tmp_path, kind, None), MODEL, tmp_path / "cache")
        batches.append(examples.train(np.arange(0, examples.train_count, 97)))
    assert (batches[0].inputs == batches[1].inputs).all()


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(
    tmp_path: Path, tokenizer_json: str
) -> None:
    data, small = (
        job(tmp_path, "text", tokenizer_json),
        MODEL.model_copy(update={"vocabulary": 299}),
    )
    with pytest.raises(UserError, match=r"json:1: it needs room for 300 tokens, .* only 299"):
        open_examples(data, small, tmp_path / "cache")


def test_a_tokenizer_whose_ids_have_gaps_is_refused_by_the_largest(
    tmp_path: Path, tokenizer_json: str
) -> None:
    """In two bytes 65,540 would be 4, and nobody would see it."""
    made = json.loads(tokenizer_json)
    made["added_tokens"] = []
    made["model"] = {
        "type": "WordLevel",
        "vocab": {"stage": 65_540, "none": 1},
        "unk_token": "none",
    }
    with pytest.raises(UserError, match=r"json:1: it needs room for 65541 tokens, .* only 400"):
        open_examples(job(tmp_path, "text", json.dumps(made)), MODEL, tmp_path / "cache")


def test_what_the_tokens_follow_from_is_what_they_are_kept_by(
    tmp_path: Path, tokenizer_json: str
) -> None:
    data, cache = job(tmp_path, "jsonl", tokenizer_json), tmp_path / "cache"
    assert data.tokenizer is not None
    open_examples(data, MODEL, cache)
    ended = data.tokenizer.model_copy(update={"document_end": "<end>"})
    open_examples(data.model_copy(update={"tokenizer": ended}), MODEL, cache)
    open_examples(data, MODEL.model_copy(update={"vocabulary": 70_000}), cache)
    sizes = sorted(file.stat().st_size - HEADER.size for file in cache.glob("*.tokens"))
    count = sizes[0] // 2
    assert sizes == sorted([2 * count, 2 * (count + len(LINES)), 4 * count])


def test_tokens_of_another_content_or_kind_are_others(tmp_path: Path, tokenizer_json: str) -> None:
    cache = tmp_path / "cache"
    data = job(tmp_path, "jsonl", tokenizer_json)
    as_text = data.model_copy(update={"kind": "text"})  # of the very same bytes
    open_examples(data, MODEL, cache)
    open_examples(as_text, MODEL, cache)
    (tmp_path / "jsonl").write_text(json.dumps({"text": "another line " * 200}) + "\n")
    open_examples(data, MODEL, cache)
    kept = {map_tokens(file).tobytes() for file in cache.glob("*.tokens")}
    assert len(kept) == 3


def test_documents_that_come_to_no_tokens_are_refused_and_not_kept(
    tmp_path: Path, tokenizer_json: str
) -> None:
    data = job(tmp_path, "jsonl", tokenizer_json)
    (tmp_path / "jsonl").write_text('{"text": ""}\n' * 9)
    with pytest.raises(UserError, match=r"jsonl:1: no tokens come of it"):
        open_examples(data, MODEL, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.tokens"))


def test_another_tokenizer_than_the_genesis_names_is_refused(
    tmp_path: Path, tokenizer_json: str
) -> None:
    data = job(tmp_path, "text", tokenizer_json)
    assert data.tokenizer is not None
    (tmp_path / "tokenizer.json").write_text(tokenizer_json.replace("<end>", "<END>"))
    with pytest.raises(UserError, match=f"names {data.tokenizer.digest}; .* data.tokenizer"):
        open_examples(data, MODEL, tmp_path / "cache")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda made: {"model": {}}, "no tokenizer file"),
        (
            lambda made: {**made, "model": {**made["model"], "dropout": 0.1}},
            "drops merges by chance",
        ),
        (
            lambda made: {**made, "added_tokens": [], "model": WORDS, "pre_tokenizer": None},
            "cannot encode",
        ),
    ],
)
def test_a_tokenizer_that_cannot_serve_is_refused(
    tmp_path: Path,
    tokenizer_json: str,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    words: str,
) -> None:
    broken = json.dumps(change(json.loads(tokenizer_json)))
    with pytest.raises(UserError, match=f"tokenizer.json:1: .*{words}"):
        open_examples(job(tmp_path, "text", broken), MODEL, tmp_path / "cache")


def test_an_end_of_documents_that_is_no_token_is_refused(
    tmp_path: Path, tokenizer_json: str
) -> None:
    data = job(tmp_path, "jsonl", tokenizer_json)
    update = {"tokenizer": TokenizerFile(path=tmp_path / "tokenizer.json", document_end="<fin>")}
    with pytest.raises(UserError, match="has no token '<fin>'"):
        open_examples(data.model_copy(update=update), MODEL, tmp_path / "cache")


def test_tokens_of_another_digest_are_refused(tmp_path: Path, tokenizer_json: str) -> None:
    data = job(tmp_path, "text", tokenizer_json, tokens_digest="ab" * 32)
    with pytest.raises(UserError, match=f"blake3 of its tokens is .* names {'ab' * 32}") as refused:
        open_examples(data, MODEL, tmp_path / "cache")
    found = str(refused.value).split("tokens is ")[1][:64]
    open_examples(data.model_copy(update={"tokens_digest": found}), MODEL, tmp_path / "cache")


@pytest.mark.parametrize(
    ("column", "texts", "words"),
    [
        ("body", LINES, "no column 'text'; there is id, body: set data.column"),
        ("text", [1, 2], "column 'text' holds int64, not texts"),
        ("text", ["fine", None], "row 2: no text"),
        ("text", [], "holds null, not texts"),
    ],
)
def test_a_parquet_file_that_does_not_fit_is_refused(
    tmp_path: Path, column: str, texts: list[Any], words: str
) -> None:
    write_parquet(tmp_path / "t", column, texts)
    with pytest.raises(UserError, match=words):
        open_examples(DataConfig(kind="parquet", path=tmp_path / "t"), MODEL, tmp_path / "cache")


def test_documents_of_parquet_come_in_batches_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of either length of offsets."""
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.setattr(parquet, "BATCH_ROWS", 7)
    for kind in (pyarrow.string(), pyarrow.large_string()):
        cache = tmp_path / f"{kind}"
        write_parquet(tmp_path / "t", texts=pyarrow.array(LINES, kind))
        path = open_wanted(Wanted(tmp_path / "t", None, "data.path"), cache)
        assert list(parquet.documents(path, "text")) == LINES
    texts = pyarrow.array([*LINES[:9], None])
    write_parquet(tmp_path / "t", texts=texts)
    with pytest.raises(UserError, match="t:1: row 10: no text"):
        list(parquet.documents(path, "text"))
    write_parquet(tmp_path / "t", texts=texts[:0])
    with pytest.raises(UserError, match="t:1: no rows"):
        list(parquet.documents(path, "text"))


def test_a_text_of_parquet_longer_than_one_may_be_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "t", texts=["a" * 20, "b" * 21])
    data = DataConfig(kind="parquet", path=tmp_path / "t", heldout_every=2, heldout_block=20)
    monkeypatch.setattr(parquet, "LINE_BYTES_MAX", 20)
    with pytest.raises(UserError, match="t:1: row 2: longer than 20 characters"):
        open_examples(data, MODEL, tmp_path / "cache")
    monkeypatch.setattr(parquet, "LINE_BYTES_MAX", 21)
    open_examples(data, MODEL, tmp_path / "cache")


def test_a_parquet_file_with_a_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    texts = pyarrow.array([b"fine", b"Gr\xfc\xdfe"], pyarrow.binary()).view(pyarrow.string())
    write_parquet(tmp_path / "t", "text", texts)
    with pytest.raises(UserError, match="t:1: a text after row 0 is not UTF-8"):
        open_examples(DataConfig(kind="parquet", path=tmp_path / "t"), MODEL, tmp_path / "cache")


def test_a_column_of_parquet_is_told_from_others_with_its_name(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    nested, texts = pyarrow.array([{"b": "inner"}]), pyarrow.array(["outer" * 99])
    parquet.write_table(pyarrow.Table.from_arrays([nested, texts], ["a", "a.b"]), tmp_path / "dots")
    data = DataConfig(kind="parquet", path=tmp_path / "dots", column="a.b", heldout_block=20)
    open_examples(data, MODEL, tmp_path / "cache")
    assert bytes(cached(tmp_path)) == b"outer" * 99 + b"\0"
    parquet.write_table(pyarrow.Table.from_arrays([texts, texts], ["t", "t"]), tmp_path / "twice")
    twice = data.model_copy(update={"path": tmp_path / "twice", "column": "t"})
    with pytest.raises(UserError, match="twice:1: several columns are called 't'"):
        open_examples(twice, MODEL, tmp_path / "cache")


def test_another_file_than_parquet_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write_text(tmp_path / "t")
    with pytest.raises(UserError, match="t:1: no Parquet file that can be read"):
        open_examples(DataConfig(kind="parquet", path=tmp_path / "t"), MODEL, tmp_path / "cache")


def test_a_host_without_the_extras_is_told_what_to_install(
    tmp_path: Path, tokenizer_json: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = job(tmp_path, "parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if there were none
    with pytest.raises(UserError, match=r"need pyarrow.*pip install 'daa-compute\[parquet\]'"):
        open_examples(data, MODEL, tmp_path / "cache")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match=r"need the tokenizers library.*daa-compute\[tokenizers\]"):
        open_examples(job(tmp_path, "text", tokenizer_json), MODEL, tmp_path / "cache")


def test_a_tokenizer_belongs_to_texts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reads text, jsonl, parquet, and not tokens"):
        DataConfig(kind="tokens", path=tmp_path, tokenizer=TokenizerFile(path=tmp_path))
