"""Readers of token files, text, jsonl and the vendored data: what they map and what they refuse."""

import gzip
import hashlib
import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from daa_node.errors import UserError
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import OwnFiles
from daa_node.training.datasets import digits, jsonl, shakespeare, text, tokens
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.conversion import converted
from daa_node.training.datasets.digits import Digits
from daa_node.training.datasets.examples import AnyArray
from daa_node.training.datasets.files import LOCK, READ_BYTES, Content, Wanted, open_wanted
from daa_node.training.datasets.text import map_text, passages
from daa_node.training.datasets.tokenizer import ByteEncoder, encoded
from daa_node.training.datasets.tokens import (
    HEADER,
    MAGIC,
    check_vocabulary,
    map_bare_tokens,
    map_tokens,
    write_tokens,
)
from daa_node.training.model_config import ModelConfig

SMALL = ModelConfig(width=16, depth=1, heads=2, context=8)


def content_of(path: Path) -> Content:
    return open_wanted(Wanted(path, None, "data.path"), path.parent / "cache")


def jsonl_tokens(path: Path, cache: Path) -> AnyArray:
    content = content_of(path)
    made_from = ["jsonl", content.digest]
    return converted(
        made_from, cache, 1, lambda: encoded(jsonl.documents(content, "text"), ByteEncoder())
    )


@pytest.mark.parametrize(("token_bytes", "top"), [(1, 255), (2, 65_535)])
def test_a_token_file_is_mapped_as_it_was_written(
    tmp_path: Path, token_bytes: int, top: int
) -> None:
    tokens = np.random.default_rng(5).integers(0, top + 1, 5000)
    path = tmp_path / "tokens"
    assert write_tokens(path, [tokens[:1234], tokens[1234:]], token_bytes) == 5000
    mapped = map_tokens(path)
    assert isinstance(mapped, np.memmap)
    assert (mapped == tokens).all()
    assert path.stat().st_size == HEADER.size + 5000 * token_bytes


