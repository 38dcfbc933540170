"""What is said to a relay and by it, in virtual time: what is promised, kept, and left open."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.io.abc import ReadWriteCloser
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from libp2p.transport.exceptions import OpenConnectionError
from multiaddr import Multiaddr
from trio.testing import memory_stream_pair

from daa_node.adapters import libp2p_circuits
from daa_node.adapters.libp2p_circuits import OPEN_TIMEOUT_S, CircuitStream, RelayedConnections
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import PeerId
from daa_node.wire import relay_messages
from daa_node.wire.framing import write_message
from tests.daa_node.adapters.test_punch_talk import NetStream, Talk, hear, says
from tests.daa_node.adapters.test_relay_desk import Wire

PEERS = [
    PeerId(str(ID.from_pubkey(create_new_key_pair(bytes([seed]) * 32).public_key)))
    for seed in range(8)
]
RELAY, CALLED, CALLER = PEERS[:3]


class World:
    """RelayedConnections, and relays that say what they are told to; the host is the world."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.swarm = self.transport_manager = self
        self.here = {peer: SimpleNamespace() for peer in PEERS}  # and its connection
        self.says: dict[PeerId, Talk] = {
            peer: partial(says, relay_messages.granted(60)) for peer in PEERS
        }
        self.streams: list[NetStream] = []
        self.apart: list[PeerId] = []
        self.taken: list[tuple[str, tuple[str, int] | None]] = []
        self.circuits = RelayedConnections()
        world: Any = self
        self.circuits.serve(world, lambda *_: None, offers=False)

    def add_transport(self, *_: object) -> None:
        """There is one."""

    def set_stream_handler(self, *_: object) -> None:
        """Each test serves by itself."""

    @property
    def connections(self) -> set[ID]:
        return set(map(ID.from_base58, self.here))

    def get_connections(self, peer: ID) -> list[Any]:
        return [self.here[PeerId(str(peer))]]

    async def dial_any(self, *_: object) -> None:
        raise SwarmException("no way to it")

    async def new_stream(self, peer: ID, _protocols: object) -> NetStream:
        peer_id = PeerId(str(peer))
        ours, theirs = memory_stream_pair()
        self.streams.append(NetStream(ours, peer_id))
        yamux = SimpleNamespace(set_apart=partial(self.apart.append, peer_id), is_counted=True)
        vars(self.streams[-1])["muxed_stream"] = yamux
        self._nursery.start_soon(self._talk, peer_id, Wire(theirs, CALLER))
        return self.streams[-1]

    async def _talk(self, peer_id: PeerId, wire: Wire) -> None:
        with suppress(PeerFault, trio.BrokenResourceError):
            await self.says[peer_id](wire)

    def handler_of(self, maddr: Multiaddr) -> Callable[[ReadWriteCloser], Awaitable[None]]:
        async def take(stream: ReadWriteCloser) -> None:
            self.taken.append((str(maddr), stream.get_remote_address()))

        return take

    async def dial(self, called: PeerId, relay: PeerId = RELAY) -> Any:
        return await self.circuits.dial(
            Multiaddr(f"/ip4/10.0.0.9/tcp/1/p2p/{relay}/p2p-circuit/p2p/{called}")
        )

    async def told(self, payload: bytes, relay: PeerId = RELAY) -> int:
        """What we answer to a relay that brings somebody."""
        ours, theirs = memory_stream_pair()
        wire = Wire(theirs, relay)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.circuits._on_circuit, Wire(ours, relay))
            await write_message(wire, payload)
            answer = await hear(wire)
        return relay_messages.seconds_granted(answer)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        yield World(nursery)
        nursery.cancel_scope.cancel()


FROM = relay_messages.from_peer(CALLER)


async def test_a_relay_brings_whom_it_has_promised_as_long_as_it_has(
    autojump_clock: object,
) -> None:
    async with world() as here:
        with pytest.raises(Unavailable, match="nothing is reserved there"):
            await here.told(FROM)
        assert await here.circuits.reserve(RELAY) == 60
        assert here.streams[0].is_closed
        await trio.sleep(59)
        assert await here.told(FROM) == 0
        assert here.taken == [(f"/p2p/{RELAY}/p2p-circuit", (f"relayed by {RELAY}", 0))]
        await trio.sleep(1)
        with pytest.raises(Unavailable, match="nothing is reserved there"):
            await here.told(FROM)
        assert len(here.taken) == 1


