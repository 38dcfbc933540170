"""What the library raises is survived, counted, and told of, however often it does."""

from collections.abc import Callable
from typing import NoReturn

import trio
import trio.testing
from libp2p.peer.id import ID

from daa_node.adapters.libp2p_pubsub import BoundedGossip
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.adapters.mishaps import TOLD_EVERY_S, Mishaps
from daa_node.network.config import NetworkConfig

Told = list[tuple[str, str, int]]


def teller() -> tuple[Mishaps, Told]:
    told: Told = []
    return Mishaps(lambda *what: told.append(what)), told


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():
            await trio.sleep(0.02)


async def test_a_flood_of_mishaps_is_told_in_a_line_every_ten_minutes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    mishaps, told = teller()
    for number in range(10_000):
        mishaps.note("here", ValueError(number))
        await trio.sleep(TOLD_EVERY_S / 4_999)
    mishaps.note("there", ValueError("another"))
    assert mishaps.counts == {"here": 10_000, "there": 1}
    assert [line[0] for line in told] == ["here", "here", "here", "there"]
    assert told[0] == ("here", "ValueError(0)", 1)
    assert told[1][2] > 4_000


async def test_each_lost_heartbeat_of_gossip_is_counted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    mishaps, told = teller()
    gossip = BoundedGossip(mishaps)

    def fail() -> NoReturn:
        raise KeyError("a peer that has gone")

    gossip.mesh_heartbeat = fail  # type: ignore[method-assign]
    with trio.move_on_after(60):
        await gossip.heartbeat()
    assert mishaps.counts["gossip heartbeat"] >= 20
    assert [line[0] for line in told] == ["gossip heartbeat"]


async def test_tasks_and_upkeep_that_fail_are_counted_and_go_on() -> None:
    mishaps, told = teller()
    config = NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",), websocket=False)
    own = Libp2pTransport(bytes([100]) * 32, "test", config, mishaps=mishaps)

    async def fail() -> None:
        raise ValueError("bytes of a peer")

    async with trio.open_nursery() as nursery:
        await nursery.start(own.run)
        parts = own._parts
        assert parts is not None
        parts.dht._fill_table = fail  # type: ignore[method-assign]
        for _ in range(3):
            parts.pubsub.manager.run_task(fail)
        parts.dht.welcome(ID(b"newcomer"))
        await until(lambda: mishaps.counts["upkeep of the DHT"] >= 2)
        assert mishaps.counts["gossip with a peer"] == 3
        nursery.cancel_scope.cancel()
    expected = "ValueError('bytes of a peer')"
    assert set(told) == {("gossip with a peer", expected, 1), ("upkeep of the DHT", expected, 1)}
