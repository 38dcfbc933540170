"""A newer release is told of where more validators speak it than may lie."""

from pathlib import Path

import pytest

from daa_node.cli.doctor.registry import look
from daa_node.cli.doctor.releases import judged
from daa_node.cli.doctor.scene import Scene, open_scene
from daa_node.wire.protocols import OURS
from tests.daa_node.cli.doctor.scenes import CHECKS, ROOMY, made_node

NEW = OURS.most + 1


@pytest.mark.parametrize(
    ("newest", "level", "words"),
    [
        ([], "unmeasured", "this release speaks protocol 1 to 1"),
        ([1, 1, 1], "ok", "0 of 3 validators speak a newer protocol than 1"),
        ([NEW, 1, 1], "ok", "1 of 3 validators"),  # one may lie
        ([NEW, NEW, 1], "warning", "a newer release is out: 2 of 3 validators speak a newer"),
    ],
)
def test_a_newer_release_is_out_where_more_speak_it_than_may_lie(
    newest: list[int], level: str, words: str
) -> None:
    found = judged(newest)
    assert str(found.level) == level
    assert words in found.cause
    assert ("Install" in found.advice) == (level == "warning")


async def test_it_goes_by_the_validators_that_the_daemon_has_met(tmp_path: Path) -> None:
    opened = open_scene(made_node(tmp_path / "n"), None, ROOMY)
    trainer = {"part": "trainer", "speaks": [1, NEW]}
    met = ({"part": "validator", "speaks": [1, NEW]}, {"part": "validator", "speaks": None})
    for peers, told in (((trainer,), "unmeasured"), ((trainer, *met), "warning")):
        scene = Scene(opened.directory, opened.host, peers=peers)
        (finding,) = await look(CHECKS["release"], scene)
        assert str(finding.level) == told


@pytest.mark.parametrize(
    ("protocol", "told"),
    [
        ({"in_use": 1, "next_from_round": 21, "speaks_next": False}, "warning"),
        ({"in_use": 1, "next_from_round": 21, "speaks_next": True}, "unmeasured"),
        ({"in_use": 1, "next_from_round": None, "speaks_next": False}, "unmeasured"),
    ],
)
async def test_an_upgrade_is_due_before_the_round_that_this_release_has_no_part_in(
    tmp_path: Path, protocol: dict[str, object], told: str
) -> None:
    opened = open_scene(made_node(tmp_path / "n"), None, ROOMY)
    scene = Scene(opened.directory, opened.host, status={"protocol": protocol})
    (finding,) = await look(CHECKS["release"], scene)
    assert str(finding.level) == told
    if told == "warning":
        assert "protocol 2 is used from round 21 on" in finding.cause
        assert "Install a newer release" in finding.advice