async def test_a_relay_says_whom_it_brings_and_soon(autojump_clock: object) -> None:
    async with world() as here:
        await here.circuits.reserve(RELAY)
        for word in (relay_messages.reserve(), relay_messages.connect(CALLER)):
            ours, theirs = memory_stream_pair()
            await write_message(Wire(theirs, RELAY), word)
            with pytest.raises(PeerFault, match="relay-malformed: .* from a relay"):
                await here.circuits._on_circuit(Wire(ours, RELAY))
        ours, theirs = memory_stream_pair()
        began_s = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await here.circuits._on_circuit(Wire(ours, RELAY))
        assert trio.current_time() - began_s == pytest.approx(OPEN_TIMEOUT_S)
        assert not here.taken
        await theirs.aclose()


async def test_so_many_relays_are_kept_and_those_go_whose_time_is_over(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libp2p_circuits, "RELAYS_MAX", 2)
    one, two, three = PEERS[3:6]
    async with world() as here:
        circuits = here.circuits

        def kept() -> list[PeerId]:
            return [relay for relay in (one, two, three) if circuits.is_promised(relay)]

        await circuits.reserve(one)
        await trio.sleep(30)
        for relay in (two, three):
            await circuits.reserve(relay)
        assert kept() == [one, two]
        await circuits.reserve(two)  # anew, where there is room for no other
        await trio.sleep(29)
        await circuits.reserve(two)
        await trio.sleep(2)  # the first promise has ended
        await circuits.reserve(three)
        assert kept() == [two, three]
        await trio.sleep(57)
        assert await here.told(FROM, two) == 0


async def test_a_circuit_is_ours_to_begin_and_counts_where_its_own_streams_do(
    autojump_clock: object,
) -> None:
    async with world() as here:
        raw = await here.dial(CALLED)
        assert raw.is_initiator
        assert raw.get_remote_address() == (f"relayed by {RELAY}", 0)
        assert here.apart == [RELAY]
        assert vars(here.streams[0])["muxed_stream"].is_counted is False
        assert not here.streams[0].is_closed


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (relay_messages.refused("busy"), "the relay refuses: busy"),
        (relay_messages.reserve(), "relay-malformed"),
        (None, "relays nothing"),
    ],
)
async def test_a_circuit_that_does_not_come_about_leaves_no_stream_open(
    answer: bytes | None, why: str, autojump_clock: object
) -> None:
    async def silent(_wire: Wire) -> None:
        await trio.sleep_forever()

    async with world() as here:
        here.says[RELAY] = silent if answer is None else partial(says, answer)
        with pytest.raises(OpenConnectionError, match=why):
            await here.dial(CALLED)
        assert [stream.is_closed for stream in here.streams] == [True]
        here.here.pop(RELAY)
        with pytest.raises(OpenConnectionError, match="no way to it"):
            await here.dial(CALLED)


async def test_of_circuits_that_have_ended_the_last_so_many_are_known(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libp2p_circuits, "ENDED_KEPT_MAX", 2)
    async with world() as here:
        for called in PEERS[3:6]:
            raw = await here.dial(called)
            await raw.close()
        assert await here.dial(PEERS[3])
        for called in PEERS[4:6]:
            with pytest.raises(OpenConnectionError, match="another relay goes first"):
                await here.dial(called)
            assert await here.dial(called)
        raw = await here.dial(CALLED)
        await raw.close()
        assert await here.dial(CALLED, CALLER)  # it is another relay


async def test_no_more_is_read_of_a_circuit_than_was_asked_for() -> None:
    ours, theirs = memory_stream_pair()
    circuit = CircuitStream(Wire(ours, RELAY), RELAY)
    await theirs.send_all(b"sealed")
    assert await circuit.read(3) == b"sea"
    assert await circuit.read() == b"led"
