"""A newer release is told of where more stake speaks it than may lie."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from daa_node.adapters.control_socket import ControlSocket
from daa_node.cli.doctor.registry import look
from daa_node.cli.doctor.releases import Met, judged
from daa_node.cli.doctor.scene import Scene, open_scene
from daa_node.observability.events import EventLog
from daa_node.wire.protocols import OURS
from tests.daa_node.cli.doctor.scenes import CHECKS, ROOMY, made_node

NEW = OURS.most + 1


@pytest.mark.parametrize(
    ("met", "total", "level", "words"),
    [
        ((), 4, "unmeasured", "this release speaks protocol 1 to 1"),
        (
            ((1, 1), (1, 2)),
            3,
            "ok",
            "validators with 0 of all 3 stake speak a newer protocol than 1",
        ),
        (((NEW, 1), (1, 2)), 3, "ok", "with 1 of all 3 stake"),  # so much may lie
        (((NEW, 2), (1, 1)), 3, "warning", "a newer release is out: validators with 2 of all 3"),
        # one of four by their heads
        (((NEW, 5), (1, 1), (1, 1), (1, 1)), 8, "warning", "with 5 of all 8 stake"),
        # three of four by their heads
        (((NEW, 1), (NEW, 1), (NEW, 1), (1, 7)), 10, "ok", "with 3 of all 10 stake"),
        (((NEW, 2),), 7, "ok", "than 1, as far as those with 2 tell, whom the daemon has met"),
        (((NEW, 3),), 7, "warning", "as far as those with 3 tell"),
    ],
)
def test_a_newer_release_is_out_where_more_stake_speaks_it_than_may_lie(
    met: tuple[tuple[int, int], ...], total: int, level: str, words: str
) -> None:
    found = judged([Met(*each) for each in met], total)
    assert str(found.level) == level
    assert words in found.cause
    assert ("Install" in found.advice) == (level == "warning")


def said(node_id: str | None, most: int | None) -> dict[str, object]:
    """What the daemon tells of a peer."""
    return {"node_id": node_id, "speaks": None if most is None else [1, most]}


@pytest.mark.parametrize(
    ("peers", "told"),
    [
        ((), "unmeasured"),
        ((said("trainer", NEW), said(None, NEW)), "unmeasured"),
        ((said("heavy", None), said("trainer", NEW)), "unmeasured"),
        ((said("heavy", NEW),), "warning"),
        ((said("light", NEW), said("light", NEW)), "ok"),
        ((said("light", NEW), said("heavy", 1)), "ok"),
    ],
)
async def test_it_weighs_the_validators_that_the_daemon_has_met(
    peers: tuple[dict[str, object], ...], told: str, tmp_path: Path
) -> None:
    opened = open_scene(made_node(tmp_path / "n"), None, ROOMY)
    stake_of = {"heavy": 3, "light": 1}
    scene = Scene(opened.directory, opened.host, peers=peers, validators=stake_of)
    (finding,) = await look(CHECKS["release"], scene)
    assert str(finding.level) == told


async def test_the_daemon_that_runs_is_asked_what_stake_each_has(tmp_path: Path) -> None:
    answers: dict[str, dict[str, Any]] = {
        "status": {"phase": "train"},
        "peers": {"peers": [said("heavy", NEW), said("light", 1)]},
        "validators": {
            "validators": [{"node_id": "heavy", "stake": 3}, {"node_id": "light", "stake": 1}]
        },
    }

    async def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        return answers[request["command"]]

    root = made_node(tmp_path / "n")
    idle = open_scene(root, None, ROOMY)
    daemon = ControlSocket(idle.directory.control, EventLog(lambda: 0))
    daemon.set_handlers(dict.fromkeys(answers, answer))
    with idle.directory.locked():
        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.run)
            scene = await trio.to_thread.run_sync(open_scene, root, None, ROOMY)
            nursery.cancel_scope.cancel()
    (finding,) = await look(CHECKS["release"], scene)
    assert "validators with 3 of all 4 stake" in finding.cause


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
