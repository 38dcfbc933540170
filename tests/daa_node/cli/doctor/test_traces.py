"""Torn logs, dead workers and refusals of the last run are read from what it left."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from daa_node.adapters.journal_format import framed, guard_of, log_of
from daa_node.advice.of_messages import CLOCKS
from daa_node.advice.table import ALL_MESSAGES, OF_REFUSALS
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.doctor import outside
from daa_node.cli.doctor.command import told
from daa_node.cli.doctor.findings import Check, Finding, Level
from daa_node.cli.doctor.outside import Stage, Try
from daa_node.cli.doctor.registry import look
from daa_node.cli.doctor.scene import Scene, open_scene
from daa_node.cli.doctor.traces import REASONS_MAX
from daa_node.seams import Address
from tests.daa_node.cli.doctor.scenes import ROOMY, found_by, made_node, only

STARTED = {"ts": 1.0, "name": "node_started"}
ROUND = {"ts": 1.5, "name": "round_started"}
BORN = {"ts": 2.0, "name": "trainer_started", "pid": 17}
DEAD = {"ts": 3.0, "name": "trainer_lost", "why": "killed by signal 9 (SIGKILL)"}


def write_events(root: Path, *events: object, end: str = "\n") -> None:
    (root / "events.jsonl").write_text("\n".join(map(json.dumps, events)) + end)


async def test_a_torn_last_line_is_told_but_not_while_a_daemon_writes(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    write_events(root, STARTED)
    assert (await only("event log", root))[0] == "ok"
    write_events(root, STARTED, end='\n{"ts": 2.0, "na')
    level, cause, _ = await only("event log", root)
    assert (level, "in the middle of a line" in cause) == ("warning", True)
    with DataDirectory(root).locked():
        assert (await only("event log", root))[0] == "ok"


async def test_events_that_the_disk_did_not_take_are_counted(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    write_events(root, STARTED, {"name": "events_lost", "count": 7})
    level, cause, _ = await only("event log", root)
    assert (level, "lacks 7 events" in cause) == ("warning", True)


@pytest.mark.parametrize(
    ("check", "event"),
    [
        ("event log", {"name": "events_lost", "count": "many"}),
        ("event log", {"name": "events_lost", "count": None}),
        ("worker", {**DEAD, "ts": 1e300}),
        ("worker", {**DEAD, "ts": float("nan")}),
    ],
)
async def test_an_event_of_another_form_costs_its_check_alone(
    tmp_path: Path, check: str, event: dict[str, object]
) -> None:
    root = made_node(tmp_path / "n")
    write_events(root, STARTED, event)
    (found,) = await found_by(check, root)
    assert (found.level, "has another form" in found.cause) == ("unmeasured", True)


def test_a_cause_without_words_is_told_as_the_others_are() -> None:
    assert list(told([Finding("worker", Level.WARNING, "", "Look")]))[0] == "worker  warning     "


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"17\n", b"{}\n", b"\0\n"])
async def test_no_line_of_the_log_stops_the_doctor(tmp_path: Path, line: bytes) -> None:
    root = made_node(tmp_path / "n")
    (root / "events.jsonl").write_bytes(line)
    for check in ("event log", "worker", "refusals", "identity"):
        assert await found_by(check, root)


@pytest.mark.parametrize(
    ("stored", "level", "words"),
    [
        (log_of([b"one", b"two"]), "ok", "2 records"),
        (log_of([b"one", b"two"])[:-1], "warning", "after 1 whole records"),
        (b"rubbish that is long enough", "error", "does not begin like a file of this program"),
        (
            log_of([b"one"])[:-1] + b"?" + framed(b"two"),
            "error",
            "a whole one follows at byte",
        ),
    ],
)
async def test_a_damaged_journal_is_told_from_a_torn_one(
    tmp_path: Path, stored: bytes, level: str, words: str
) -> None:
    root = made_node(tmp_path / "n")
    wal = root / "agreement" / "wal"
    wal.write_bytes(stored)
    found = await only("journal", root)
    assert (found[0], words in found[1]) == (level, True)
    assert wal.read_bytes() == stored


async def test_a_damaged_guard_is_told(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    (root / "agreement" / "wal").write_bytes(log_of([]))
    (root / "agreement" / "guard").write_bytes(guard_of(b"so far"))
    assert (await only("journal", root))[0] == "ok"
    (root / "agreement" / "guard").write_bytes(guard_of(b"so far")[:-1] + b"?")
    level, cause, _ = await only("journal", root)
    assert (level, "guard is damaged" in cause) == ("warning", True)


@pytest.mark.parametrize(
    ("events", "level"),
    [
        ([STARTED], "unmeasured"),
        ([STARTED, BORN], "ok"),
        ([STARTED, BORN, DEAD, BORN], "warning"),
        ([STARTED, *[BORN, DEAD] * 4, BORN], "error"),
        ([STARTED, BORN, DEAD], "error"),
        ([STARTED, BORN, DEAD, ROUND, STARTED, BORN], "ok"),
        ([STARTED, BORN, DEAD, ROUND, BORN, STARTED, ROUND], "ok"),
    ],
)
async def test_a_worker_that_died_is_told_with_its_last_words(
    tmp_path: Path, events: list[object], level: str
) -> None:
    root = made_node(tmp_path / "n")
    write_events(root, *events)
    (root / "trainer").mkdir()
    (root / "trainer" / "worker.log").write_text("".join(f"line {n}\n" for n in range(99)))
    found = await only("worker", root)
    assert found[0] == level
    if level in ("warning", "error"):
        assert "killed by signal 9 (SIGKILL)" in found[1]
        assert "line 98" in found[1]
        assert "line 90\n" not in found[1]


async def test_a_worker_is_known_that_started_before_its_daemon_had_read_its_journal(
    tmp_path: Path,
) -> None:
    root = made_node(tmp_path / "n")
    read = {"ts": 2.0, "name": "exec_certified"}
    write_events(root, STARTED, BORN, DEAD, ROUND, {**BORN, "pid": 18}, read, read, STARTED, ROUND)
    assert await only("worker", root) == ("ok", "the last run lost none; pid 18", "")


async def test_refusals_are_told_once_for_each_reason(tmp_path: Path) -> None:
    refusal = {"name": "peer_refused", "peer_id": "12D3", "by": "peer"}
    chain = {
        **refusal,
        "reason": "wrong-chain",
        "detail": "both need the same genesis.json; give it to the other",
    }
    clock = {**refusal, "reason": "clock-skew", "detail": "set the wrong one of the two (NTP)"}
    root = made_node(tmp_path / "n")
    write_events(root, STARTED, chain, clock, chain)
    first, second = await found_by("refusals", root)
    assert first.cause.startswith("1 times clock-skew, the last by peer, of peer 12D3")
    assert second.cause.startswith("2 times wrong-chain")
    assert "NTP" in first.advice
    assert "Compare chain ids" in second.advice


async def test_what_another_node_says_chooses_no_advice(tmp_path: Path) -> None:
    """Else a stranger could have doctor say: remove the directory."""
    for piece, advice in ((row.key, row.do) for row in ALL_MESSAGES if row.is_drastic):
        for reason in ("broken", piece):
            refusal = {"name": "peer_refused", "by": "peer", "reason": reason, "detail": piece}
            root = tmp_path / "n"
            if not root.exists():
                made_node(root)
            write_events(root, STARTED, refusal)
            (found,) = await found_by("refusals", root)
            assert found.advice != advice or reason in OF_REFUSALS
            tried = Try(Address("/ip4/192.0.2.1/tcp/1"), Stage.HELLO, piece, reason)
            assert outside._failed(tried, is_met=False).advice == found.advice
            assert outside._clock([replace(tried, reason="clock-skew")], ()).advice == CLOCKS


async def test_many_reasons_of_others_hide_nothing(tmp_path: Path) -> None:
    odd = [
        {"name": "peer_refused", "by": "peer", "reason": f"a{number}", "detail": ""}
        for number in [*range(300)] * 2
    ]
    root = made_node(tmp_path / "n")
    known = [
        {"name": "peer_refused", "by": "peer", "reason": reason, "detail": ""}
        for reason in [*OF_REFUSALS.keys() - {"wrong-chain"}] * 2
    ]
    ours = {"name": "peer_refused", "by": "us", "reason": "wrong-chain"}
    write_events(root, STARTED, ours, *known, *odd)
    found = await found_by("refusals", root)
    assert len(found) == len(OF_REFUSALS) + REASONS_MAX + 1
    assert any("1 times wrong-chain" in one.cause for one in found)
    assert found[-1].cause == "292 reasons more, of other nodes"


async def test_what_cannot_be_looked_at_stops_no_other_check(tmp_path: Path) -> None:
    async def find(_scene: Scene) -> list[Finding]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "n/agreement/wal")

    (found,) = await look(Check("journal", find), open_scene(tmp_path, None, ROOMY))
    assert (str(found.level), "'n/agreement/wal'" in found.cause) == ("unmeasured", True)
