"""The event log: readable lines, bounded memory, subscribers that cannot hold it up."""

import ast
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
import trio

from daa_node.observability import events
from daa_node.observability.events import (
    DECISION,
    PEER_FAULT,
    ROUND_FINALIZED,
    SUBSCRIBER_EVENTS_MAX,
    SUBSCRIBERS_MAX,
    TAIL_EVENTS_MAX,
    TEXT_CHARS_MAX,
    Event,
    EventLog,
    as_line,
)

NAMED = re.compile(r'(?:^# (.*)\n)?^([A-Z_]+) = EventName\("[a-z_]+"\)(?:  # (.*))?$', re.MULTILINE)


def emitted_fields() -> dict[str, set[str]]:
    """By an event's name what the daemon's code gives it; what comes as ** is not seen."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in Path(events.__file__).parents[1].rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and call.args:
                name = getattr(call.args[0], "attr", getattr(call.args[0], "id", ""))
                given = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
                if getattr(call.func, "attr", "").endswith("emit"):
                    found[name] |= given
    return found


def test_each_event_has_the_fields_that_its_line_lists() -> None:
    emitted, listed = emitted_fields(), {}
    for above, name, beside in NAMED.findall(Path(events.__file__).read_text()):
        fields = (beside or above).partition(":")[0].replace(" or ", ",").split(",")
        listed[name] = {field.strip() for field in fields} - {""}
    assert listed.pop("TRAINER_STARTED") == {"pid", "device", "inner_state"}  # as its worker says
    assert {name: emitted.get(name) for name in listed} == listed


def fixed_wall_ns() -> int:
    return 1_700_000_000_123_456_789


def test_every_event_becomes_one_line_of_json() -> None:
    written: list[Event] = []
    log = EventLog(fixed_wall_ns, written.append)
    log.emit(ROUND_FINALIZED, round=7, vertex_id=b"\x01\xff", loss_nats=float("nan"), of=("a", 1))
    log.emit(DECISION, decision="wait", reason="two\nlines")
    lines = [as_line(event) for event in written]
    assert [json.loads(line) for line in lines] == [
        {
            "ts": 1_700_000_000.123457,
            "name": "round_finalized",
            "round": 7,
            "vertex_id": "01ff",
            "loss_nats": "nan",
            "of": ["a", 1],
        },
        {
            "ts": 1_700_000_000.123457,
            "name": "decision",
            "decision": "wait",
            "reason": "two\nlines",
        },
    ]
    assert all("\n" not in line for line in lines)


def test_the_tail_is_bounded_and_keeps_the_newest() -> None:
    log = EventLog(fixed_wall_ns)
    for index in range(TAIL_EVENTS_MAX + 10):
        log.emit(DECISION, index=index)
    assert len(log.tail()) == TAIL_EVENTS_MAX
    assert [event["index"] for event in log.tail(2)] == [TAIL_EVENTS_MAX + 8, TAIL_EVENTS_MAX + 9]
    assert log.tail(0) == []


def test_a_peers_words_cannot_make_a_line_long() -> None:
    written: list[Event] = []
    EventLog(fixed_wall_ns, written.append).emit(PEER_FAULT, detail="x" * 10**6, raw=b"y" * 10**6)
    assert len(as_line(written[0])) < 2 * TEXT_CHARS_MAX + 200


async def test_a_stalled_subscriber_misses_events_and_is_told_how_many() -> None:
    log = EventLog(fixed_wall_ns)
    async with log.subscribe() as events:
        for index in range(SUBSCRIBER_EVENTS_MAX + 3):
            log.emit(DECISION, index=index)
        got: list[Event] = [events.receive_nowait() for _ in range(SUBSCRIBER_EVENTS_MAX)]
        log.emit(DECISION, index="late")
        got += [events.receive_nowait(), events.receive_nowait()]
    assert [event.get("index") for event in got[:2]] == [0, 1]
    assert (got[-2]["name"], got[-2]["count"]) == ("events_missed", 3)
    assert got[-1]["index"] == "late"


async def test_one_subscriber_too_many_is_refused_and_leaving_makes_room() -> None:
    log = EventLog(fixed_wall_ns)
    async with trio.open_nursery() as nursery:

        async def listen(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            async with log.subscribe():
                task_status.started()
                await trio.sleep_forever()

        for _ in range(SUBSCRIBERS_MAX):
            await nursery.start(listen)
        with pytest.raises(RuntimeError, match="listening already"):
            await nursery.start(listen)
        nursery.cancel_scope.cancel()
    async with log.subscribe():
        log.emit(DECISION)
