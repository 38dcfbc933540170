"""The same transport over links that a simulation makes, on a virtual clock."""

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest
import trio
import trio.testing
from libp2p.abc import IListener, IRawConnection, ITransport
from libp2p.io.abc import ReadWriteCloser
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.tools.anyio_service.trio_manager import TrioManager
from libp2p.tools.anyio_service.trio_tasks import FunctionTask
from libp2p.transport.exceptions import OpenConnectionError
from multiaddr import Multiaddr

from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.errors import Unavailable
from daa_node.network.config import NetworkConfig
from daa_node.seams import Address, Announcement, ByteStream

LATENCY_S = 0.05
Handler = Callable[[ReadWriteCloser], Awaitable[None]]


class Link(ReadWriteCloser):
    """One end of a link with latency; the other end's host is `remote`."""

    def __init__(self, stream: trio.abc.Stream, remote: str) -> None:
        self._stream = stream
        self._remote = remote

    async def read(self, n: int | None = None) -> bytes:
        return bytes(await self._stream.receive_some(n or 65536))

    async def write(self, data: bytes) -> None:
        await trio.sleep(LATENCY_S)
        await self._stream.send_all(data)

    async def close(self) -> None:
        await self._stream.aclose()

    def get_remote_address(self) -> tuple[str, int] | None:
        return self._remote, 4001


class Listener(IListener):
    def __init__(self, hosts: dict[str, Handler], handler: Handler) -> None:
        self._hosts = hosts
        self._handler = handler
        self._address = Multiaddr("/ip4/0.0.0.0/tcp/0")

    async def listen(self, maddr: Multiaddr) -> None:
        self._address = maddr
        self._hosts[maddr.value_for_protocol("ip4")] = self._handler

    def get_addrs(self) -> tuple[Multiaddr, ...]:
        return (self._address,)

    async def close(self) -> None:
        self._hosts.pop(self._address.value_for_protocol("ip4"), None)


class Links(ITransport):
    def __init__(self, nursery: trio.Nursery, hosts: dict[str, Handler], own_host: str) -> None:
        self._nursery = nursery
        self._hosts = hosts
        self._own_host = own_host

    async def dial(self, maddr: Multiaddr) -> IRawConnection:
        host = maddr.value_for_protocol("ip4")
        if host not in self._hosts:
            raise OpenConnectionError(f"nobody listens on {host}")
        here, there = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._hosts[host], Link(there, self._own_host))
        return RawConnection(Link(here, host), True)

    def create_listener(self, handler_function: Handler) -> Listener:
        return Listener(self._hosts, handler_function)

    def can_dial(self, maddr: Multiaddr) -> bool:
        return True

    def can_listen(self, maddr: Multiaddr) -> bool:
        return True

    def protocols(self) -> list[str]:
        return ["tcp"]


def transport(
    number: int, hosts: dict[str, Handler], acquaintances: Sequence[Address] = ()
) -> Libp2pTransport:
    host = f"10.0.0.{number}"
    config = NetworkConfig(listen=(f"/ip4/{host}/tcp/4001",))
    return Libp2pTransport(
        bytes([number]) * 32,
        "test",
        config,
        raw_transports=lambda nursery: [Links(nursery, hosts, host)],
        acquaintances=acquaintances,
    )


def yes(announcement: Announcement) -> bool:
    return True


async def test_two_transports_talk_over_simulated_links(
    autojump_clock: trio.testing.MockClock,
) -> None:
    hosts: dict[str, Handler] = {}

    async def echo(stream: ByteStream) -> None:
        await stream.send_all(await stream.receive_some(100))

    heard: list[Announcement] = []

    def note(announcement: Announcement) -> bool:
        heard.append(announcement)
        return True

    one, two = transport(1, hosts), transport(2, hosts)
    one.set_handler("/echo", echo)
    one.join_topic("topic", yes, note)
    two.join_topic("topic", yes, yes)
    async with trio.open_nursery() as nursery:
        await nursery.start(one.run)
        await nursery.start(two.run)
        assert one.addresses() == [f"/ip4/10.0.0.1/tcp/4001/p2p/{one.peer_id}"]
        started_s = trio.current_time()
        await two.dial(one.addresses()[0])
        assert trio.current_time() - started_s >= 3 * LATENCY_S
        stream = await two.open_stream(one.peer_id, "/echo")
        await stream.send_all(b"over the air")
        assert await stream.receive_some(100) == b"over the air"
        await trio.sleep(3)
        await two.publish("topic", b"news")
        await trio.sleep(1)
        assert heard == [Announcement(two.peer_id, b"news", two.peer_id)]
        nobody = transport(3, hosts).peer_id
        with pytest.raises(Unavailable, match="nobody listens on 10.0.0.3"):
            await two.dial(Address(f"/ip4/10.0.0.3/tcp/4001/p2p/{nobody}"))
        nursery.cancel_scope.cancel()


async def test_whoever_is_connected_is_told_from_whoever_is_gone_also_amid_a_parting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    hosts: dict[str, Handler] = {}
    one, two = transport(1, hosts), transport(2, hosts)
    async with trio.open_nursery() as nursery:
        await nursery.start(one.run)
        await nursery.start(two.run)
        await two.dial(one.addresses()[0])
        assert two.connected() == [one.peer_id]
        with trio.move_on_after(LATENCY_S / 2):  # a last word is on its way
            await two.hang_up(one.peer_id)
        assert two.connected() == []
        with pytest.raises(Unavailable):
            await two.open_stream(one.peer_id, "/echo")
        await trio.sleep(1)

        await two.dial(one.addresses()[0])
        swarm = two._parts.swarm  # type: ignore[union-attr]
        (first,) = swarm.get_connections()
        close = first.close

        async def close_slowly() -> None:
            await close()
            await trio.sleep(1)

        first.close = close_slowly  # type: ignore[method-assign]
        nursery.start_soon(two.hang_up, one.peer_id)
        second = await swarm.dial_addr(Multiaddr(one.addresses()[0]), first.muxed_conn.peer_id)
        await trio.sleep(2)
        assert two.connected() == [one.peer_id]
        assert swarm.get_connections() == [second]
        nursery.cancel_scope.cancel()


async def test_a_peer_adds_nothing_to_what_the_library_looks_through_for_each_task(
    autojump_clock: trio.testing.MockClock,
) -> None:
    hosts: dict[str, Handler] = {}
    one, two = transport(1, hosts), transport(2, hosts)
    one.join_topic("topic", yes, yes)
    two.join_topic("topic", yes, yes)
    async with trio.open_nursery() as nursery:
        await nursery.start(one.run)
        await nursery.start(two.run)
        pubsub = one._parts.pubsub  # type: ignore[union-attr]
        manager = cast(TrioManager, pubsub._manager)
        before = set(FunctionTask.iterate_tasks(*manager._root_tasks))
        await two.dial(one.addresses()[0])
        await trio.sleep(1)
        assert len(pubsub.peers) == 1
        assert set(FunctionTask.iterate_tasks(*manager._root_tasks)) <= before
        nursery.cancel_scope.cancel()
