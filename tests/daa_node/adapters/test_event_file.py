"""The event log on disk: bounded whatever happens, and silent about nothing it lost."""

import json
import os
import resource
from pathlib import Path

import pytest

from daa_node.adapters.event_file import EventFile
from daa_node.observability.config import LogConfig


def test_what_only_its_owner_may_read_stays_so_when_it_is_rotated(tmp_path: Path) -> None:
    limits = LogConfig(file_bytes_max=10_000, files_max=1)
    file = EventFile(tmp_path / "audit", lambda: limits, mode=0o600)
    for _ in range(300):
        file.write_line("x" * 100)
    file.close()
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 2


def test_files_are_rotated_and_their_sum_is_bounded(tmp_path: Path) -> None:
    limits = LogConfig(file_bytes_max=10_000, files_max=3)
    file = EventFile(tmp_path / "events.jsonl", lambda: limits)
    for index in range(2_000):
        file.write_line(json.dumps({"index": index, "filling": "x" * 80}))
    names = sorted(os.listdir(tmp_path))
    assert names == ["events.jsonl"] + [f"events.jsonl.{n}" for n in (1, 2, 3)]
    assert all((tmp_path / name).stat().st_size <= 10_000 for name in names)
    newest = (tmp_path / "events.jsonl").read_text().splitlines()[-1]
    assert json.loads(newest)["index"] == 1_999
    oldest = (tmp_path / "events.jsonl.1").read_text().splitlines()[-1]
    first = (tmp_path / "events.jsonl").read_text().splitlines()[0]
    assert json.loads(oldest)["index"] + 1 == json.loads(first)["index"]


def test_where_fewer_files_are_kept_from_now_on_the_oldest_go(tmp_path: Path) -> None:
    limits = LogConfig(file_bytes_max=10_000, files_max=5)
    file = EventFile(tmp_path / "e", lambda: limits)
    for _ in range(100):
        file.write_line("y" * 1_000)
    assert len(os.listdir(tmp_path)) == 6
    limits = LogConfig(file_bytes_max=10_000, files_max=2)
    for _ in range(10):
        file.write_line("z" * 1_000)
    assert sorted(os.listdir(tmp_path)) == ["e", "e.1", "e.2"]


def test_a_restarted_daemon_appends_and_still_rotates_in_time(tmp_path: Path) -> None:
    limits = LogConfig(file_bytes_max=10_000, files_max=1)
    for _ in range(50):
        file = EventFile(tmp_path / "e", lambda: limits)
        file.write_line("y" * 1_000)
        file.close()
    assert (tmp_path / "e").stat().st_size <= 11_001
    assert sorted(os.listdir(tmp_path)) == ["e", "e.1"]


def test_of_a_line_that_finds_no_room_for_all_of_it_nothing_stays(tmp_path: Path) -> None:
    path, told = tmp_path / "e", list[str]()
    file = EventFile(path, LogConfig, told.append)
    file.write_line("before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 4, before[1]))
        file.write_line("no room for all of this")
        assert path.read_text() == "before\n"
        file.write_line("nor for this one, whatever it says")
        file.close()
        file = EventFile(path, LogConfig)  # the next start
        file.write_line("x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(told) == 1
    assert path.read_text() == "before\nx\n"


@pytest.mark.parametrize("whole", ["before\n", ""])
def test_a_line_that_a_killed_process_has_left_unfinished_goes(tmp_path: Path, whole: str) -> None:
    path = tmp_path / "e"
    path.write_text(whole + '{"ts":17')
    file = EventFile(path, LogConfig)
    file.write_line("after")
    assert path.read_text() == whole + "after\n"


def test_a_full_disk_costs_lines_and_the_gap_is_told_afterwards(tmp_path: Path) -> None:
    limits, told = LogConfig(), list[str]()
    file = EventFile(tmp_path / "e", lambda: limits, told.append)
    file.write_line("before")
    assert not told
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    file.close()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # nothing can be opened
        file.write_line("lost")
        file.write_line("lost")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    file.write_line("after")
    assert len(told) == 1
    assert f"cannot write {tmp_path / 'e'}" in told[0]
    lines = (tmp_path / "e").read_text().splitlines()
    assert [lines[0], lines[-1]] == ["before", "after"]
    assert json.loads(lines[1]) == {"name": "events_lost", "count": 2}
