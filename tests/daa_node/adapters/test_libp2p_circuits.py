"""Two that cannot dial each other are connected through a third, which reads nothing of it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from libp2p.abc import INetConn
from libp2p.peer.id import ID

from daa_node.adapters import relay_desk, yamux_streams
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import Address, ByteStream, PeerId
from daa_node.wire import protocols, relay_messages
from daa_node.wire.framing import read_message, write_message
from tests.daa_node.adapters.lone_transport import transport
from tests.daa_node.network.limited_link import Link
from tests.daa_node.network.neighbours import until

ECHO = "/echo"
NOBODY = "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"
LONG = PeerId("x" * 65)


async def echo(stream: ByteStream) -> None:
    while piece := await stream.receive_some(1 << 16):
        await stream.send_all(piece)


def through(relay: Libp2pTransport, called: Libp2pTransport) -> Address:
    return Address(f"{relay.addresses()[0]}/p2p-circuit/p2p/{called.peer_id}")


@asynccontextmanager
async def world(
    **settings: object,
) -> AsyncIterator[tuple[Libp2pTransport, Libp2pTransport, Libp2pTransport]]:
    """(relay, caller, called), the last two connected with the relay and not with each other."""
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(transport(1, relay=True, **settings))
        # neither listens: else they would find each other by the DHT
        caller, called = [
            await stack.enter_async_context(transport(number, listen=())) for number in (2, 3)
        ]
        for each in (caller, called):
            each.set_handler(ECHO, echo)
            await each.dial(relay.addresses()[0])
        await until(lambda: len(relay.connected()) == 2)
        yield relay, caller, called


async def heard_back(caller: Libp2pTransport, peer_id: PeerId, payload: bytes) -> bytes:
    stream, heard = await caller.open_stream(peer_id, ECHO), b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, payload)
        while len(heard) < len(payload):
            heard += await stream.receive_some(1 << 16)
    await stream.aclose()
    return heard


async def test_who_dialled_and_how_long_the_way_is_are_known_of_direct_and_relayed_ones() -> None:
    async with world() as (relay, caller, called):
        by_caller, by_called = dict[PeerId, float](), dict[PeerId, float]()
        caller.paths.hear_round_trips(by_caller.__setitem__)
        called.paths.hear_round_trips(by_called.__setitem__)
        await called.circuits.reserve(relay.peer_id)
        await caller.dial(through(relay, called))
        await until(lambda: caller.peer_id in called.connected())
        await until(lambda: called.peer_id in by_caller and caller.peer_id in by_called)
        assert min(*by_caller.values(), *by_called.values()) > 0
        assert caller.paths.is_dialled(called.peer_id)
        assert not called.paths.is_dialled(caller.peer_id)


async def test_a_reserved_peer_is_reached_and_is_who_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world() as (relay, caller, called):
        assert await called.circuits.reserve(relay.peer_id) == relay_desk.RESERVED_S
        assert await caller.dial(through(relay, called)) == called.peer_id
        await until(lambda: caller.peer_id in called.connected())
        payload = bytes(range(256)) * 4096
        assert await heard_back(caller, called.peer_id, payload) == payload
        assert await heard_back(called, caller.peer_id, b"and back") == b"and back"
        assert caller.circuits.is_relayed(called.peer_id)
        assert called.circuits.is_relayed(caller.peer_id)
        assert not caller.circuits.is_relayed(relay.peer_id)
        assert called.network_of(caller.peer_id) == f"relayed by {relay.peer_id}"
        with pytest.raises(Unavailable):  # nobody dials back what is behind a relay
            called.doorbell.host_of(caller.peer_id)
        desk = relay.circuits.desk
        assert desk is not None
        assert desk.circuits == 1
        await caller.hang_up(called.peer_id)
        await until(lambda: desk.circuits == 0 and called.connected() == [relay.peer_id])


async def test_who_asks_a_relay_before_it_has_noted_the_connection_is_heard_all_the_same() -> None:
    """The library serves a connection's streams first, and tells of the connection then."""
    async with world() as (relay, _, called), transport(4, listen=()) as caller:
        await called.circuits.reserve(relay.peer_id)
        assert relay._parts is not None
        swarm, asked = relay._parts.swarm, trio.Event()
        noted, let_in = swarm.notify_connected, swarm.admissions.wait

        async def note_once_asked(conn: INetConn) -> None:
            await asked.wait()
            await noted(conn)

        async def wait(peer_id: ID, timeout_s: float) -> bool:
            asked.set()
            return await let_in(peer_id, timeout_s)

        swarm.notify_connected = note_once_asked  # type: ignore[method-assign]
        swarm.admissions.wait = wait  # type: ignore[method-assign]
        assert await caller.dial(through(relay, called)) == called.peer_id