def test_of_a_token_file_that_is_given_up_half_written_nothing_is_left(tmp_path: Path) -> None:
    def pieces() -> Iterator[AnyArray]:
        yield np.arange(9)
        raise UserError("no more")

    write_tokens(tmp_path / "tokens", [np.arange(3)], 2)
    with pytest.raises(UserError, match="no more"):
        write_tokens(tmp_path / "tokens", pieces(), 2)
    assert list(tmp_path.iterdir()) == [tmp_path / "tokens"]
    assert map_tokens(tmp_path / "tokens").tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"To be, or not to be, that is the question: " * 3, "use kind: text"),
        (b"", "not a token file"),
        (HEADER.pack(MAGIC, 3, 0, 0), "3 bytes a token; 1, 2 and 4 are known"),
        (HEADER.pack(MAGIC, 1, 0, 9) + b"12345678", "promises 9 tokens"),
        (HEADER.pack(MAGIC, 1, 0, 9) + b"1234567890", "promises 9 tokens"),
        (HEADER.pack(MAGIC, 1, 0, 0), "promises 0 tokens"),
        (HEADER.pack(MAGIC, 2, 0, 2**63), "promises"),
    ],
)
def test_a_file_that_is_no_token_file_is_refused_by_name(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(content)
    with pytest.raises(UserError, match=words) as refused:
        map_tokens(path)
    assert f"{path}:1:" in str(refused.value)


def test_text_is_its_own_bytes(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("Grüße\nan alle\n")
    assert map_text(path).tobytes() == path.read_bytes()


def test_jsonl_documents_are_joined_by_a_zero_byte_and_cached(tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text('{"text": "one"}\n\n{"text": "zwölf", "id": 7}\n')
    tokens = jsonl_tokens(path, tmp_path / "cache")
    assert tokens.tobytes() == "one\0zwölf\0".encode()
    (cached,) = (tmp_path / "cache").glob("[!.]*")
    stamp_ns = cached.stat().st_mtime_ns
    assert (jsonl_tokens(path, tmp_path / "cache") == tokens).all()
    assert cached.stat().st_mtime_ns == stamp_ns
    path.write_text('{"text": "other"}\n')
    assert jsonl_tokens(path, tmp_path / "cache").tobytes() == b"other\0"


def test_the_field_of_jsonl_is_the_one_that_the_job_names(tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    lines = [{"text": "no", "content": f"a document {at:03}"} for at in range(90)]
    path.write_text("\n".join(map(json.dumps, lines)))
    data = DataConfig(kind="jsonl", path=path, column="content", heldout_block=20)
    batch = open_examples(data, SMALL, tmp_path / "cache").train(np.arange(64))
    assert b"document" in batch.inputs.astype(np.uint8).tobytes()
    missing = data.model_copy(update={"column": "body"})
    with pytest.raises(UserError, match=r':1: no "body" field; .* \{"body": .* set data\.column'):
        open_examples(missing, SMALL, tmp_path / "cache")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{'text': 1}", ":2:2: not JSON"),
        ('{"txt": "a"}', ':2: no "text" field'),
        ('{"text": 5}', ':2: "text" is a number;'),
        ('{"text": null}', ':2: "text" is null;'),
        ('{"text": true}', ':2: "text" is true;'),
        ("[1, 2]", ":2: the line is a list;"),
        ('"text"', ":2: the line is a text;"),
        ('{"text": "no end', ":2:17: not JSON: Invalid control character;"),
        ("[" * 100_000, ":2:"),
        ('{"text": "\\ud800"}', ":2:"),
        ('{"text": "a", "id": ' + "1" * 5000 + "}", ":2: Exceeds the limit"),
    ],
)
def test_a_bad_line_of_jsonl_is_named_with_the_remedy(
    tmp_path: Path, line: str, words: str
) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text(json.dumps({"text": "fine"}) + "\n" + line + "\n")
    with pytest.raises(UserError) as refused:
        jsonl_tokens(path, tmp_path / "cache")
    assert words in str(refused.value)
    assert 'one JSON object like {"text": "..."}' in str(refused.value)
    assert [left.name for left in (tmp_path / "cache").iterdir()] == [LOCK]


def test_a_last_line_that_was_cut_off_is_named_by_the_place_where_its_text_starts(
    tmp_path: Path,
) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text('{"text": "no end')
    with pytest.raises(UserError, match=":1:10: not JSON: Unterminated string;"):
        jsonl_tokens(path, tmp_path / "cache")


def test_text_that_is_not_utf8_is_named_by_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\nGr\xfc\xdfe\n")
    with pytest.raises(UserError, match=r"latin.txt:2:3: not UTF-8 text \(byte 0xfc\)"):
        map_text(path)


@pytest.mark.parametrize("reader", [map_text, map_tokens, content_of])
def test_a_missing_file_is_named(tmp_path: Path, reader: Callable[[Path], object]) -> None:
    with pytest.raises(UserError, match="absent:1: cannot read .*No such file"):
        reader(tmp_path / "absent")


def test_the_embedded_corpus_is_the_text_that_was_vendored_and_is_unpacked_once(
    tmp_path: Path,
) -> None:
    tokens = shakespeare.map_shakespeare(tmp_path).copy()
    assert hashlib.sha256(tokens.tobytes()).hexdigest() == shakespeare.SHA256_HEX
    assert tokens.tobytes().startswith(b"AS YOU LIKE IT\n\nby William Shakespeare")
    for word in (b"gutenberg", b"etext", b"copyright", b"http"):
        assert word not in tokens.tobytes().lower()
    (cached,) = tmp_path.glob("*.tokens")
    whole, stamp_ns = cached.read_bytes(), cached.stat().st_mtime_ns
    shakespeare.map_shakespeare(tmp_path)
    assert cached.stat().st_mtime_ns == stamp_ns
    turned = bytes([whole[-1] ^ 1])  # by the disk: the host's steps would be another text's
    for damaged in (whole[:-1], b"", whole[:-1] + turned, turned + whole[1:]):
        cached.write_bytes(damaged)
        assert (shakespeare.map_shakespeare(tmp_path) == tokens).all()
        assert cached.read_bytes() == whole


def test_a_corpus_that_the_installation_has_damaged_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = lzma.compress(shakespeare.read_text()[:-1], preset=0)
    monkeypatch.setattr(shakespeare, "PACKED", tmp_path / "shakespeare.txt.xz")
    for content, words in [(packed, "is not the corpus"), (packed[:-9], "ended before")]:
        shakespeare.PACKED.write_bytes(content)
        with pytest.raises(UserError, match=f"txt.xz:1: .*{words}.*; reinstall"):
            shakespeare.map_shakespeare(tmp_path / "cache")


def test_a_corpus_that_the_cache_cannot_hold_is_said(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(UserError, match="cannot keep the embedded corpus in .*/cache"):
        shakespeare.map_shakespeare(tmp_path / "cache")


def test_digits_are_pictures_in_half_units_and_classes() -> None:
    found = Digits(10, 1)
    assert found.train_count == 1797 - 179
    assert found.heldout_count == 179
    everything = found.train(np.arange(found.train_count))
    assert everything.inputs.shape == (1618, 64)
    assert everything.inputs.min() == -0.5
    assert everything.inputs.max() == 0.5
    assert np.bincount(everything.targets).min() > 140
    assert found.heldout(np.array([0])).targets[0] == 9  # the tenth picture is a nine


def test_digits_that_the_installation_has_damaged_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = digits.PACKED.read_bytes()
    few = b"\n".join(gzip.decompress(whole).splitlines()[:9])
    monkeypatch.setattr(digits, "PACKED", tmp_path / "digits.csv.gz")
    for packed, words in [
        (gzip.compress(few), r"has the shape \(9, 65\)"),
        (whole[:-9], "end-of-stream"),
    ]:
        digits.PACKED.write_bytes(packed)
        with pytest.raises(UserError, match=f"digits.csv.gz:1: .*{words}.*; reinstall"):
            Digits(10, 1)


def test_the_catalogue_opens_every_kind(tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("all the world's a stage " * 500)
    lines = tmp_path / "t.jsonl"
    lines.write_text(json.dumps({"text": text.read_text()}) + "\n")
    write_tokens(tmp_path / "t.tokens", [np.arange(9000) % 200], 2)
    for kind, path in (("text", text), ("jsonl", lines), ("tokens", tmp_path / "t.tokens")):
        data = DataConfig.model_validate(
            {"kind": kind, "path": path, "heldout_every": 4, "heldout_block": 512}
        )
        batch = open_examples(data, SMALL, tmp_path / "cache").train(np.array([0, 3]))
        assert batch.inputs.shape == batch.targets.shape == (2, 8)
        assert (batch.inputs[:, 1:] == batch.targets[:, :-1]).all()


def test_models_and_data_must_fit_each_other(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not train on data of kind digits"):
        open_examples(DataConfig(kind="digits"), SMALL, tmp_path)
    with pytest.raises(UserError, match="does not train on data of kind shakespeare"):
        open_examples(DataConfig(), ModelConfig(kind="mlp"), tmp_path)


def test_a_token_outside_the_vocabulary_is_found_at_the_start(tmp_path: Path) -> None:
    tokens = np.zeros(10_000, np.int64)
    tokens[7777] = 256
    write_tokens(tmp_path / "t", [tokens], 2)
    data = DataConfig(kind="tokens", path=tmp_path / "t", heldout_block=100)
    with pytest.raises(UserError, match="token 7777 is 256"):
        open_examples(data, SMALL, tmp_path)
    open_examples(data, SMALL.model_copy(update={"vocabulary": 257}), tmp_path)


def test_every_token_is_looked_at_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "SCAN_TOKENS", 10)
    for dtype in (np.uint8, np.uint16):
        array = np.zeros(34, dtype)
        array[33] = 255
        check_vocabulary(array, 256, tmp_path)
        with pytest.raises(UserError, match="token 33 is 255, .* has only 255"):
            check_vocabulary(array, 255, tmp_path)


@pytest.mark.parametrize("name", ["uint16", "uint32"])
def test_tokens_without_a_header_are_mapped_as_the_type_says(tmp_path: Path, name: str) -> None:
    tokens = np.random.default_rng(5).integers(0, 60_000, 9000)
    path = tmp_path / "corpus.bin"
    path.write_bytes(tokens.astype(np.dtype(name).newbyteorder("<")).tobytes())
    mapped = map_bare_tokens(path, name)
    assert isinstance(mapped, np.memmap)
    assert (mapped == tokens).all()
    data = DataConfig.model_validate({"kind": "tokens", "path": path, "token_type": name})
    model = SMALL.model_copy(update={"vocabulary": 60_000})
    small = data.model_copy(update={"heldout_block": 100})
    batch = open_examples(small, model, tmp_path).train(np.array([7]))
    assert (batch.inputs[0] == tokens[7:15]).all()
    with pytest.raises(UserError, match="the model's vocabulary has only 256"):
        open_examples(small, SMALL, tmp_path)


def test_tokens_without_a_header_that_were_cut_or_have_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(bytes(4 * 9 - 1))
    with pytest.raises(UserError, match="cut:1: 35 bytes are no whole number of uint32 tokens"):
        map_bare_tokens(tmp_path / "cut", "uint32")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(UserError, match="empty:1: 0 bytes are no whole number of uint16 tokens"):
        map_bare_tokens(tmp_path / "empty", "uint16")
    write_tokens(tmp_path / "headed", [np.arange(9)], 2)
    with pytest.raises(UserError, match="leave token_type out"):
        map_bare_tokens(tmp_path / "headed", "uint16")


def test_a_fault_far_into_a_line_is_found_without_reading_the_line_whole(tmp_path: Path) -> None:
    path = tmp_path / "one line.txt"
    good = "ä".encode() * (READ_BYTES // 2)  # a character lies across the border of two pieces
    path.write_bytes(b"first\nx" + good + b"y\n")
    assert len(map_text(path)) == 9 + READ_BYTES
    path.write_bytes(b"first\nx" + good + b"\xff\n")
    with pytest.raises(UserError, match=rf"txt:2:{READ_BYTES + 2}: not UTF-8 text \(byte 0xff\)"):
        map_text(path)
    path.write_bytes(b"x" + good[:-1])
    with pytest.raises(UserError, match=rf"txt:1:{READ_BYTES}: not UTF-8 text \(byte 0xc3\)"):
        map_text(path)


def test_passages_are_the_whole_text_cut_behind_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "READ_BYTES", 10)
    monkeypatch.setattr(text, "LINE_BYTES_MAX", 16)
    path = tmp_path / "text.txt"
    lines = ["ä\n", "be\n", "to be or\n", "not to be, and\n", "\n", "end"]
    path.write_text("".join(lines))
    whole = content_of(path)
    assert list(passages(whole)) == ["ä\nbe\nto be or\n", "not to be, and\n", "\nend"]
    path.write_text("a\n" + 15 * "b" + "\n")  # with its end as long as a line may be
    assert len(list(passages(whole))) == 1
    path.write_text("a\n" + 16 * "b" + "\n")
    with pytest.raises(UserError, match=r"text\.txt:2: longer than 16 bytes"):
        list(passages(whole))
    path.write_text("")
    with pytest.raises(UserError, match=r"text\.txt:1: the file is empty"):
        list(passages(whole))


def test_a_document_longer_than_one_may_be_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps({"text": "one"}), json.dumps({"text": "two and three"})]
    path = tmp_path / "documents.jsonl"
    path.write_text("\n".join([*lines, ""]))
    monkeypatch.setattr(jsonl, "LINE_BYTES_MAX", len(lines[1]) + 1)  # and the line's end
    assert list(jsonl.documents(content_of(path), "text")) == ["one", "two and three"]
    monkeypatch.setattr(jsonl, "LINE_BYTES_MAX", len(lines[1]))
    with pytest.raises(UserError, match=rf"jsonl:2: longer than {len(lines[1])} bytes"):
        list(jsonl.documents(content_of(path), "text"))
    path.write_text("\n \n")
    with pytest.raises(UserError, match=r'jsonl:1: no documents; each line should be {"text": "'):
        list(jsonl.documents(content_of(path), "text"))


def test_converted_data_that_were_damaged_are_made_again(tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text('{"text": "one"}\n')
    cache = tmp_path / "cache"
    jsonl_tokens(path, cache)
    (cached,) = cache.glob("[!.]*")
    cached.write_bytes(cached.read_bytes()[:-1] + b"!")
    assert jsonl_tokens(path, cache).tobytes() == b"one\0"
    assert list(cache.glob("[!.]*")) == [cached]


def test_a_copy_of_the_data_that_differs_from_the_genesis_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("good text " * 1000)
    digest = blake3(path.read_bytes()).hexdigest()
    data = DataConfig(kind="text", path=path, digest=digest, heldout_block=100)
    open_examples(data, SMALL, tmp_path)
    path.write_text("good text " * 999 + "evil text ")
    with pytest.raises(UserError, match="copy the file that the network was made for"):
        open_examples(data, SMALL, tmp_path)


def test_with_data_of_its_own_a_host_trains_on_all_of_them_and_holds_out_the_common_ones(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.txt").write_text("o" * 100)
    (tmp_path / "heldout.txt").write_text("h" * 50)
    data = DataConfig(
        kind="local",
        format="text",
        path=tmp_path / "heldout.txt",
        digest=blake3(b"h" * 50).hexdigest(),
        tokens_digest=blake3(b"h" * 50).hexdigest(),  # nobody knows that of what is a host's own
    )
    own = OwnFiles(path=tmp_path / "own.txt")
    examples = open_examples(data, SMALL, tmp_path, own)
    assert (examples.train_count, examples.heldout_count) == (92, 42)
    assert (examples.train(np.array([0, 91])).inputs == ord("o")).all()
    assert (examples.heldout(np.array([0, 41])).targets == ord("h")).all()
    with pytest.raises(UserError, match=r"each host's own, in the format text: .*data\.own\.path"):
        open_examples(data, SMALL, tmp_path)
    (tmp_path / "own.txt").write_text("o" * 8)
    with pytest.raises(UserError, match=r"own\.txt has 8 items: too few for a single window of 9"):
        open_examples(data, SMALL, tmp_path, own)
    (tmp_path / "own.txt").write_text("o" * 100)
    (tmp_path / "heldout.txt").write_text("x" * 50)
    with pytest.raises(UserError, match=r"heldout\.txt:1: .* data\.path"):
        open_examples(data, SMALL, tmp_path, own)
