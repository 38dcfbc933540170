"""Browsers are served over real sockets, and hostile ones hurt nobody but themselves."""

import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from daa_node.adapters.certificate import Certificate
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.http_door import (
    BYTES_AT_ONCE,
    BYTES_PER_S,
    HEAD_BYTES_MAX,
    HEAD_TIMEOUT_S,
    NEWCOMERS,
    PIECE_BYTES,
    PIECE_TIMEOUT_S,
    REQUEST_COST_BYTES,
    REQUESTS_MAX,
    RETRY_S_MIN,
    SOCKETS_MAX,
    HttpDoor,
)
from daa_node.gateway.config import GatewayConfig
from daa_node.observability.events import EventLog
from daa_node.wire.http_messages import Desk, Reply, Visit
from tests.daa_node.adapters.certificates import make_certificate
from tests.daa_node.adapters.http_asking import asked, connected
from tests.daa_node.gateway.front_desks import BIG, FILES, front_desk

PROMPTLY_S = 3.0  # of real time, on a busy machine
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x00"
)


class Opened:
    """A door that runs, and what it told."""

    def __init__(
        self, config: GatewayConfig, desk: Desk, certificate: Certificate | None = None
    ) -> None:
        self.events = EventLog(lambda: 0)
        self.door = HttpDoor(config, certificate, self.events, Shortage(), Random(1))
        self.door.set_desk(desk)

    @property
    def port(self) -> int:
        return int(self.door.standing()["listens"].rpartition(":")[2])

    def told(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events.tail() if event["name"] == name]

    async def until_told(self, name: str) -> dict[str, Any]:
        while not self.told(name):
            await trio.testing.wait_all_tasks_blocked()
        return self.told(name)[-1]

    async def connect(self, local: str = "127.0.0.1") -> trio.SocketStream:
        return await connected(self.port, local)

    async def ask(self, request: bytes, local: str = "127.0.0.1") -> bytes:
        """All that it says until it hangs up; b"reset" at the end if it does so rudely."""
        return await asked(self.port, request, local)


@asynccontextmanager
async def opened(
    config: GatewayConfig | None = None,
    desk: Desk | None = None,
    certificate: Certificate | None = None,
) -> AsyncIterator[Opened]:
    config = config or GatewayConfig(listen="127.0.0.1:0")
    subject = Opened(config, desk or front_desk(config).answer, certificate)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subject.door.run)
        await subject.until_told("gateway_opened")
        yield subject
        nursery.cancel_scope.cancel()


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


async def test_the_page_is_served_and_a_connection_serves_again() -> None:
    async with opened() as subject:
        answer = await subject.ask(
            GET + b"HEAD /pyodide/big.wasm HTTP/1.1\r\nHost: a\r\n\r\n" + LAST
        )
        first, _, rest = answer.partition(FILES["index.html"])
        assert first.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nDate: " in first
        assert rest.startswith(b"HTTP/1.1 421 ")
        assert rest.endswith(FILES["index.html"])
        assert rest.count(b"HTTP/1.1 ") == 2
        assert b"Connection: close" in rest


async def test_a_large_file_arrives_whole_and_head_brings_only_its_size() -> None:
    request = b"%s /pyodide/big.wasm HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with opened() as subject:
        assert body_of(await subject.ask(request % b"GET")) == BIG
        head = await subject.ask(request % b"HEAD")
        assert b"Content-Length: %d\r\n" % len(BIG) in head
        assert body_of(head) == b""


async def test_status_tells_where_it_is_and_it_says_so_once() -> None:
    async with opened() as subject:
        standing = subject.door.standing()
        assert standing["url"] == f"http://{standing['listens']}/"
        assert standing["failure"] is None
        assert len(subject.told("gateway_opened")) == 1


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x00\x01\x02\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"4"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"400"),
        (b"GET / HTTP/1.0\r\n\r\n", b"421"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\nabc", b"413"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n", b"413"),
        (b"GET /" + b"a" * 2 * HEAD_BYTES_MAX + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
    ],
)
async def test_what_is_no_request_for_us_is_refused_and_ends(
    request_bytes: bytes, status: bytes
) -> None:
    async with opened() as subject:
        answer = await subject.ask(request_bytes)
        assert answer.startswith(b"HTTP/1.1 " + status) or answer == b"reset"
        assert (await subject.ask(LAST)).startswith(b"HTTP/1.1 200 ")
        assert not subject.told("visit_failed")


