"""Whoever is dialled over WebSocket answers what it likes: that costs a failed dial, no more."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from daa_node.adapters import libp2p_sockets
from daa_node.errors import Unavailable
from daa_node.seams import Address
from tests.daa_node.adapters.lone_transport import transport

SOMEBODY = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
ANSWERS = {
    "refuses": REFUSAL,
    "refuses at length": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
    "speaks no HTTP": b"\xff" * 100,
    "upgrades to nothing": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "hangs up": b"",
}


@asynccontextmanager
async def host(serve: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[Address]:
    """Where somebody can be dialled who serves as told."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        port = listeners[0].socket.getsockname()[1]
        yield Address(f"/ip4/127.0.0.1/tcp/{port}/ws/p2p/{SOMEBODY}")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_that_is_no_websocket_fails_the_dial_alone(answer: bytes) -> None:
    async def answers(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)

    async with host(answers) as address, transport(1) as dialler, transport(2) as other:
        with pytest.raises(Unavailable), trio.fail_after(60):
            await dialler.dial(address)
        await dialler.dial(other.addresses()[0])  # it goes on


async def test_who_never_answers_leaves_no_socket_and_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(libp2p_sockets, "DIAL_TIMEOUT_S", 0.2)
    left = 0

    async def is_silent(stream: trio.SocketStream) -> None:
        nonlocal left
        while await stream.receive_some():
            pass
        left += 1

    async with host(is_silent) as address, transport(1) as dialler:
        tasks = []
        for dialled in range(1, 5):
            with pytest.raises(Unavailable):
                await dialler.dial(address)
            with trio.fail_after(30):
                while left < dialled:
                    await trio.sleep(0.01)
            await trio.testing.wait_all_tasks_blocked(0.05)
            tasks.append(trio.lowlevel.current_statistics().tasks_living)
        assert tasks[-1] <= tasks[0]


async def test_both_ends_know_a_websocket_from_plain_tcp() -> None:
    async with (
        transport(1) as dialler,
        transport(2) as over_tcp,
        transport(3, websocket=True) as other,
    ):
        (websocket,) = [address for address in other.addresses() if "/ws/" in address]
        await dialler.dial(over_tcp.addresses()[0])
        await dialler.dial(websocket)
        with trio.fail_after(30):
            while dialler.peer_id not in other.connected():
                await trio.sleep(0.01)
        assert dialler.paths.is_websocket(other.peer_id)
        assert other.paths.is_websocket(dialler.peer_id)
        assert not dialler.paths.is_websocket(over_tcp.peer_id)
