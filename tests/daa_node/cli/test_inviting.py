"""`invite` as a person types it; what a validator answers is tested with the invitations."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from daa_node.adapters.control_socket import ControlSocket
from daa_node.cli import identity, inviting
from daa_node.errors import UserError
from daa_node.observability.events import EventLog
from tests.daa_node.cli.conftest import Command

ROW = {"id": "2e172b7f", "uses": 2, "used_by": [], "expires": 1_900_000_000}
ROWS = [
    {**ROW, "expired": False, "revoked": False},
    {**ROW, "expired": True, "revoked": False},
    {**ROW, "expired": False, "revoked": True, "used_by": ["ab" * 32]},
    {**ROW, "expired": False, "revoked": False, "used_by": ["ab" * 32, "cd" * 32]},
]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600), (" 1D ", 86_400)],
)
def test_a_time_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert inviting.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1y", "7 days", "99999d"])
def test_what_is_no_time_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(UserError, match="like 90m, 12h, 7d or 2w"):
        inviting.seconds_of(text)


@asynccontextmanager
async def validator(root: Path) -> AsyncIterator[list[Mapping[str, Any]]]:
    """The control socket of one that notes what it is asked."""
    asked: list[Mapping[str, Any]] = []

    async def note(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request)
        answers: dict[str, Mapping[str, Any]] = {
            "invite": {"invite": "daa1abc", **ROWS[0]},
            "revoke": {"id": "2e172b7f", "revoked": True},
            "invites": {"admission": "vouched", "per_voucher": 2, "vouched": 1, "invites": ROWS},
        }
        return answers[request["command"]]

    identity.create_node(root, "")
    control = ControlSocket(root / "control.sock", EventLog(lambda: 0))
    control.set_handlers(dict.fromkeys(("invite", "invites", "revoke"), note))
    async with trio.open_nursery() as nursery:
        await nursery.start(control.run)
        yield asked
        nursery.cancel_scope.cancel()


async def test_the_text_alone_is_on_standard_output(command: Command, tmp_path: Path) -> None:
    root = tmp_path / "alice"
    async with validator(root) as asked:
        said = await trio.to_thread.run_sync(
            command, "invite", "--uses", 2, "--expires", "1h", "--dir", root
        )
    assert (said.code, said.out) == (0, "daa1abc\n")
    assert "lets in 2 nodes" in said.err
    assert "daa-node invite --revoke 2e172b7f" in said.err
    assert [(a["uses"], a["expires_s"]) for a in asked] == [(2, 3600)]


async def test_invites_are_listed_with_how_they_stand(command: Command, tmp_path: Path) -> None:
    root = tmp_path / "alice"
    async with validator(root):
        said = await trio.to_thread.run_sync(command, "invite", "--list", "--dir", root)
        as_json = await trio.to_thread.run_sync(
            command, "invite", "--list", "--json", "--dir", root
        )
    assert "vouches for 1 of 2 trainers" in said.out
    states = [line.rsplit("  ", 1)[-1] for line in said.out.splitlines()[2:6]]
    assert states == ["open", "expired", "revoked", "used up"]
    assert f"used by {'cd' * 32}" in said.out
    assert len(json.loads(as_json.out)["invites"]) == 4


async def test_one_is_taken_back_by_its_name(command: Command, tmp_path: Path) -> None:
    root = tmp_path / "alice"
    async with validator(root) as asked:
        said = await trio.to_thread.run_sync(
            command, "invite", "--revoke", "2E172B7F", "--dir", root
        )
    assert "lets nobody in any more" in said.out
    assert asked[0]["id"] == "2e172b7f"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--uses", 0), "--uses 0: 1 to 256 nodes"),
        (("--uses", 257), "--uses 257: 1 to 256 nodes"),
        (("--expires", "60w"), "--expires: a minute to 366 days"),
        (("--expires", "7"), "a number and a unit"),
    ],
)
def test_terms_that_no_invite_has_are_a_mistake_of_the_line(
    command: Command, tmp_path: Path, words: tuple[object, ...], says: str
) -> None:
    assert command("init", "--dir", tmp_path / "alice").code == 0
    said = command("invite", *words, "--dir", tmp_path / "alice")
    assert (said.code, says in said.err) == (2, True)


def test_what_is_no_invite_is_told_where_nobody_can_be_asked_too(
    command: Command, tmp_path: Path
) -> None:
    said = command("join", "invite.txt", "--dir", tmp_path / "finn")
    assert (said.code, "this is no invite" in said.err) == (2, True)


def test_without_a_daemon_there_is_no_invite(command: Command, tmp_path: Path) -> None:
    assert command("init", "--dir", tmp_path / "alice").code == 0
    said = command("invite", "--dir", tmp_path / "alice")
    assert said.code == 1
    assert "no daemon is running" in said.err
