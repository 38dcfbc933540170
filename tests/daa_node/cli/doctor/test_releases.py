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
    ("newest", "validators", "level", "words"),
    [
        ([], 4, "unmeasured", "this release speaks protocol 1 to 1"),
        ([1, 1, 1], 3, "ok", "0 of 3 validators speak a newer protocol than 1"),
        ([NEW, 1, 1], 3, "ok", "1 of 3 validators"),  # one may lie
        ([NEW, NEW, 1], 3, "warning", "a newer release is out: 2 of 3 validators speak a newer"),
        ([NEW], 4, "ok", "1 of 4 validators speak a newer protocol than 1, as far as the 1 that"),
        ([NEW, NEW], 7, "ok", "2 of 7 validators"),
        ([NEW, NEW, NEW], 7, "warning", "3 of 7 validators"),
    ],
)
def test_a_newer_release_is_out_where_more_speak_it_than_may_lie(
    newest: list[int], validators: int, level: str, words: str
) -> None:
    found = judged(newest, validators)
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


async def test_a_liar_that_alone_was_met_is_not_taken_for_all(tmp_path: Path) -> None:
    opened = open_scene(made_node(tmp_path / "n"), None, ROOMY)
    liar = {"part": "validator", "speaks": [1, NEW]}
    for total, told in ((4, "ok"), (2, "warning")):
        status = {"validators": {"total": total}}
        scene = Scene(opened.directory, opened.host, status=status, peers=(liar,))
        (finding,) = await look(CHECKS["release"], scene)
        assert str(finding.level) == told
