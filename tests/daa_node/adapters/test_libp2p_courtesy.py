"""A stock libp2p program, which knows nothing of ours, may ask whether we live and who we are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from libp2p import new_host
from libp2p.abc import IHost, INetStream
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.serialization import deserialize_public_key
from libp2p.custom_types import TProtocol
from libp2p.host.exceptions import HostException
from libp2p.host.ping import PingService
from libp2p.identity.identify.identify import parse_identify_response
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.network.stream.exceptions import StreamEOF, StreamError
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from multiaddr import Multiaddr

from daa_node.adapters.libp2p_courtesy import ANSWERS_BURST, IDENTIFY, PING, STREAMS_MAX
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.network.config import NetworkConfig
from daa_node.seams import ByteStream, PeerId
from daa_node.wire.protocols import PUNCH

LOOPBACK = "/ip4/127.0.0.1/tcp/0"


async def closed_door(peer_id: PeerId) -> bool:
    await trio.sleep_forever()
    return False


async def nothing(stream: ByteStream) -> None: ...


@asynccontextmanager
async def stock_host_before_the_door() -> AsyncIterator[tuple[IHost, Libp2pTransport]]:
    """A host of the bare library, connected with a transport whose door has not opened yet."""
    ours = Libp2pTransport(bytes([2]) * 32, "test", NetworkConfig(listen=(LOOPBACK,)))
    ours.guard(closed_door, frozenset(), lambda _peer_id, _fault: None, lambda _peer_id: True)
    ours.set_handler("/daa/1/secret", nothing)
    listen = [Multiaddr(LOOPBACK)]
    stock = new_host(key_pair=create_new_key_pair(bytes([1]) * 32), listen_addrs=listen)
    async with trio.open_nursery() as nursery, stock.run(listen):
        await nursery.start(ours.run)
        address = Multiaddr(ours.addresses()[0])
        await stock.connect(PeerInfo(ID.from_base58(ours.peer_id), [address]))
        yield stock, ours
        nursery.cancel_scope.cancel()


async def opened(stock: IHost, ours: Libp2pTransport, protocol: str) -> INetStream:
    return await stock.new_stream(ID.from_base58(ours.peer_id), [TProtocol(protocol)])


async def all_of(stream: INetStream) -> bytes:
    held = b""
    while True:
        try:
            piece = await stream.read(65536)
        except StreamEOF:
            return held
        if not piece:
            return held
        held += piece


async def identity(stock: IHost, ours: Libp2pTransport) -> Identify:
    return parse_identify_response(await all_of(await opened(stock, ours, IDENTIFY)))


async def test_a_stock_host_pings_before_it_has_said_hello() -> None:
    async with stock_host_before_the_door() as (stock, ours):
        rtts_ms = await PingService(stock).ping(ID.from_base58(ours.peer_id), ping_amt=3)
        assert len(rtts_ms) == 3


async def test_a_stock_host_learns_who_we_are_and_what_we_speak() -> None:
    async with stock_host_before_the_door() as (stock, ours):
        told = await identity(stock, ours)
        key = deserialize_public_key(told.public_key)
        assert ID.from_pubkey(key).to_base58() == ours.peer_id
        bare = {address.rpartition("/p2p/")[0] for address in ours.addresses()}
        assert {str(Multiaddr(raw)) for raw in told.listen_addrs} == bare
        known = {"/daa/1/relayed", "/daa/1/secret", "/ipfs/kad/1.0.0", "/meshsub/1.1.0"}
        known |= {PING, IDENTIFY, PUNCH}
        assert known == set(told.protocols)
        assert told.agent_version.startswith("daa-compute/")
        assert told.protocol_version == "daa/1"
        assert str(Multiaddr(told.observed_addr)).startswith("/ip4/127.0.0.1/tcp/")


async def test_who_pings_faster_than_the_pace_waits_and_takes_no_more_streams_than_its_share() -> (
    None
):
    async with stock_host_before_the_door() as (stock, ours):
        stream = await opened(stock, ours, PING)
        answered = 0.0
        with trio.move_on_after(3.0):
            await stream.write(bytes(100 * 32))
            while True:
                answered += len(await stream.read(65536)) / 32
        assert ANSWERS_BURST <= answered < ANSWERS_BURST + 10
        others = [await stays_open(stock, ours) for _ in range(STREAMS_MAX - 1)]
        assert all(others)
        assert not await stays_open(stock, ours, 60.0)


async def stays_open(stock: IHost, ours: Libp2pTransport, within_s: float = 0.3) -> bool:
    with trio.move_on_after(within_s):
        try:
            await (await opened(stock, ours, PING)).read(32)
        except (StreamError, HostException):
            return False
    return True


async def test_half_a_ping_and_the_end_is_answered_by_the_end() -> None:
    async with stock_host_before_the_door() as (stock, ours):
        stream = await opened(stock, ours, PING)
        await stream.write(bytes(31))
        await stream.close()
        with trio.fail_after(30):
            assert await all_of(stream) == b""
