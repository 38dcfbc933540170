"""Plain UTF-8 text: the file's own bytes are the tokens, mapped where they lie."""

from pathlib import Path

import numpy as np

from daa_node.errors import UserError
from daa_node.training.datasets.examples import AnyArray


def map_text(path: Path) -> AnyArray:
    """The bytes of a text file, shape (count,), uint8. Raises UserError naming file and line."""
    try:
        with path.open("rb") as file:
            size_bytes = 0
            for line_number, line in enumerate(file, start=1):
                size_bytes += len(line)
                try:
                    line.decode()
                except UnicodeDecodeError as fault:
                    raise UserError(
                        f"{path}:{line_number}:{fault.start + 1}: not UTF-8 text "
                        f"(byte 0x{line[fault.start]:02x}); convert it, or use kind: tokens"
                    ) from None
    except OSError as fault:
        raise UserError(f"{path}:1: cannot read the text: {fault.strerror}") from None
    if size_bytes == 0:
        raise UserError(f"{path}:1: the file is empty; there is nothing to train on")
    return np.memmap(path, np.uint8, "r", shape=(size_bytes,))
