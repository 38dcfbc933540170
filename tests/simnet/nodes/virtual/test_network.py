"""Streams over simulated links behave as TCP does to a program, in exact virtual time."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.transport.exceptions import OpenConnectionError
from multiaddr import Multiaddr

from simnet.nodes.virtual import network as wires
from simnet.nodes.virtual import scheduling
from simnet.nodes.virtual.network import (
    HEADER_BYTES,
    WINDOW_BYTES,
    Network,
    StreamEnd,
    Ways,
    host_of,
)
from simnet.nodes.virtual.scheduling import now_ns
from simnet.world.determinism import Streams, Trace
from simnet.world.links import MS, NS, LinkModel

LATENCY_MS = 50
ALICE, BOB = 0, 1
Play = Callable[[Network, StreamEnd, StreamEnd], Awaitable[None]]


def play(script: Play, model: LinkModel | None = None, **narrow: Any) -> Trace:
    """`script(network, alice, bob)`, the two ends of a stream that Alice opened."""
    trace = Trace()

    async def main(_: scheduling.Processes) -> None:
        link = model or LinkModel(latency_ns=LATENCY_MS * MS)
        ways = Ways(
            lambda sender, receiver: link,
            lambda node: (narrow.get("up"), narrow.get("down")),
            Streams(7),
        )
        network = Network(ways, trace)
        async with trio.open_nursery() as nursery:
            accepted: list[StreamEnd] = []
            await listen(network, nursery, accepted)
            alice = await network.dial(ALICE, host_of(BOB))
            await trio.sleep(0.001)
            await script(network, alice, accepted[0])
            nursery.cancel_scope.cancel()

    scheduling.run(main, 1)
    return trace


async def listen(network: Network, nursery: trio.Nursery, accepted: list[StreamEnd]) -> None:
    async def accept(end: Any) -> None:
        accepted.append(end)
        await trio.sleep_forever()

    listener = wires.SimulatedTransport(network, BOB).create_listener(accept)
    listener.background_nursery = nursery
    await listener.listen(Multiaddr(f"/ip4/{host_of(BOB)}/tcp/4001"))


def test_a_dial_takes_a_round_trip_and_bytes_half_of_one() -> None:
    async def script(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        assert now_ns() == 2 * LATENCY_MS * MS + MS
        sent_ns = now_ns()
        await alice.write(b"hello")
        assert await bob.read(100) == b"hello"
        assert now_ns() - sent_ns == LATENCY_MS * MS
        assert network.bytes_sent[ALICE, BOB] == 5 + HEADER_BYTES

    play(script)


def test_bytes_arrive_in_order_and_the_end_behind_them() -> None:
    async def script(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        for number in range(50):
            await alice.write(bytes([number]))
        await alice.close()
        heard = b""
        while piece := await bob.read(7):
            heard += piece
        assert heard == bytes(range(50))

    play(script, LinkModel(latency_ns=MS, jitter_ns=30 * MS, loss_ppm=300_000))


def test_a_lossy_link_costs_time_and_loses_nothing() -> None:
    took_ns: dict[int, int] = {}

    def script_for(loss_ppm: int) -> Play:
        async def script(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
            started_ns = now_ns()
            for _ in range(40):
                await alice.write(b"x")
                assert await bob.read(1) == b"x"
            took_ns[loss_ppm] = now_ns() - started_ns

        return script

    for loss_ppm in (0, 200_000):
        play(script_for(loss_ppm), LinkModel(latency_ns=10 * MS, loss_ppm=loss_ppm))
    assert took_ns[0] == 40 * 10 * MS
    assert took_ns[200_000] > took_ns[0] + 5 * 20 * MS


def test_a_writer_waits_for_a_reader_that_does_not_read() -> None:
    async def script(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        with trio.move_on_after(60) as patience:
            while True:
                await alice.write(bytes(WINDOW_BYTES // 4))
        assert patience.cancelled_caught
        assert WINDOW_BYTES <= network.unread_bytes_max <= WINDOW_BYTES + WINDOW_BYTES // 4
        await bob.read(WINDOW_BYTES)
        with trio.fail_after(1):
            await alice.write(b"there is room again")

    play(script)


def test_streams_of_a_node_share_its_narrow_uplink() -> None:
    async def script(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        started_ns = now_ns()
        await alice.write(bytes(100_000 - HEADER_BYTES))  # 0.8 s at 1 Mbit/s
        await bob.read(1)
        assert now_ns() - started_ns == 800 * MS + LATENCY_MS * MS

    play(script, up=LinkModel(bits_per_s=1_000_000))


def test_a_partition_holds_bytes_back_until_it_heals() -> None:
    async def script(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        network.block((ALICE, BOB))
        await alice.write(b"late")
        await bob.write(b"the other way is open")
        assert await alice.read(100) == b"the other way is open"
        await trio.sleep(5)
        network.unblock((ALICE, BOB))
        healed_ns = now_ns()
        assert await bob.read(100) == b"late"
        assert now_ns() - healed_ns == LATENCY_MS * MS

    play(script)


def test_a_writer_gives_up_on_a_partition_that_lasts() -> None:
    async def script(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        network.block((ALICE, BOB))
        await alice.write(b"lost")
        await trio.sleep(wires.UNACKNOWLEDGED_S_MAX + 1)
        with pytest.raises(ConnectionClosedError):
            await alice.read(1)

    play(script)


def test_nobody_can_be_dialled_through_a_partition() -> None:
    async def script(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        network.block((BOB, ALICE))
        started_ns = now_ns()
        with pytest.raises(OpenConnectionError, match="no answer within 10 s"):
            await network.dial(ALICE, host_of(BOB))
        assert now_ns() - started_ns == 10 * NS
        with pytest.raises(OpenConnectionError, match="nobody listens"):
            await network.dial(ALICE, host_of(5))

    play(script)


def test_peers_of_a_killed_node_learn_of_it_after_the_links_time() -> None:
    async def script(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        network.cut(BOB)
        killed_ns = now_ns()
        with pytest.raises(ConnectionClosedError):
            await bob.write(b"from the grave")
        with pytest.raises(ConnectionClosedError):
            await alice.read(1)
        assert now_ns() - killed_ns == LATENCY_MS * MS
        with pytest.raises(OpenConnectionError, match="nobody listens"):
            await network.dial(ALICE, host_of(BOB))

    play(script)


def test_the_trace_covers_every_write() -> None:
    async def one(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        await alice.write(b"12345")

    async def longer(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        await alice.write(b"123456")

    async def later(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
        await trio.sleep(1e-9)
        await alice.write(b"12345")

    digests = [play(script).digest() for script in (one, one, longer, later)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_the_trace_has_what_is_said_before_noise_and_the_size_of_all_else() -> None:
    def told(*words: bytes) -> str:
        async def script(network: Network, alice: StreamEnd, bob: StreamEnd) -> None:
            for word in words:
                await alice.write(word)

        return play(script).digest()

    assert told(b"\x07/noise\n", b"sealed one") == told(b"\x07/noise\n", b"sealed two")
    assert told(b"\x07/noise\n", b"sealed one") != told(b"\x07/noise\n", b"sealed three")
    assert told(b"\x04/one\n", b"\x07/noise\n") != told(b"\x04/two\n", b"\x07/noise\n")
