"""Where a system lacks what Linux has, something else does the work: taken away here by hand."""

import fcntl
import os
from pathlib import Path

import pytest

from daa_node import system_calls
from daa_node.adapters import disk_journal
from daa_node.adapters.offload import ThreadOffload
from daa_node.cli import identity
from daa_node.identity.record import Role
from daa_node.tensors import reserve

LACKING = ("fdatasync", "posix_fallocate", "sched_getaffinity")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without them."""
    for name in LACKING:
        monkeypatch.delattr(os, name, raising=False)


async def test_a_journal_keeps_its_records(
    tmp_path: Path, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, real = list[int](), os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    expected: list[bytes] = []
    for _ in range(2):
        async with disk_journal.open_journal(tmp_path / "agreement", ThreadOffload()) as journal:
            assert await journal.load() == expected
            before = len(synced)
            await journal.append(b"first")
            await journal.write_guard(b"guard")
            assert len(synced) > before + 1
        expected.append(b"first")


def test_where_a_sync_leaves_bytes_in_the_disks_cache_they_are_told_to_leave_it(
    tmp_path: Path, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda _descriptor, command: asked.append(command))
    with (tmp_path / "vote").open("wb") as file:
        system_calls.sync_data(file.fileno())
    assert asked == [51]


def test_room_is_held_and_what_is_there_stays(tmp_path: Path, elsewhere: None) -> None:
    path, size_bytes = tmp_path / "state", system_calls.ROOM_BYTES + 4096
    reserve(path, size_bytes)
    assert path.read_bytes() == bytes(size_bytes)
    assert path.stat().st_blocks * 512 >= size_bytes
    kept = os.urandom(size_bytes - 100)
    path.write_bytes(kept)
    with path.open("r+b") as file:
        system_calls.hold_room(file.fileno(), size_bytes)
    assert path.read_bytes() == kept + bytes(100)


def test_a_node_is_given_the_threads_of_the_whole_machine(
    elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert system_calls.cores() == 3
    assert "threads: 2" in identity.role_settings(Role.CLOUD)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert system_calls.cores() == 1
