"""Writers of small files in the formats of MNIST and CIFAR, with bars that tell ten classes."""

import gzip
import struct
from pathlib import Path

import numpy as np

from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import DataFile
from daa_node.training.datasets.files import digest_of_content
from daa_node.training.datasets.pictures import UInt8Pictures


def bars(count: int, side: int, seed: int = 0) -> tuple[UInt8Pictures, UInt8Pictures]:
    """Noise with a bright column that the label, 0..9, says: (N, side, side) and (N,)."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(count) % 10).astype(np.uint8)
    pixels = rng.integers(0, 120, (count, side, side)).astype(np.uint8)
    for picture, label in zip(pixels, labels, strict=True):
        picture[:, label * side // 10] = 255
    return pixels, labels


def write_idx(
    directory: Path, pixels: UInt8Pictures, labels: UInt8Pictures, packed: bool = False
) -> DataConfig:
    """Both files, and the data that name them by place and digest."""
    directory.mkdir(exist_ok=True)
    contents = {
        "pictures": struct.pack(">IIII", 0x803, *pixels.shape) + pixels.tobytes(),
        "labels": struct.pack(">II", 0x801, len(labels)) + labels.tobytes(),
    }
    files = {}
    for name, content in contents.items():
        path = directory / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
        files[name] = DataFile(path=path, digest=digest_of_content(path))
    first = files["pictures"]
    return DataConfig(
        kind="idx", path=first.path, digest=first.digest, labels=files["labels"], heldout_every=4
    )


def write_cifar(path: Path, pixels: UInt8Pictures, labels: UInt8Pictures) -> None:
    """`pixels` (N, 3, 32, 32), `labels` (N, 1) of CIFAR-10 or (N, 2) of CIFAR-100."""
    path.write_bytes(np.concatenate([labels, pixels.reshape(len(pixels), -1)], axis=1).tobytes())
