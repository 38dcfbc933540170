"""What a tokeniser's file makes of one text: all that counts for every host is taken from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daa_node.errors import UserError
from daa_node.training.datasets import tokenizer
from daa_node.training.datasets.files import Content
from daa_node.training.datasets.tokenizer import UINT16_TOKENS, FileEncoder

tokenizers = pytest.importorskip("tokenizers")

WORDS = {"[UNK]": 0, "to": 1, "be": 2, "or": 3, "not": 4}
SIZE = 1 + len(WORDS)  # with the one that is added beside them
END = "<end>"
Change = Callable[[Any], object]


def encoder(
    directory: Path,
    vocabulary: int = SIZE,
    change: Change | None = None,
    digest: str = "ab",
    end: str | None = None,
) -> FileEncoder:
    """Of words, which others' files may do more with: `change` says what."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens([END])
    if change is not None:
        change(made)
    path = directory / "tokenizer.json"
    path.write_text(made.to_str())
    return FileEncoder(Content(path, digest, path), vocabulary, end)


def add_end_to_each(made: Any) -> None:
    ends = tokenizers.processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, SIZE - 1)]
    )
    made.post_processor = ends


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.enable_padding(pad_id=0, pad_token="[UNK]", length=9),
        lambda made: made.enable_truncation(2),
        add_end_to_each,
    ],
    ids=["padding", "truncation", "special tokens"],
)
def test_a_text_is_its_own_tokens_whatever_the_file_says_of_sequences(
    tmp_path: Path, change: Change
) -> None:
    """Padding would be trained on, and of a text that is cut all but the beginning lost."""
    made = encoder(tmp_path, change=change)
    assert made.encode("to be or not to be").tolist() == [1, 2, 3, 4, 1, 2]


def test_tokens_that_were_added_need_room_as_well(tmp_path: Path) -> None:
    assert encoder(tmp_path, SIZE).size == SIZE
    with pytest.raises(UserError, match=f"needs room for {SIZE} tokens"):
        encoder(tmp_path, SIZE - 1)


def test_a_token_takes_two_bytes_as_long_as_all_have_room_in_them(tmp_path: Path) -> None:
    sizes = [encoder(tmp_path, UINT16_TOKENS + more).token_bytes for more in (0, 1)]
    assert sizes == [2, 4]


def test_a_token_beyond_two_bytes_is_itself(tmp_path: Path) -> None:
    def add_many(made: Any) -> None:
        made.add_tokens([f"w{number}" for number in range(UINT16_TOKENS)])

    made = encoder(tmp_path, 2 * UINT16_TOKENS, add_many)
    assert made.encode(f"be w{UINT16_TOKENS - 1}").tolist() == [2, UINT16_TOKENS + SIZE - 1]


def test_all_that_tokens_follow_from_is_what_they_are_kept_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a host would go on with what another file, or another release, has made."""
    kept_by = [encoder(tmp_path).made_from, encoder(tmp_path, digest="cd").made_from]
    kept_by.append(encoder(tmp_path, 2 * UINT16_TOKENS).made_from)
    kept_by.append(encoder(tmp_path, end=END).made_from)
    monkeypatch.setattr(tokenizers, "__version__", "another")
    kept_by.append(encoder(tmp_path).made_from)
    assert len(set(map(tuple, kept_by))) == len(kept_by)


def test_a_token_that_the_file_calls_special_is_written_as_any_other(tmp_path: Path) -> None:
    made = encoder(tmp_path)
    assert made.decode([1, SIZE - 1, 2]).split() == ["to", END, "be"]


def test_a_file_larger_than_any_tokenizer_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder(tmp_path)
    size_bytes = (tmp_path / "tokenizer.json").stat().st_size
    monkeypatch.setattr(tokenizer, "FILE_BYTES_MAX", size_bytes)
    encoder(tmp_path)
    monkeypatch.setattr(tokenizer, "FILE_BYTES_MAX", size_bytes - 1)
    with pytest.raises(UserError, match=f"has {size_bytes - 1} bytes at most"):
        encoder(tmp_path)
