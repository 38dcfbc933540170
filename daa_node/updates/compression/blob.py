"""A blob's bytes, however they are held, and the fault of whoever sent bad ones."""

import numpy as np

from daa_node.errors import PeerFault
from daa_node.tensors import UInt8Array

Blob = bytes | bytearray | memoryview | UInt8Array


def bytes_of(blob: Blob) -> UInt8Array:
    """A view, nothing is copied."""
    # view: slicing a memmap makes a memmap, ten times slower than a plain array
    return blob.view(np.ndarray) if isinstance(blob, np.ndarray) else np.frombuffer(blob, np.uint8)


def bad_update(detail: str) -> PeerFault:
    """What a codec says of a peer's blob that it does not accept."""
    return PeerFault("bad_update", detail)