def counted(transport: Libp2pTransport) -> int:
    return transport.carried.of_members + transport.carried.of_strangers


async def test_what_streams_carry_is_counted_once_also_through_a_relay() -> None:
    """Whoever relays counts it at its desk, and not on its streams as well."""
    async with world() as (relay, caller, called):
        direct, payload = sum(map(counted, (relay, caller))), bytes(10**6)
        relay.set_handler(ECHO, echo)
        await heard_back(caller, relay.peer_id, payload)
        assert 4 * 10**6 <= sum(map(counted, (relay, caller))) - direct < 4.02 * 10**6
        link = Link()
        relay.circuits.keep_to(link.limits)
        await called.circuits.reserve(relay.peer_id)
        await caller.dial(through(relay, called))
        await until(lambda: caller.peer_id in called.connected())
        before = [counted(each) for each in (relay, caller, called)]
        await heard_back(caller, called.peer_id, payload)
        after = [counted(each) for each in (relay, caller, called)]
        more = [b - a for a, b in zip(before, after, strict=True)]
        assert more[0] < 20_000
        assert all(2 * 10**6 <= size < 2.01 * 10**6 for size in more[1:])
        assert 4 * 10**6 <= link.limits.spent_bytes < 4.1 * 10**6


async def test_the_relay_carries_no_word_in_the_clear() -> None:
    """What passes at the desk is looked at while a known text is sent."""
    seen = bytearray()
    async with world() as (relay, caller, called):
        desk = relay.circuits.desk
        assert desk is not None
        carry = desk._carry

        class Watched:
            def __init__(self, stream: ByteStream) -> None:
                self._stream = stream
                self.peer_id = stream.peer_id

            async def receive_some(self, size_bytes_max: int) -> bytes:
                piece = await self._stream.receive_some(size_bytes_max)
                seen.extend(piece)
                return piece

        async def watch(source: ByteStream, *rest: object) -> None:
            await carry(Watched(source), *rest)  # type: ignore[arg-type]

        desk._carry = watch  # type: ignore[method-assign, assignment]
        await called.circuits.reserve(relay.peer_id)
        await caller.dial(through(relay, called))
        secret = b"nobody but the two of us reads this " * 20
        assert await heard_back(caller, called.peer_id, secret) == secret
    assert len(seen) > 2 * len(secret)
    assert secret[:36] not in seen


async def test_a_relay_that_is_not_who_we_dialled_through_it_is_found_out() -> None:
    """It answers in place of the peer that was asked for."""
    async with world() as (relay, caller, called):
        await called.circuits.reserve(relay.peer_id)
        other = Address(f"{relay.addresses()[0]}/p2p-circuit/p2p/{called.peer_id}")

        async def pretend(stream: ByteStream) -> None:
            await read_message(stream, relay_messages.MESSAGE_BYTES_MAX)
            await write_message(stream, relay_messages.granted())
            await trio.sleep(1)
            await stream.send_all(b"\x13/multistream/1.0.0\n\x07/noise\n" + bytes(200))

        relay.set_handler(protocols.RELAY, pretend)
        with pytest.raises(Unavailable):
            await caller.dial(other)
        assert caller.connected() == [relay.peer_id]


