"""Plain UTF-8 text: the file's own bytes are the tokens, mapped where they lie.

For a tokenizer it is cut into passages that end where a line does.
"""

import codecs
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from daa_node.errors import UserError
from daa_node.training.datasets.examples import AnyArray
from daa_node.training.datasets.files import READ_BYTES, Content

LINE_BYTES_MAX = 64 * READ_BYTES  # in memory at a time, for a tokenizer alone


def map_text(path: Path, source: Path | None = None) -> AnyArray:
    """The bytes of a text file, shape (count,), uint8. Raises UserError naming file and line.

    `source` is the file that an error names, where it was unpacked from another.
    """
    where = source or path
    try:
        size_bytes = _check_utf8(path, where)
    except OSError as fault:
        raise UserError(f"{where}:1: cannot read the text: {fault.strerror}") from None
    if size_bytes == 0:
        raise UserError(f"{where}:1: the file is empty; there is nothing to train on")
    return np.memmap(path, np.uint8, "r", shape=(size_bytes,))


def passages(content: Content) -> Iterator[str]:
    """All of the text, some megabytes at a time. Raises UserError naming file and line."""
    if _check_utf8(content.path, content.source) == 0:
        raise UserError(f"{content.source}:1: the file is empty; there is nothing to train on")
    with content.path.open("rb") as file:
        line_number = 0
        passage = bytearray()
        while line := file.readline(LINE_BYTES_MAX + 1):
            line_number += 1
            if len(line) > LINE_BYTES_MAX:
                raise UserError(
                    f"{content.source}:{line_number}: longer than {LINE_BYTES_MAX} bytes"
                )
            passage += line
            if len(passage) >= READ_BYTES:
                yield passage.decode()
                passage.clear()
        if passage:
            yield passage.decode()


def _check_utf8(path: Path, where: Path) -> int:
    """Its size in bytes. In pieces: a line may be as long as the file."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    size_bytes = lines = line_start = 0
    with path.open("rb") as file:
        while True:
            piece = file.read(READ_BYTES)
            pending, _ = decoder.getstate()  # the beginning of a character: no line ends in it
            try:
                decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as fault:
                at = size_bytes - len(pending) + fault.start
                before = piece[: max(0, at - size_bytes)]
                lines += before.count(b"\n")
                if b"\n" in before:
                    line_start = size_bytes + before.rindex(b"\n") + 1
                raise UserError(
                    f"{where}:{lines + 1}:{at - line_start + 1}: not UTF-8 text "
                    f"(byte 0x{fault.object[fault.start]:02x}); convert it, or use kind: tokens"
                ) from None
            if not piece:
                return size_bytes
            lines += piece.count(b"\n")
            if b"\n" in piece:
                line_start = size_bytes + piece.rindex(b"\n") + 1
            size_bytes += len(piece)
