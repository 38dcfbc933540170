"""Token files, mapped not read: a 64-byte header, then tokens of 1, 2 or 4 bytes, little-endian.

    bytes 0-7   "DAATOK1\\n"
    bytes 8-11  bytes a token, 1, 2 or 4
    bytes 12-15 zero
    bytes 16-23 token count
    bytes 24-63 zero

Or the tokens alone, without a header, where the job says of what type they are. Windows of context
+ 1 tokens are the examples: the model predicts each token from those before it.
"""

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

from daa_node.errors import UserError
from daa_node.tensors import Int64Array
from daa_node.training.datasets.examples import AnyArray, Batch, Split

MAGIC = b"DAATOK1\n"
HEADER = struct.Struct("<8sIIQ40x")
TOKEN_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype("<u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
}
TOKEN_BYTES: Final = {"uint16": 2, "uint32": 4}  # of tokens without a header
# Checked at open, in pieces: a token outside the vocabulary would crash the embedding much later.
SCAN_TOKENS = 1 << 22


def map_tokens(path: Path, source: Path | None = None) -> AnyArray:
    """The tokens of a token file, shape (count,), mapped read-only. Raises UserError.

    `source` is the file that an error names, where it was unpacked from another.
    """
    where = source or path
    try:
        with path.open("rb") as file:
            head, size_bytes = file.read(HEADER.size), os.fstat(file.fileno()).st_size
    except OSError as fault:
        raise UserError(f"{where}:1: cannot read the token file: {fault.strerror}") from None
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise UserError(
            f"{where}:1: not a token file (it starts with {head[:8]!r}, not {MAGIC!r}); "
            "use kind: text for plain text, token_type for tokens without a header, or write it "
            "with daa_node.training.datasets.tokens"
        )
    _, token_bytes, _, token_count = HEADER.unpack(head)
    if token_bytes not in TOKEN_DTYPES:
        raise UserError(f"{where}:1: {token_bytes} bytes a token; 1, 2 and 4 are known")
    if size_bytes != HEADER.size + token_bytes * token_count or token_count == 0:
        raise UserError(
            f"{where}:1: the header promises {token_count} tokens of {token_bytes} bytes, the file "
            f"has {size_bytes - HEADER.size} bytes of them; it was cut or is still being written"
        )
    return np.memmap(path, TOKEN_DTYPES[token_bytes], "r", HEADER.size, (token_count,))


def map_bare_tokens(path: Path, token_type: str, source: Path | None = None) -> AnyArray:
    """The tokens of a file that holds nothing else, as `map_tokens`. Raises UserError."""
    where = source or path
    size_bytes, token_bytes = path.stat().st_size, TOKEN_BYTES[token_type]
    with path.open("rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            raise UserError(f"{where}:1: has a header that says the type: leave token_type out")
    if size_bytes == 0 or size_bytes % token_bytes:
        raise UserError(
            f"{where}:1: {size_bytes} bytes are no whole number of {token_type} tokens; it was "
            "cut, or token_type is another one"
        )
    shape = (size_bytes // token_bytes,)
    return np.memmap(path, TOKEN_DTYPES[token_bytes], "r", shape=shape)


def write_tokens(path: Path, pieces: Iterable[AnyArray], token_bytes: int) -> int:
    """Writes a token file; it appears under its name only when whole. Returns the token count."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    token_count = 0
    try:
        with scratch.open("wb") as file:
            file.write(bytes(HEADER.size))
            for piece in pieces:
                file.write(np.ascontiguousarray(piece, TOKEN_DTYPES[token_bytes]).data)
                token_count += len(piece)
            file.seek(0)
            file.write(HEADER.pack(MAGIC, token_bytes, 0, token_count))
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
    return token_count


class TokenWindows:
    """Examples cut from one long run of tokens, next-token prediction in windows of `context`."""

    def __init__(self, tokens: AnyArray, context: int, split: Split) -> None:
        """`split` is for windows of `context` + 1."""
        self._tokens = tokens
        self._span = np.arange(context + 1, dtype=np.int64)
        self._context = context
        self._split = split

    @property
    def train_count(self) -> int:
        return self._split.train_count

    @property
    def heldout_count(self) -> int:
        return self._split.heldout_count

    @property
    def tokens_each(self) -> int:
        return self._context

    def train(self, indices_B: Int64Array) -> Batch:
        return self._windows(self._split.train_offsets(indices_B))

    def heldout(self, indices_B: Int64Array) -> Batch:
        return self._windows(self._split.heldout_offsets(indices_B))

    def _windows(self, offsets_B: Int64Array) -> Batch:
        windows = self._tokens[offsets_B[:, None] + self._span].astype(np.int64)
        return Batch(windows[:, :-1], windows[:, 1:])


def check_vocabulary(tokens: AnyArray, vocabulary: int, path: Path) -> None:
    """Raises UserError if a token is not below `vocabulary`."""
    if vocabulary > np.iinfo(tokens.dtype).max:
        return
    for start in range(0, len(tokens), SCAN_TOKENS):
        piece = tokens[start : start + SCAN_TOKENS]
        if int(piece.max()) >= vocabulary:
            at = start + int(np.argmax(piece >= vocabulary))
            raise UserError(
                f"{path}:1: token {at} is {int(tokens[at])}, the model's vocabulary has only "
                f"{vocabulary}; raise model.vocabulary or use another file"
            )
