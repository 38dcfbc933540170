"""What `status` says of how much a node keeps."""

import pytest

from daa_node.checkpoints.quota import Level, Standing
from daa_node.cli.remote import storage_line


@pytest.mark.parametrize(
    ("bytes_max", "level", "ending"),
    [
        (None, Level.ROOM, "of it the chain"),
        (10**7, Level.ROOM, "of 10.0 MB"),
        (10**7, Level.NEAR, "near; old states go next"),
        (10**7, Level.OVER, "daa-node logs says why (storage_over)"),
    ],
)
def test_it_says_how_much_of_how_much_and_what_follows(
    bytes_max: int | None, level: Level, ending: str
) -> None:
    line = storage_line(Standing(3_000_000, 1_000_000, bytes_max, level).told())
    assert line.startswith("4.0 MB, 3.0 MB of it the chain")
    assert line.endswith(ending)