async def test_nobody_is_reached_who_did_not_ask_for_it_or_no_longer_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_desk, "RESERVED_S", 1)
    async with world() as (relay, caller, called):
        with pytest.raises(Unavailable, match="no reservation"):
            await caller.dial(through(relay, called))
        await called.circuits.reserve(relay.peer_id)
        await trio.sleep(1.1)
        with pytest.raises(Unavailable, match="no reservation"):
            await caller.dial(through(relay, called))
        # one that the peer knows nothing of: a relay cannot bring it callers of its own accord
        desk = relay.circuits.desk
        assert desk is not None
        monkeypatch.undo()  # this one holds until it is used, on a slow machine as well
        desk._reserve(called.peer_id)
        with pytest.raises(Unavailable, match="nothing is reserved there"):
            await caller.dial(through(relay, called))


async def test_who_reads_nothing_of_a_circuit_holds_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the relay's other streams with the peer that sends, nor their connection."""
    monkeypatch.setattr(yamux_streams, "UNREAD_STALL_S", 0.5)
    monkeypatch.setattr(yamux_streams, "UNREAD_BYTES_MAX", 100 * 1024)
    monkeypatch.setattr(relay_desk, "BYTES_PER_S", 1.0)
    monkeypatch.setattr(relay_desk, "BYTES_BURST", 20_000.0)
    async with world() as (relay, caller, called):
        relay.set_handler(ECHO, echo)
        await called.circuits.reserve(relay.peer_id)
        await caller.dial(through(relay, called))
        circuit = await caller.open_stream(called.peer_id, ECHO)
        with trio.move_on_after(1):
            await circuit.send_all(bytes(1 << 20))
        assert await heard_back(caller, relay.peer_id, b"and you?") == b"and you?"
        assert relay.peer_id in caller.connected()


async def test_a_promise_ends_with_the_connection_on_which_it_was_given() -> None:
    async with world() as (relay, _, called):
        await called.circuits.reserve(relay.peer_id)
        assert called.circuits.is_promised(relay.peer_id)
        await called.hang_up(relay.peer_id)
        await called.dial(relay.addresses()[0])
        assert not called.circuits.is_promised(relay.peer_id)


async def test_a_relay_that_cuts_its_circuits_is_not_tried_twice_in_a_row() -> None:
    async with world() as (relay, caller, called):
        await called.circuits.reserve(relay.peer_id)
        for _ in range(2):
            await caller.dial(through(relay, called))
            await until(lambda: caller.peer_id in called.connected())
            await called.hang_up(caller.peer_id)
            await until(lambda: caller.connected() == [relay.peer_id])
            with pytest.raises(Unavailable, match="another relay goes first"):
                await caller.dial(through(relay, called))


async def test_who_does_not_offer_it_relays_nothing() -> None:
    async with transport(1) as plain, transport(2) as asker:
        await asker.dial(plain.addresses()[0])
        with pytest.raises(Unavailable):
            await asker.circuits.reserve(plain.peer_id)


async def test_an_address_behind_two_relays_is_none() -> None:
    async with world() as (relay, caller, called):
        twice = f"{through(relay, called)}/p2p-circuit/p2p/{NOBODY}"
        with pytest.raises(Unavailable, match="one relay"):
            await caller.dial(Address(twice))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x91\xa4what",
        relay_messages.granted(),
        relay_messages.connect(PeerId("x" * 65)),
    ],
)
def test_a_wish_that_is_none_is_a_fault(payload: bytes) -> None:
    with pytest.raises(PeerFault, match="relay-malformed"):
        relay_messages.wish_of(payload)


@pytest.mark.parametrize("payload", [b"", relay_messages.reserve(), relay_messages.granted(9999)])
def test_an_answer_that_is_none_is_a_fault(payload: bytes) -> None:
    with pytest.raises(PeerFault, match="relay-malformed"):
        relay_messages.seconds_granted(payload)
