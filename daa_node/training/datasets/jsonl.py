"""One JSON object a line with a "text" field; documents are joined by a zero byte.

Parsed once into a token file beside the worker's other caches, then mapped like any other.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from blake3 import blake3

from daa_node.errors import UserError
from daa_node.training.datasets.examples import AnyArray
from daa_node.training.datasets.tokens import map_tokens, write_tokens

LINE_BYTES_MAX = 64 * 1024 * 1024  # one document in memory at a time, and never more than this
DOCUMENT_END = np.zeros(1, np.uint8)
READ_BYTES = 1 << 20


def map_jsonl(path: Path, cache_dir: Path) -> AnyArray:
    """The documents' UTF-8 bytes, shape (count,). Raises UserError naming file and line."""
    try:
        cached = cache_dir / f"jsonl-{_digest_hex(path)[:32]}.tokens"
        if not cached.exists():
            cache_dir.mkdir(parents=True, exist_ok=True)
            write_tokens(cached, _documents(path), token_bytes=1)
    except OSError as fault:
        raise UserError(f"{path}:1: cannot read or cache the file: {fault.strerror}") from None
    return map_tokens(cached)


def _documents(path: Path) -> Iterator[AnyArray]:
    found = False
    with path.open("rb") as file:
        line_number = 0
        while line := file.readline(LINE_BYTES_MAX + 1):
            line_number += 1
            if len(line) > LINE_BYTES_MAX:
                raise UserError(f"{path}:{line_number}: longer than {LINE_BYTES_MAX} bytes")
            if not line.strip():
                continue
            found = True
            yield np.frombuffer(_text_of(line, path, line_number), np.uint8)
            yield DOCUMENT_END
    if not found:
        raise UserError(f"{path}:1: no documents; each line should be " + '{"text": "..."}')


def _text_of(line: bytes, path: Path, line_number: int) -> bytes:
    remedy = 'each line must be one JSON object like {"text": "..."}'
    try:
        document = json.loads(line)
        text = document["text"]
        if not isinstance(text, str):
            raise TypeError(f'"text" is {type(text).__name__}')
        return text.encode()
    except json.JSONDecodeError as fault:
        detail = f"{path}:{line_number}:{fault.colno}: not JSON: {fault.msg}"
    except KeyError:
        detail = f'{path}:{line_number}: no "text" field'
    except (TypeError, UnicodeError, RecursionError) as fault:
        detail = f"{path}:{line_number}: {fault}"
    raise UserError(f"{detail}; {remedy}")


def _digest_hex(path: Path) -> str:
    hasher = blake3()
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            hasher.update(piece)
    return hasher.hexdigest()
