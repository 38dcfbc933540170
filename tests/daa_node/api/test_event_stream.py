"""Events over HTTP: each once and in order, from where a reader has left off, whoever is slow."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from daa_node.api.event_stream import (
    ADMIN_STREAMS,
    BATCH_EVENTS_MAX,
    HEARTBEAT_S,
    PAUSE_S,
    SENDS_AT_ONCE,
    STREAMS_MAX,
    EventStream,
)
from daa_node.api.operator_desk import OperatorDesk
from daa_node.observability.events import DECISION, TAIL_EVENTS_MAX, EventLog
from daa_node.wire.http_messages import Reply, Visit
from tests.daa_node.api.operator_desks import TOKENS, operator_desk

LIFE = "1f00c2ab"


class Followed:
    """A log, and the desk that tells of it."""

    def __init__(self, events: int = 0) -> None:
        self.log = EventLog(lambda: 0)
        self.events = EventStream(self.log, LIFE)
        self.desk: OperatorDesk = operator_desk(more=self.events.routes())
        self.emit(events)

    def emit(self, count: int) -> None:
        for _ in range(count):
            self.log.emit(DECISION, number=self.log.emitted + 1)

    async def ask(
        self,
        query: str = "",
        last_event_id: str = "",
        method: str = "GET",
        token: str = TOKENS.read,
    ) -> Reply:
        visit = Visit(
            method,
            f"/v1/events{query}",
            "localhost:9180",
            authorization=f"Bearer {token}",
            last_event_id=last_event_id,
        )
        return await self.desk.answer(visit)

    @asynccontextmanager
    async def reader(self, query: str = "", last_event_id: str = "") -> AsyncIterator["Reader"]:
        reply = await self.ask(query, last_event_id)
        assert reply.stream is not None
        reader = Reader()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reply.stream, reader.send)
            await trio.testing.wait_all_tasks_blocked()
            yield reader
            nursery.cancel_scope.cancel()


class Reader:
    """What was sent to one."""

    def __init__(self) -> None:
        self.sends: list[bytes] = []
        self.may_take = trio.Event()
        self.may_take.set()

    async def send(self, piece: bytes) -> None:
        await self.may_take.wait()
        self.sends.append(piece)

    def frames(self) -> list[dict[str, str]]:
        """The fields of each frame, without what opens the stream and what only beats."""
        found = []
        for block in b"".join(self.sends).decode().split("\n\n"):
            fields = dict(line.partition(": ")[::2] for line in block.splitlines())
            if "event" in fields:
                found.append(fields)
        return found

    def numbers(self) -> list[int | None]:
        """Of the events; None where it was told that some were missed."""
        return [json.loads(each["data"]).get("number") for each in self.frames()]


async def test_an_event_comes_with_its_name_its_number_and_as_the_log_has_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    followed = Followed(events=3)
    async with followed.reader() as reader:
        assert reader.frames() == []
        followed.emit(1)
        await trio.testing.wait_all_tasks_blocked()
        (frame,) = reader.frames()
        assert (frame["id"], frame["event"]) == (f"{LIFE}-4", "decision")
        assert json.loads(frame["data"]) == followed.log.tail(1)[0]
        followed.emit(2)
        await trio.sleep(2 * PAUSE_S)
        assert reader.numbers() == [4, 5, 6]


async def test_a_reader_begins_with_as_many_of_the_newest_as_it_asks_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    followed = Followed(events=10)
    async with followed.reader("?tail=3") as reader:
        assert reader.numbers() == [8, 9, 10]
    async with followed.reader(f"?tail={TAIL_EVENTS_MAX}") as reader:
        assert reader.numbers() == list(range(1, 11))
    assert (await followed.ask("?tail=2001")).status == 400


async def test_who_comes_again_goes_on_where_it_left_off(
    autojump_clock: trio.testing.MockClock,
) -> None:
    followed = Followed(events=10)
    async with followed.reader(last_event_id=f"{LIFE}-7") as reader:
        followed.emit(1)
        await trio.sleep(2 * PAUSE_S)
        assert reader.numbers() == [8, 9, 10, 11]
    async with followed.reader("?tail=5", last_event_id=f"{LIFE}-11") as reader:
        assert reader.numbers() == []


async def test_a_burst_comes_at_once_and_a_storm_in_few_sends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    followed = Followed()
    async with followed.reader() as reader:
        await trio.sleep(1.0)
        for _ in range(2):
            before = len(reader.sends)
            for number in range(1, SENDS_AT_ONCE + 1):
                followed.emit(1)
                await trio.testing.wait_all_tasks_blocked()
                assert len(reader.sends) == before + number
            await trio.sleep(SENDS_AT_ONCE * PAUSE_S)
        before, begun_s = len(reader.sends), trio.current_time()
        while trio.current_time() < begun_s + 2.0:
            followed.emit(1)
            await trio.sleep(0.001)
        most = SENDS_AT_ONCE + 2.0 / PAUSE_S + 1
        assert most - 4 <= len(reader.sends) - before <= most
        await trio.sleep(PAUSE_S)
        assert reader.numbers() == list(range(1, followed.log.emitted + 1))


async def test_what_the_tail_has_lost_is_told_with_its_count(
    autojump_clock: trio.testing.MockClock,
) -> None:
    followed = Followed(events=TAIL_EVENTS_MAX + 5)
    async with followed.reader(last_event_id=f"{LIFE}-2") as reader:
        await trio.sleep(PAUSE_S * (TAIL_EVENTS_MAX // BATCH_EVENTS_MAX + 2))
        first, *others = reader.frames()
        assert (first["event"], json.loads(first["data"])) == ("events_missed", {"count": 3})
        assert "id" not in first
        assert reader.numbers()[1:] == list(range(6, TAIL_EVENTS_MAX + 6))
        assert len(others) == TAIL_EVENTS_MAX
        most = max(piece.count(b"event: ") for piece in reader.sends)
        assert most == BATCH_EVENTS_MAX + 1


@pytest.mark.parametrize("shown", ["00000000-7", f"{LIFE}-11", f"{LIFE}-999999999999999"])
async def test_the_number_of_another_start_gets_all_and_is_told_so(
    shown: str, autojump_clock: trio.testing.MockClock
) -> None:
    followed = Followed(events=10)
    async with followed.reader(last_event_id=shown) as reader:
        assert reader.frames()[0]["event"] == "events_missed"
        assert json.loads(reader.frames()[0]["data"]) == {"count": None}
        assert reader.numbers()[1:] == list(range(1, 11))


@pytest.mark.parametrize("shown", ["7", f"{LIFE}-", f"{LIFE}--7", f"{LIFE}-7, {LIFE}-8", "x" * 999])
async def test_what_is_no_number_of_ours_is_refused(shown: str) -> None:
    assert (await Followed(events=3).ask(last_event_id=shown)).status == 400


async def test_a_slow_reader_holds_up_nobody_and_holds_no_events(
    autojump_clock: trio.testing.MockClock,
) -> None:
    followed = Followed()
    async with followed.reader() as slow, followed.reader() as quick:
        slow.may_take = trio.Event()
        count = TAIL_EVENTS_MAX + 100
        for _ in range(count):
            followed.emit(1)
            await trio.sleep(0.01)
        await trio.sleep(2 * PAUSE_S)
        assert quick.numbers() == list(range(1, count + 1))
        assert slow.numbers() == []
        assert len(followed.events._frames) == TAIL_EVENTS_MAX
        slow.may_take.set()
        await trio.sleep(PAUSE_S * (TAIL_EVENTS_MAX // BATCH_EVENTS_MAX + 3))
        numbers = slow.numbers()
        gap = numbers.index(None)
        assert numbers[:gap] + numbers[gap + 1 :] == [*numbers[:gap], *range(101, count + 1)]
        told: dict[str, Any] = json.loads(slow.frames()[gap]["data"])
        assert told["count"] == 100 - gap


async def test_when_nothing_happens_a_beat_is_heard(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with Followed().reader() as reader:
        await trio.sleep(2 * HEARTBEAT_S + 1)
        assert reader.sends[1:] == [b":\n\n", b":\n\n"]


async def test_places_are_counted_and_come_back() -> None:
    followed = Followed()
    async with trio.open_nursery() as nursery:
        for _ in range(STREAMS_MAX):
            reply = await followed.ask()
            assert reply.stream is not None
            nursery.start_soon(reply.stream, Reader().send)
        await trio.testing.wait_all_tasks_blocked()
        assert (await followed.ask()).status == 503
        nursery.cancel_scope.cancel()
    assert (await followed.ask()).status == 200


async def test_whoever_may_only_read_leaves_places_to_the_admin_token() -> None:
    followed = Followed()
    async with trio.open_nursery() as nursery:
        for token, count in ((TOKENS.read, STREAMS_MAX), (TOKENS.admin, ADMIN_STREAMS)):
            for _ in range(count):
                reply = await followed.ask(token=token)
                assert reply.stream is not None
                nursery.start_soon(reply.stream, Reader().send)
                await trio.testing.wait_all_tasks_blocked()
            assert (await followed.ask()).status == 503
        assert followed.events.readers == STREAMS_MAX + ADMIN_STREAMS
        assert (await followed.ask(token=TOKENS.admin)).status == 503
        nursery.cancel_scope.cancel()


async def test_those_who_are_answered_at_the_same_time_get_no_more_places(
    autojump_clock: trio.testing.MockClock,
) -> None:
    followed, late = Followed(), Reader()
    replies = [await followed.ask() for _ in range(STREAMS_MAX + 1)]
    assert {reply.status for reply in replies} == {200}
    *placed, last = [reply.stream for reply in replies if reply.stream is not None]
    async with trio.open_nursery() as nursery:
        for stream in placed:
            nursery.start_soon(stream, Reader().send)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1.0):
            await last(late.send)
        assert (followed.events.readers, len(late.sends)) == (STREAMS_MAX, 1)
        nursery.cancel_scope.cancel()
