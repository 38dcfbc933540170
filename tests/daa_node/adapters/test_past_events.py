"""The event log read again: in its order over all its files, and past whatever is no event."""

import os
from pathlib import Path

from daa_node.adapters.event_file import EventFile
from daa_node.adapters.past_events import logged
from daa_node.observability.config import LogConfig
from daa_node.observability.events import DECISION, EventLog, as_line


def times(path: Path, since_s: float = 0.0) -> list[float]:
    return [event["ts"] for event in logged(path, since_s)]


def test_all_files_are_read_the_oldest_first(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    file = EventFile(path, lambda: LogConfig(file_bytes_max=10_000, files_max=12))
    now_s = [0]
    log = EventLog(lambda: now_s[0] * 10**9, lambda event: file.write_line(as_line(event)))
    for second in range(1, 501):
        now_s[0] = second
        log.emit(DECISION, decision="train", reason="there is time for it " * 8)
    file.close()
    assert len(list(tmp_path.iterdir())) > 10  # so that .10 comes before .9
    assert times(path) == list(range(1, 501))
    assert times(path, 498.0) == [499, 500]


def test_files_that_are_older_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"ts": 99.0, "name": "decision"}\n')
    os.utime(path, (50.0, 50.0))
    assert times(path, 60.0) == []
    assert times(path, 40.0) == [99.0]


def test_what_is_no_event_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert times(path) == []
    lines = ["{", "[1]", "null", '{"name": "events_lost"}', '{"ts": "soon"}', "\xff", "x" * 70_000]
    lines.append("[" * 60_000)
    path.write_bytes("\n".join([*lines, '{"ts": 5.0, "name": "decision"}', '{"ts": 6']).encode())
    assert times(path) == [5.0]


def test_a_file_that_the_disk_cannot_read_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"ts": 5.0, "name": "decision"}\n')
    path.with_name("events.jsonl.1").symlink_to("/proc/self/mem")  # opens, and reads as EIO
    assert times(path) == [5.0]
