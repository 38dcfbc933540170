"""Events as they happen, to programs that read them as server-sent events (WHATWG HTML, 9.2).

    id: 1f00c2ab-17        17th event since the start that the word before it names
    event: round_finalized
    data: {"ts":...}       the event, as `daa-node logs --json` has it

A reader has no queue of its own: it has a place in the log's tail, and is told how many events it
has missed where the tail was shorter. Frames are made once, for all, and kept as long as the tail
has their events: after a break many come at once and read all of it. A line `:` comes when nothing
else does, so that either side sees when the other is gone.
"""

import json
import re

import trio

from daa_node.api.replies import POLICY, said
from daa_node.api.routes import Asked, Parameter, Route
from daa_node.api.tokens import Right
from daa_node.observability.events import TAIL_EVENTS_MAX, EventLog, as_line
from daa_node.wire.http_messages import Reply, Send

STREAMS_MAX = 64  # fifty dashboards, and those that come again before we know that they were gone
ADMIN_STREAMS = 4  # beyond these, for the admin token: whoever may only read keeps no operator out
HEARTBEAT_S = 15.0
PAUSE_S = 0.05  # a storm of events costs twenty sends a second to each reader
SENDS_AT_ONCE = 8  # but before it are so many without a pause: events of a round come in bursts
BATCH_EVENTS_MAX = 256  # one send; whoever is further behind gets more of them
RETRY_MS = 2_000
EVENTS = "text/event-stream; charset=utf-8"
_ID = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})")


class EventStream:
    """Of one daemon. `life`: 8 hex digits, of this start of it alone."""

    def __init__(self, log: EventLog, life: str) -> None:
        self._log = log
        self._life = life
        self._frames: dict[int, bytes] = {}  # by number, in the order in which they were made
        self.readers = 0

    def routes(self) -> tuple[Route, ...]:
        tail = Parameter(
            "tail", "how many of the newest events come first", 0, most=TAIL_EVENTS_MAX
        )
        row = Route(
            "GET",
            "/v1/events",
            Right.READ,
            self._answer,
            (tail,),
            gives=EVENTS,
            meaning="Events as they happen, after the one that the header Last-Event-ID names.",
        )
        return (row,)

    async def _answer(self, asked: Asked) -> Reply:
        places = STREAMS_MAX + (ADMIN_STREAMS if asked.right is Right.ADMIN else 0)
        full = f"{self.readers} programs follow the events already"
        if self.readers >= places:
            return said(503, full)
        shown = asked.visit.last_event_id
        if shown and not _ID.fullmatch(shown):
            return said(400, "Last-Event-ID is none of ours")
        begin, first = self._begin(shown, asked.number("tail"))

        async def stream(send: Send) -> None:
            if self.readers >= places:  # others were answered at the same time
                await send(f": {full}\n\n".encode())
                return
            self.readers += 1
            try:
                await send(b"retry: %d\n\n%s" % (RETRY_MS, first))
                await self._follow(begin, send)
            finally:
                self.readers -= 1

        headers = (
            ("Content-Type", EVENTS),
            ("X-Accel-Buffering", "no"),  # of a proxy in front of us
            *POLICY,
        )
        return Reply(200, headers, b"", stream)

    def _begin(self, shown: str, tail: int) -> tuple[int, bytes]:
        """After which number to begin, and what is said before that."""
        newest = self._log.emitted
        life, _, number = shown.partition("-")
        if not shown:
            return max(0, newest - tail), b""
        if life == self._life and int(number) <= newest:
            return int(number), b""
        # Of another start: nobody knows how much of it was missed, and all of this one is new.
        return 0, _frame("events_missed", json.dumps({"count": None}))

    async def _follow(self, number: int, send: Send) -> None:
        due_s = trio.current_time()  # when all sends so far were due, had they come evenly
        while True:
            with trio.move_on_after(HEARTBEAT_S) as quiet:
                await self._log.news(number)
            if quiet.cancelled_caught:
                await send(b":\n\n")
                continue
            missed, found = self._log.since(number, BATCH_EVENTS_MAX)
            pieces = [_frame("events_missed", json.dumps({"count": missed}))] if missed else []
            number += missed
            for event in found:
                number += 1
                if number not in self._frames:
                    self._keep(number, _frame(event["name"], as_line(event), self._id(number)))
                pieces.append(self._frames[number])
            await send(b"".join(pieces))
            now_s = trio.current_time()
            due_s = max(due_s, now_s) + PAUSE_S
            await trio.sleep(max(0.0, due_s - now_s - SENDS_AT_ONCE * PAUSE_S))

    def _id(self, number: int) -> str:
        return f"id: {self._life}-{number}\n"

    def _keep(self, number: int, frame: bytes) -> None:
        if len(self._frames) >= TAIL_EVENTS_MAX:
            del self._frames[next(iter(self._frames))]
        self._frames[number] = frame


def _frame(name: str, data: str, above: str = "") -> bytes:
    return f"{above}event: {name}\ndata: {data}\n\n".encode()
