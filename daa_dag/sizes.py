"""How many bytes canonical values have, without making them: sums that limits are made of."""

from daa_dag.ids import DIGEST_BYTES

NUMBER = 9  # a 64-bit one, with its mark
DIGEST = 2 + DIGEST_BYTES
NOTHING = 1


def text(characters: int) -> int:
    """A short word of so many ASCII messages."""
    return (1 if characters < 32 else 2) + characters


def blob(size_bytes: int) -> int:
    """A string of bytes, with its length in front."""
    return (2 if size_bytes < 2**8 else 3 if size_bytes < 2**16 else 5) + size_bytes


def items(count: int, each_bytes: int) -> int:
    """A list of so many values of one size, with its length in front."""
    return (1 if count < 16 else 3 if count < 2**16 else 5) + count * each_bytes


def fields(*sizes: int) -> int:
    """A list of a few values of different sizes."""
    assert len(sizes) < 16
    return 1 + sum(sizes)
