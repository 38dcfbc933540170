"""The embedded corpus: twelve plays, 1.5 MB of public-domain text (SOURCE.md beside it says more).

Unpacked once into the worker's cache directory and mapped from there, so that several daemons on
one host share its pages.
"""

import hashlib
import lzma
from pathlib import Path

import numpy as np

from daa_node.errors import UserError
from daa_node.training.datasets.examples import AnyArray
from daa_node.training.datasets.files import kept_or_made
from daa_node.training.datasets.tokens import map_tokens, write_tokens

PACKED = Path(__file__).with_name("shakespeare.txt.xz")
SHA256_HEX = "c81b16c798f66ed29d11eb97779f4421d6b68ae30b36a6b53e7c26f5ae9b7d7d"


def map_shakespeare(cache_dir: Path) -> AnyArray:
    """The corpus as bytes, shape (1518688,).

    Raises UserError if the installation is damaged, or the cache cannot be written.
    """
    made, _ = kept_or_made(
        cache_dir,
        "shakespeare",
        ".tokens",
        "keep the embedded corpus",
        lambda scratch: write_tokens(scratch, [np.frombuffer(read_text(), np.uint8)], 1),
    )
    return map_tokens(made)


def read_text() -> bytes:
    """The corpus, unpacked and checked. Raises UserError if the installation is damaged."""
    try:
        text = lzma.decompress(PACKED.read_bytes())
    except (OSError, lzma.LZMAError) as fault:
        raise UserError(f"{PACKED}:1: {fault}; reinstall the package") from None
    if hashlib.sha256(text).hexdigest() != SHA256_HEX:
        raise UserError(f"{PACKED}:1: is not the corpus this version ships; reinstall the package")
    return text
