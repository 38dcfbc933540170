"""What `status` says of how much a node keeps, and of what others keep of it."""

import pytest

from daa_node.checkpoints.quota import Level, Standing
from daa_node.cli.remote import copies_line, protocol_lines, storage_line


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


def test_it_says_where_the_newest_whole_states_are() -> None:
    def state(height: int, here: bool, coming: bool, copies: int | None) -> dict[str, object]:
        return {"height": height, "here": here, "coming": coming, "copies": copies}

    states = [state(24, True, False, 3), state(16, False, True, 1), state(8, False, False, 2)]
    assert copies_line({"wanted": 3, "states": states}) == (
        "height 24 here, 3 of 3; height 16 coming, 1 of 3; height 8 not here, 2 of 3"
    )
    told = {"wanted": 3, "states": [state(24, True, False, None)]}
    assert copies_line(told) == "height 24 here, counted by others"


def test_an_announced_protocol_is_told_with_what_is_due() -> None:
    told = {"in_use": 1, "next_from_round": 21, "speaks_next": True}
    assert list(protocol_lines(told)) == ["protocol    2 is used from round 21 on"]
    (late,) = protocol_lines({**told, "speaks_next": False})
    assert "INSTALL a newer release" in late
    assert not list(protocol_lines({**told, "next_from_round": None}))
    assert not list(protocol_lines({})), "the daemon that answers is of an older release"
