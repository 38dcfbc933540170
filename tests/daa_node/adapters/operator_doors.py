"""The operator's door, opened for a test, and requests to it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import trio
import trio.testing

from daa_node.adapters.certificate import Certificate
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.operator_door import operator_door
from daa_node.api.event_stream import EventStream
from daa_node.api.operator_desk import Transport
from daa_node.observability.events import EventLog
from tests.daa_node.adapters.http_asking import asked, connected
from tests.daa_node.api.operator_desks import STATUS, TOKENS, Done, operator_desk

TOKEN = f"Authorization: Bearer {TOKENS.read}\r\n".encode()
ADMIN = f"Authorization: Bearer {TOKENS.admin}\r\nContent-Type: application/json\r\n".encode()


class Opened:
    """A door that runs, and what it told."""

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        certificate: Certificate | None = None,
        hosts: tuple[str, ...] = (),
    ) -> None:
        self.events = EventLog(lambda: 0)
        around = self.events, Shortage(), Random(1)
        self.door = operator_door(listen, *around, certificate, hosts)
        self.done = Done()
        followed = EventStream(self.events, "1f00c2ab").routes()
        transport = Transport.PLAIN if certificate is None else Transport.TLS
        desk = operator_desk(
            lambda: self.port, hosts=hosts, done=self.done, more=followed, transport=transport
        )
        self.door.set_asking_desk(desk.answer)

    @property
    def port(self) -> int:
        return int(self.door.standing()["listens"].rpartition(":")[2])

    async def until_told(self, name: str) -> dict[str, Any]:
        while not self.events.counts[name]:
            await trio.testing.wait_all_tasks_blocked()
        return [event for event in self.events.tail() if event["name"] == name][-1]

    async def connect(self, local: str = "127.0.0.1") -> trio.SocketStream:
        return await connected(self.port, local)

    def get(self, path: str = "/v1/status", head: bytes = TOKEN, last: bool = True) -> bytes:
        words = f"GET {path} HTTP/1.1\r\nHost: localhost:{self.port}\r\n".encode() + head
        return words + (b"Connection: close\r\n\r\n" if last else b"\r\n")

    def post(self, head: bytes, path: str = "/v1/pause", last: bool = True) -> bytes:
        """A head, without what it announces of a body."""
        return self.get(path, ADMIN + head, last).replace(b"GET", b"POST", 1)

    async def ask(self, request: bytes) -> bytes:
        """All that it says until it hangs up; b"reset" at the end if it does so rudely."""
        return await asked(self.port, request)

    async def check_alive(self) -> None:
        answer = await self.ask(self.get())
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == STATUS
        assert not self.events.counts["visit_failed"]
        assert not self.events.counts["api_failed"]


@asynccontextmanager
async def opened(
    certificate: Certificate | None = None, hosts: tuple[str, ...] = ()
) -> AsyncIterator[Opened]:
    subject = Opened(certificate=certificate, hosts=hosts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subject.door.run)
        await subject.until_told("api_opened")
        yield subject
        nursery.cancel_scope.cancel()
