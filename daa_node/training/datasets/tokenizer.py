"""Text becomes tokens: its bytes, or what a file of the tokenizers library makes of it.

The library is an extra, which only a process that opens such data imports: the worker's. Its
releases may differ in what they make of a text, so that a genesis can name the tokens' digest
beside that of the file.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from daa_node.errors import UserError
from daa_node.training.datasets.examples import AnyArray
from daa_node.training.datasets.files import Content

ZERO_BYTE = np.zeros(1, np.uint8)
FILE_BYTES_MAX = 1 << 28  # of a tokenizer: those of the largest models have 20 MB
UINT16_TOKENS = 1 << 16


class Encoder(Protocol):
    """Makes tokens of text; the same text always gives the same ones."""

    @property
    def made_from(self) -> list[str]:
        """All that the tokens of a text follow from."""

    @property
    def token_bytes(self) -> int: ...

    @property
    def document_end(self) -> AnyArray:
        """Tokens after each document, shape (count,)."""

    def encode(self, text: str) -> AnyArray:
        """Shape (count,). Raises UserError."""


class ByteEncoder:
    """The UTF-8 bytes; a zero byte ends a document."""

    made_from: list[str] = []
    token_bytes = 1
    document_end = ZERO_BYTE

    def encode(self, text: str) -> AnyArray:
        return np.frombuffer(text.encode(), np.uint8)


class FileEncoder:
    """A tokenizer file of at most `vocabulary` tokens. Raises UserError."""

    def __init__(self, content: Content, vocabulary: int, document_end: str | None) -> None:
        try:
            from tokenizers import Tokenizer, __version__  # an extra, which a worker may lack
        except ImportError:
            raise UserError(
                "data with a tokenizer need the tokenizers library, which is not installed: "
                "pip install 'daa-compute[tokenizers]'"
            ) from None
        self._source = content.source
        if content.path.stat().st_size > FILE_BYTES_MAX:
            raise UserError(f"{self._source}:1: a tokenizer has {FILE_BYTES_MAX} bytes at most")
        try:
            self._tokenizer = Tokenizer.from_buffer(content.path.read_bytes())
        except ValueError as fault:
            raise UserError(f"{self._source}:1: no tokenizer file: {fault}") from None
        if getattr(self._tokenizer.model, "dropout", None):
            raise UserError(
                f"{self._source}:1: its model drops merges by chance (dropout): no two hosts would "
                "see the same tokens; set dropout to null"
            )
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        ids = self._tokenizer.get_vocab(with_added_tokens=True).values()
        size = max(ids, default=-1) + 1  # there may be gaps
        if size > vocabulary:
            raise UserError(
                f"{self._source}:1: it needs room for {size} tokens, the model's vocabulary only "
                f"{vocabulary}; set model.vocabulary to {size} or more"
            )
        self.size = size  # of the tokens that there are
        self.token_bytes = 2 if vocabulary <= UINT16_TOKENS else 4
        self.document_end: AnyArray = self._array([] if document_end is None else [document_end])
        self.made_from = [content.digest, __version__, document_end or "", str(self.token_bytes)]

    def encode(self, text: str) -> AnyArray:
        try:
            found = self._tokenizer.encode(text, add_special_tokens=False)
        except Exception as fault:
            raise UserError(f"{self._source}:1: cannot encode {text[:40]!r}: {fault}") from None
        return np.array(found.ids, np.uint32)

    def decode(self, tokens: Sequence[int]) -> str:
        """Raises UserError."""
        try:
            text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        except Exception as fault:
            raise UserError(f"{self._source}:1: cannot decode its tokens: {fault}") from None
        return text

    def _array(self, tokens: list[str]) -> AnyArray:
        ids = [self._tokenizer.token_to_id(token) for token in tokens]
        if None in ids:
            raise UserError(f"{self._source}:1: has no token {tokens[0]!r} to end documents with")
        return np.array(ids, np.uint32)


def encoded(documents: Iterable[str], encoder: Encoder) -> Iterator[AnyArray]:
    """Each document's tokens, and what ends it. Raises UserError."""
    for text in documents:
        yield encoder.encode(text)
        yield encoder.document_end
