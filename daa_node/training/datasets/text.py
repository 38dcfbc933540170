"""Plain UTF-8 text: the file's own bytes are the tokens, mapped where they lie."""

import codecs
from pathlib import Path

import numpy as np

from daa_node.errors import UserError
from daa_node.training.datasets.examples import AnyArray
from daa_node.training.datasets.files import READ_BYTES


def map_text(path: Path) -> AnyArray:
    """The bytes of a text file, shape (count,), uint8. Raises UserError naming file and line."""
    try:
        size_bytes = _check_utf8(path)
    except OSError as fault:
        raise UserError(f"{path}:1: cannot read the text: {fault.strerror}") from None
    if size_bytes == 0:
        raise UserError(f"{path}:1: the file is empty; there is nothing to train on")
    return np.memmap(path, np.uint8, "r", shape=(size_bytes,))


def _check_utf8(path: Path) -> int:
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
                    f"{path}:{lines + 1}:{at - line_start + 1}: not UTF-8 text "
                    f"(byte 0x{fault.object[fault.start]:02x}); convert it, or use kind: tokens"
                ) from None
            if not piece:
                return size_bytes
            lines += piece.count(b"\n")
            if b"\n" in piece:
                line_start = size_bytes + piece.rindex(b"\n") + 1
            size_bytes += len(piece)