async def test_a_websocket_is_not_opened_whatever_follows_the_request() -> None:
    async with opened() as subject:
        answer = await subject.ask(UPGRADE)
        assert b" 101 " not in answer
        assert (await subject.ask(LAST)).startswith(b"HTTP/1.1 200 ")
        assert not subject.told("visit_failed")


async def test_ten_megabytes_of_headers_are_cut_off_long_before() -> None:
    sent = 0

    async def pour(stream: trio.SocketStream) -> None:
        nonlocal sent
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(10_000):
            await stream.send_all(b"x: " + b"y" * 997)
            sent += 1_000

    async with opened() as subject, await subject.connect() as stream:
        with pytest.raises(trio.BrokenResourceError):
            await pour(stream)
    assert sent < 8_000_000  # what the kernel holds between the two of us


async def test_a_thousand_pipelined_requests_are_answered_in_turn_up_to_a_limit() -> None:
    async with opened() as subject:
        answer = await subject.ask(GET * 1_000)
        assert answer.count(b"HTTP/1.1 200 ") == REQUESTS_MAX or answer.endswith(b"reset")


async def test_who_drips_a_head_is_left(mock_clock: trio.testing.MockClock) -> None:
    async with opened() as subject, await subject.connect() as stream:
        for byte in GET[:8]:
            await stream.send_all(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(HEAD_TIMEOUT_S / 8.5)
        assert subject.door.standing()["connections"] == 1
        mock_clock.jump(HEAD_TIMEOUT_S / 8)
        assert await stream.receive_some(1) == b""
        assert subject.door.standing()["connections"] == 0


async def until_stalled(stream: trio.SocketStream) -> None:
    """Ask for what no socket buffers, and read none of it."""
    await stream.send_all(b"GET /huge.wasm HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await stream.receive_some(1)
    await trio.testing.wait_all_tasks_blocked(0.2)


HUGE = {"index.html": b"", "huge.wasm": bytes(64 << 20)}


async def test_who_does_not_read_is_left(mock_clock: trio.testing.MockClock) -> None:
    async with (
        opened(desk=front_desk(files=HUGE).answer) as subject,
        await subject.connect() as stream,
    ):
        await until_stalled(stream)
        assert subject.door.standing()["connections"] == 1
        mock_clock.jump(PIECE_TIMEOUT_S)
        while subject.door.standing()["connections"]:
            await trio.testing.wait_all_tasks_blocked(0.01)


async def test_who_does_not_read_does_not_hold_up_the_daemons_end() -> None:
    async with opened(desk=front_desk(files=HUGE).answer) as subject:
        stream = await subject.connect()
        await until_stalled(stream)
        ended_s = trio.current_time()
    assert trio.current_time() - ended_s < PROMPTLY_S
    await trio.aclose_forcefully(stream)


async def test_a_thousand_sockets_of_one_address_drive_out_only_each_other() -> None:
    async with opened() as subject, trio.open_nursery() as nursery:

        async def sit() -> None:
            stream = await subject.connect("127.0.0.3")
            try:
                await trio.sleep_forever()
            finally:
                await trio.aclose_forcefully(stream)

        for _ in range(1_000):
            nursery.start_soon(sit)
        while subject.door.standing()["connections"] < SOCKETS_MAX:
            await trio.sleep(0.05)
        async with await subject.connect("127.0.0.2") as kept:
            for _ in range(5):  # while they come on and on, its connection stays
                await kept.send_all(GET)
                said = b""
                while not said.endswith(FILES["index.html"]):
                    piece = await kept.receive_some(1 << 16)
                    assert piece, said
                    said += piece
                await trio.sleep(0.3)
        ours = len(os.listdir("/proc/self/fd"))
        assert subject.door.standing()["connections"] <= SOCKETS_MAX
        assert ours < 1_000 + SOCKETS_MAX + NEWCOMERS + 100
        nursery.cancel_scope.cancel()


async def test_who_asks_for_everything_again_and_again_waits_and_others_do_not(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with (
        opened(desk=front_desk(files=HUGE).answer) as subject,
        trio.open_nursery() as nursery,
    ):
        taken, answers = [0], list[bytes]()

        async def devour() -> None:
            stream = await subject.connect("127.0.0.3")
            await stream.send_all(b"GET /huge.wasm HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4)
            while piece := await stream.receive_some(1 << 20):
                taken[0] += len(piece)

        async def ask() -> None:
            answers.append(await subject.ask(LAST, "127.0.0.2"))

        for _ in range(8):
            nursery.start_soon(devour)
        while taken[0] < BYTES_AT_ONCE - 8 * REQUEST_COST_BYTES - PIECE_BYTES:
            await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(ask)
        waited_s = 0
        while not answers:
            await trio.testing.wait_all_tasks_blocked(0.05)
            mock_clock.jump(1.0)
            waited_s += 1
        assert answers[0].startswith(b"HTTP/1.1 200 ")
        assert waited_s <= 5  # each second 32 pieces are sent, and the lot falls on it soon
        assert taken[0] <= BYTES_AT_ONCE + (waited_s + 1) * BYTES_PER_S
        nursery.cancel_scope.cancel()


async def test_behind_a_proxy_the_visitors_are_told_apart_by_its_word() -> None:
    seen: list[str] = []
    config = GatewayConfig(
        listen="127.0.0.1:0",
        behind_proxy=True,
        hosts=("node.example",),
        dial=("/dns4/node.example/tcp/443/wss",),
    )
    async with opened(config) as subject:
        assert subject.door.standing()["url"] == "https://node.example/"
        told = {"x-forwarded-for": "203.0.113.9, 198.51.100.4"}
        seen.append(subject.door.visitor(told))
        seen.append(subject.door.visitor({}))
    async with opened() as subject:
        seen.append(subject.door.visitor(told))
    assert seen == ["198.51.100.4", "", ""]


async def test_a_taken_address_is_told_and_tried_again(
    mock_clock: trio.testing.MockClock,
) -> None:
    (holder,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = holder.socket.getsockname()[1]
    subject = Opened(GatewayConfig(listen=f"127.0.0.1:{port}"), front_desk().answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subject.door.run)
        failed = await subject.until_told("gateway_failed")
        assert "in use" in failed["error"]
        assert subject.door.standing() == {
            "url": None,
            "listens": None,
            "failure": failed["error"],
            "connections": 0,
        }
        await holder.aclose()
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(RETRY_S_MIN)
        await subject.until_told("gateway_opened")
        assert (await subject.ask(LAST)).startswith(b"HTTP/1.1 200 ")
        assert subject.door.standing()["failure"] is None
        nursery.cancel_scope.cancel()


async def test_it_tries_ever_more_seldom(autojump_clock: trio.testing.MockClock) -> None:
    config = GatewayConfig(
        listen="127.0.0.1:0",
        tls_certificate="missing.pem",
        tls_key="missing.pem",
        hosts=("node.example",),
    )
    missing = Path("/nowhere/missing.pem")
    subject = Opened(config, front_desk().answer, Certificate(missing, missing))
    with trio.move_on_after(600):
        await subject.door.run()
    pauses = [event["retry_s"] for event in subject.told("gateway_failed")]
    assert pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert "No such file" in subject.told("gateway_failed")[0]["error"]


async def test_a_mistake_of_ours_costs_one_visit_and_is_told() -> None:
    def broken(visit: Visit) -> Reply:
        if visit.target == "/broken":
            raise ZeroDivisionError("planted")
        return front_desk().answer(visit)

    async with opened(desk=broken) as subject:
        assert await subject.ask(b"GET /broken HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        assert "planted" in (await subject.until_told("visit_failed"))["error"]
        assert (await subject.ask(LAST)).startswith(b"HTTP/1.1 200 ")


async def test_with_a_certificate_it_speaks_https_and_who_does_not_is_left(
    tmp_path: Path,
) -> None:
    certificate = make_certificate(tmp_path)
    config = GatewayConfig(
        listen="127.0.0.1:0",
        tls_certificate="cert.pem",
        tls_key="key.pem",
        hosts=("node.example",),
    )
    async with opened(config, certificate=certificate) as subject:
        assert (subject.door.standing()["url"] or "").startswith("https://node.example:")
        assert b"HTTP" not in await subject.ask(LAST)
        trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        async with trio.SSLStream(
            await subject.connect(),
            trusting,
            server_hostname="node.example",
            https_compatible=True,
        ) as stream:
            await stream.send_all(
                LAST.replace(b"GET /", b"GET /gateway.json").replace(b"localhost", b"node.example")
            )
            said = b""
            while piece := await stream.receive_some(1 << 16):
                said += piece
        assert json.loads(body_of(said))["dial"][0].startswith(
            "/dns4/node.example/tcp/4001/wss/p2p/"
        )
