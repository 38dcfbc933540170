"""Settings of a running daemon: told with where they come from, and changed only as was agreed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from daa_node.cli import identity
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.live_settings import LiveSettings
from daa_node.config import SAFE_KEYS
from daa_node.errors import UserError
from daa_node.observability.events import EventLog

TEXT = "# mine\nlog:\n  files_max: 5  # enough\nrole: edge\n"


class Inline:
    async def run(self, work: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()  # as where a thread does it
        return work()


class Subject:
    """Settings in a file, of a daemon that has just started."""

    def __init__(self, root: Path, text: str = TEXT) -> None:
        self.directory = DataDirectory(root)
        self.file = self.directory.config
        self.file.write_text(text)
        self.events = EventLog(lambda: 0)
        loaded = identity.open_config(self.directory)
        self.live = LiveSettings(self.directory, None, loaded, self.events, Inline())

    async def told(self) -> dict[str, dict[str, Any]]:
        return {each["key"]: each for each in (await self.live.told())["settings"]}

    async def change(self, confirm: bool = False, **changes: float | None) -> dict[str, Any]:
        digest = (await self.live.told())["digest"]
        named = {key.replace("__", "."): value for key, value in changes.items()}
        return dict(await self.live.change(named, digest, confirm))


async def test_each_setting_says_where_it_comes_from_and_whether_it_can_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAA_STORAGE__BYTES_MAX", "5000000000")
    told = await Subject(tmp_path).told()
    file = tmp_path.resolve() / "config.yaml"
    assert told["log.files_max"] == {
        "key": "log.files_max",
        "value": 5,
        "origin": f"{file}:3",
        "reloads": True,
    }
    assert told["role"] == {"key": "role", "value": "edge", "origin": f"{file}:4", "reloads": False}
    assert told["log.file_bytes_max"]["origin"] == "default"
    assert told["storage.bytes_max"]["origin"] == "environment DAA_STORAGE__BYTES_MAX"
    assert sorted(key for key, each in told.items() if each["reloads"]) == sorted(SAFE_KEYS)


async def test_a_change_is_shown_first_and_made_when_it_is_confirmed(tmp_path: Path) -> None:
    subject = Subject(tmp_path)
    subject.file.chmod(0o640)
    shown = await subject.change(log__files_max=9, network__upload_mbit_s=2.5)
    assert shown["diff"] == [
        {"key": "network.upload_mbit_s", "before": None, "after": 2.5},
        {"key": "log.files_max", "before": 5, "after": 9},
    ]
    assert (shown["confirmed"], shown["needs_restart"]) == (False, [])
    assert subject.file.read_text() == TEXT
    made = await subject.change(True, log__files_max=9, network__upload_mbit_s=2.5)
    assert (made["diff"], made["confirmed"]) == (shown["diff"], True)
    assert subject.file.read_text() == (
        TEXT.replace("files_max: 5", "files_max: 9") + "network:\n  upload_mbit_s: 2.5\n"
    )
    assert subject.file.stat().st_mode & 0o777 == 0o640
    assert (subject.live.now.log.files_max, subject.live.now.network.upload_mbit_s) == (9, 2.5)
    assert made["digest"] == (await subject.live.told())["digest"]
    (event,) = [e for e in subject.events.tail() if e["name"] == "config_reloaded"]
    assert event["changed"] == ["network.upload_mbit_s", "log.files_max"]


async def test_settings_that_have_changed_meanwhile_are_not_overwritten(tmp_path: Path) -> None:
    subject = Subject(tmp_path)
    digest = (await subject.live.told())["digest"]
    subject.file.write_text(TEXT.replace("5", "6"))
    with pytest.raises(UserError, match="has changed since"):
        await subject.live.change({"log.files_max": 9}, digest, confirm=True)
    assert "files_max: 6" in subject.file.read_text()


async def test_what_else_a_reload_would_take_over_is_shown_too(tmp_path: Path) -> None:
    subject = Subject(tmp_path)
    subject.file.write_text(TEXT.replace("edge", "cloud") + "storage: {bytes_max: 7000000000}\n")
    shown = await subject.change(log__files_max=9)
    assert [each["key"] for each in shown["diff"]] == ["storage.bytes_max", "log.files_max"]
    assert shown["needs_restart"] == ["role"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"role": 1}, "role cannot change while the daemon runs; these can: log.file"),
        ({"api.listen": None}, "api.listen cannot change"),
        ({"none.such": 1}, "none.such cannot change"),
        ({"": 1}, "cannot change"),
        ({"log.files_max": 0}, "log.files_max: .*greater than or equal to 1"),
        ({"log.files_max": None}, "log.files_max: .*integer"),
        ({"log.files_max": 1.5}, "log.files_max: .*integer"),
        ({"storage.bytes_max": 9_000_000_000}, "stays 5000000000: environment DAA_STORAGE__BYTES"),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, float | None], words: str
) -> None:
    monkeypatch.setenv("DAA_STORAGE__BYTES_MAX", "5000000000")
    subject = Subject(tmp_path)
    digest = (await subject.live.told())["digest"]
    with pytest.raises(UserError, match=words):
        await subject.live.change(changes, digest, confirm=True)
    assert subject.file.read_text() == TEXT
    assert os.listdir(tmp_path) == ["config.yaml"]


async def test_of_two_changes_at_once_one_is_told_to_read_anew(tmp_path: Path) -> None:
    subject, refused = Subject(tmp_path), list[str]()
    digest = (await subject.live.told())["digest"]

    async def change(key: str, value: float) -> None:
        try:
            await subject.live.change({key: value}, digest, confirm=True)
        except UserError as fault:
            refused.append(str(fault))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change, "log.files_max", 8)
        nursery.start_soon(change, "storage.bytes_max", 6_000_000_000)
    (words,) = refused
    assert "has changed since" in words
