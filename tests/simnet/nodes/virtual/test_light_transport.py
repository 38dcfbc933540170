"""The light transport is a Transport as libp2p's is: one suite for both, over the same links."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial

import pytest
import trio

from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.keys import NodeKeys
from daa_node.network.config import NetworkConfig
from daa_node.seams import Address, Announcement, ByteStream, PeerId
from daa_node.wire.framing import MessageReader, write_message
from daa_node.wire.limits import MIB
from simnet.nodes.virtual import scheduling, third_party
from simnet.nodes.virtual.light_transport import LightTransport
from simnet.nodes.virtual.network import (
    PORT,
    UNACKNOWLEDGED_S_MAX,
    Network,
    SimulatedTransport,
    Ways,
    host_of,
)
from simnet.world.determinism import Streams, Trace
from simnet.world.links import MS, LinkModel

LATENCY_MS = 20
ECHO, DEAF, FAILS, GENEROUS = "/daa/echo", "/daa/deaf", "/daa/fails", "/daa/generous"
TOPIC = "news"
Node = LightTransport | Libp2pTransport
Make = Callable[[Network, int], Node]
Script = Callable[[Network, list[Node]], Awaitable[None]]


def light(network: Network, node: int) -> LightTransport:
    peer_id = NodeKeys.from_seed(b"%d" % node).peer_id
    return LightTransport(network, node, host_of(node), peer_id)


def libp2p(network: Network, node: int) -> Libp2pTransport:
    seed = NodeKeys.from_seed(b"%d" % node).ed25519_seed
    config = NetworkConfig(listen=(f"/ip4/{host_of(node)}/tcp/{PORT}",), websocket=False)
    return Libp2pTransport(seed, "ns", config, lambda _: [SimulatedTransport(network, node)])


async def echo(stream: ByteStream) -> None:
    while said := await stream.receive_some(1024):
        await stream.send_all(said)


async def deaf(stream: ByteStream) -> None:
    await trio.sleep_forever()


async def fails(stream: ByteStream) -> None:
    raise PeerFault("malformed", "whatever it says")


def play(make: Make, script: Script, count: int = 2, **doors: bool) -> str:
    """`script(network, nodes)` among that many; the trace's hash.

    `doors` of `n0`, `n1`, ...: whether that node's door admits anybody; without one all are.
    """
    trace, streams = Trace(), Streams(3)

    async def main(_: scheduling.Processes) -> None:
        link = LinkModel(latency_ns=LATENCY_MS * MS)
        ways = Ways(lambda a, b: link, lambda node: (None, None), streams)
        network = Network(ways, trace)
        nodes = [make(network, node) for node in range(count)]
        async with trio.open_nursery() as nursery:
            for number, node in enumerate(nodes):
                for protocol, handler in ((ECHO, echo), (DEAF, deaf), (FAILS, fails)):
                    node.set_handler(protocol, handler)
                if f"n{number}" in doors:
                    node.guard(
                        door_that(doors[f"n{number}"]),
                        frozenset({ECHO}),
                        blame,
                        lambda _peer_id: True,
                    )
                node.set_record_judge(lambda key, payload: payload[0] if payload else None)
                await nursery.start(node.run)
            await script(network, nodes)
            nursery.cancel_scope.cancel()

    with third_party.subdued(streams) if make is libp2p else nullcontext():
        scheduling.run(main, 1)
    return trace.digest()


blamed: list[PeerId] = []


def blame(peer_id: PeerId, _fault: PeerFault) -> None:
    blamed.append(peer_id)


def door_that(admits: bool) -> Callable[[PeerId], Awaitable[bool]]:
    async def door(_: PeerId) -> bool:
        await trio.sleep(0.1)
        return admits

    return door


async def read_late(outcomes: list[str], stream: ByteStream) -> None:
    """Busy with other things for longer than a writer waits."""
    await trio.sleep(12)
    messages = MessageReader(stream, MIB)
    try:
        while await messages.next() is not None:
            pass
        outcomes.append("the end")
    except trio.BrokenResourceError:
        outcomes.append("cut")
    except PeerFault as fault:
        outcomes.append(str(fault))


async def meet(one: Node, other: Node) -> None:
    assert await one.dial(other.addresses()[0]) == other.peer_id
    await trio.sleep(0.5)


BOTH = pytest.mark.parametrize("make", [light, libp2p])


@BOTH
def test_whoever_is_at_an_address_is_dialled_without_a_name(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two = nodes
        place, own = (Address(node.addresses()[0].partition("/p2p/")[0]) for node in (two, one))
        assert await one.dial(place) == two.peer_id
        await trio.sleep(0.5)
        assert one.connected() == [two.peer_id]
        assert await one.dial(place) == two.peer_id
        assert await one.dial(own) == one.peer_id
        with pytest.raises(Unavailable):
            await one.dial(Address("/ip4/10.9.9.9/tcp/4001"))
        assert one.connected() == [two.peer_id]

    play(make, script)


@BOTH
def test_what_is_written_comes_back_and_the_end_behind_it(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two = nodes
        await meet(one, two)
        assert one.connected() == [two.peer_id]
        assert two.connected() == [one.peer_id]
        assert await one.dial(two.addresses()[0]) == two.peer_id  # the same connection again
        stream = await one.open_stream(two.peer_id, ECHO)
        assert stream.peer_id == two.peer_id
        began_s = trio.current_time()
        await stream.send_all(b"over the air")
        assert await stream.receive_some(100) == b"over the air"
        assert trio.current_time() - began_s >= 2 * LATENCY_MS / 1e3
        await stream.aclose()
        await one.hang_up(two.peer_id)
        await trio.sleep(0.2)  # a second later libp2p's DHT has dialled again
        assert one.connected() == two.connected() == []
        with pytest.raises(Unavailable):
            await one.open_stream(two.peer_id, ECHO)

    play(make, script)


@BOTH
def test_who_is_not_there_or_speaks_another_protocol_is_told_from_who_is(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two = nodes
        with pytest.raises(Unavailable):
            await one.dial(Address(f"/ip4/{host_of(7)}/tcp/{PORT}/p2p/{two.peer_id}"))
        with pytest.raises(Unavailable):  # somebody else lives there
            await one.dial(Address(one.addresses()[0].replace(one.peer_id, two.peer_id)))
        with pytest.raises(Unavailable):
            await one.dial(Address("/ip4/10.0.0.1"))
        await meet(one, two)
        with pytest.raises(Unavailable):
            await one.open_stream(two.peer_id, "/daa/none-such")

    play(make, script)


@BOTH
def test_a_handler_that_fails_ends_its_stream_and_no_other(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two = nodes
        await meet(one, two)
        sound = await one.open_stream(two.peer_id, ECHO)
        with suppress(trio.BrokenResourceError, Unavailable):
            broken = await one.open_stream(two.peer_id, FAILS)
            assert await broken.receive_some(1) == b""
        await sound.send_all(b"still here")
        assert await sound.receive_some(100) == b"still here"

    play(make, script)


@BOTH
def test_a_writer_waits_for_a_reader_that_does_not_read(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two = nodes
        await meet(one, two)
        stream, sent = await one.open_stream(two.peer_id, DEAF), 0
        with trio.move_on_after(5):
            while True:
                await stream.send_all(bytes(1 << 16))
                sent += 1 << 16
        assert sent <= 1 << 22

    play(make, script)


@BOTH
def test_a_reader_that_gives_up_is_waited_for_by_nobody(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two = nodes
        cut_s: list[float] = []

        async def generous(stream: ByteStream) -> None:
            try:
                while True:
                    await stream.send_all(bytes(1 << 16))
            except trio.BrokenResourceError:
                cut_s.append(trio.current_time())

        two.set_handler(GENEROUS, generous)
        await meet(one, two)
        stream = await one.open_stream(two.peer_id, GENEROUS)
        with trio.move_on_after(0.1):
            while await stream.receive_some(1 << 16):
                pass
        gave_up_s = trio.current_time()
        await stream.aclose()
        await trio.sleep(5)
        assert [at_s - gave_up_s < 4 * LATENCY_MS / 1e3 for at_s in cut_s] == [True]

    play(make, script)


@BOTH
def test_strangers_get_what_is_open_and_are_hung_up_on(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two = nodes
        await one.dial(two.addresses()[0])
        stream = await one.open_stream(two.peer_id, ECHO)
        await stream.send_all(b"who are you")
        assert await stream.receive_some(100) == b"who are you"
        await trio.sleep(2)
        assert one.connected() == two.connected() == []

    play(make, script, n1=False)


@BOTH
def test_the_admitted_are_served_all_that_they_asked_for_a_little_early(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two = nodes
        await one.dial(two.addresses()[0])
        stream = await one.open_stream(two.peer_id, DEAF)
        await trio.sleep(5)
        await stream.send_all(b"nobody reads this")
        assert one.connected() == [two.peer_id]

    play(make, script, n0=True, n1=True)


@BOTH
def test_a_partition_ends_connections_and_they_can_be_made_again(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two = nodes
        await meet(one, two)
        stream = await one.open_stream(two.peer_id, ECHO)
        for route in ((0, 1), (1, 0)):
            network.block(route)
        await stream.send_all(b"late")
        await trio.sleep(UNACKNOWLEDGED_S_MAX + 20)
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some(1)
        assert one.connected() == two.connected() == []
        for route in ((0, 1), (1, 0)):
            network.unblock(route)
        await meet(one, two)
        assert one.connected() == [two.peer_id]

    play(make, script)


@BOTH
def test_peers_of_a_killed_node_learn_that_it_is_gone(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two = nodes
        await meet(one, two)
        stream = await one.open_stream(two.peer_id, ECHO)
        network.cut(1)
        await trio.sleep(1)
        assert one.connected() == []
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some(1)

    play(make, script)


@BOTH
def test_news_reaches_who_is_not_connected_and_who_passes_on_what_is_none_is_blamed(
    make: Make,
) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        heard: list[Announcement] = []

        def judge(announcement: Announcement) -> bool:
            if announcement.payload == b"false":
                raise PeerFault("malformed", "a lie")
            heard.append(announcement)
            return True

        for node in nodes:
            node.join_topic(TOPIC, lambda announcement: announcement.payload != b"old", judge)
        await trio.sleep(1)
        one, two, three = nodes
        await meet(one, two)
        await meet(two, three)
        await trio.sleep(3)
        for payload in (b"old", b"true", b"false"):
            await one.publish(TOPIC, payload)
        await trio.sleep(3)
        # libp2p's DHT may have dialled meanwhile, so that the third has it from the first as well
        assert [(each.source, each.payload) for each in heard] == [(one.peer_id, b"true")] * 2
        assert heard[0].forwarder == one.peer_id
        assert set(blamed) == {one.peer_id}

    blamed.clear()
    play(make, script, count=3, n0=True, n1=True, n2=True)


@BOTH
def test_the_newest_record_is_found_and_who_provides_is(make: Make) -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        one, two, three = nodes
        with pytest.raises(Unavailable):
            await one.put_record("record", b"\x01")
        with pytest.raises(Unavailable):
            await one.provide("thing")
        await meet(one, two)
        await meet(three, two)
        await one.put_record("record", b"\x01")
        await two.put_record("record", b"\x03")
        assert await three.get_record("record") == b"\x03"
        assert await three.get_record("none such") is None
        await one.provide("thing")
        assert await three.find_providers("thing", 5) == [one.peer_id]
        assert await three.find_providers("none such", 5) == []

    play(make, script, count=3)


def test_the_same_words_leave_the_same_trace() -> None:
    async def script(network: Network, nodes: list[Node]) -> None:
        await meet(*nodes)
        stream = await nodes[0].open_stream(nodes[1].peer_id, ECHO)
        await stream.send_all(b"words")
        await stream.receive_some(100)

    async def other(network: Network, nodes: list[Node]) -> None:
        await meet(*nodes)
        await nodes[0].open_stream(nodes[1].peer_id, DEAF)

    assert play(light, script) == play(light, script) != play(light, other)


@BOTH
def test_who_gives_up_within_a_message_cuts_the_stream_and_does_not_end_it(make: Make) -> None:
    """An end there is held against who sent it, and it was the reader who was slow."""
    outcomes: list[str] = []

    async def script(_: Network, nodes: list[Node]) -> None:
        one, two = nodes
        two.set_handler("/daa/late", partial(read_late, outcomes))
        await meet(one, two)
        stream = await one.open_stream(two.peer_id, "/daa/late")
        with trio.move_on_after(10) as patience:
            while True:
                await write_message(stream, bytes(100_000))
        assert patience.cancelled_caught
        await stream.aclose()
        await trio.sleep(60)

    play(make, script)
    assert outcomes in (["the end"], ["cut"])
