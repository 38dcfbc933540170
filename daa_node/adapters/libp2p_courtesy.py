"""What programs of other libp2p libraries ask every peer: are you there, and what do you speak?

`/ipfs/ping/1.0.0` gives 32 bytes back, again and again; `/ipfs/id/1.0.0` says one protobuf message
and closes (libp2p specs, ping/ping.md and identify/README.md). Both are open before hello: who
speaks libp2p and nothing of ours learns from them why it should part, and js-libp2p gives up
connections that do not answer. Nothing of ours asks either: hello and yamux say more.

A connection asks at most ANSWERS_PER_S times in the long run, and holds STREAMS_MAX streams.
"""

import importlib.metadata
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

import trio
from libp2p.abc import IMuxedConn, INetStream
from libp2p.custom_types import TProtocol
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.utils import encode_varint_prefixed
from multiaddr import Multiaddr

from daa_node.adapters.libp2p_host import GatedHost
from daa_node.errors import PeerFault
from daa_node.network.pace import Pace
from daa_node.seams import Address
from daa_node.wire.hosts import is_host

PING = "/ipfs/ping/1.0.0"
IDENTIFY = "/ipfs/id/1.0.0"
COURTESIES = frozenset({PING, IDENTIFY})
PING_BYTES = 32
ANSWERS_PER_S = 1.0  # js-libp2p looks every ten seconds whether we are there
ANSWERS_BURST = 10.0  # a person who measures round trips
STREAMS_MAX = 4  # two of each: the one before may still be closing
STREAM_S_MAX = 60.0  # go-libp2p keeps one stream for all of its pings, and opens another one
PROTOCOL_VERSION = "daa/1"
LISTEN_ADDRESSES_MAX = 16  # as many as a record holds


class _Share:
    """What one connection has asked lately."""

    def __init__(self) -> None:
        self.pace = Pace(ANSWERS_PER_S, ANSWERS_BURST)
        self.streams = 0


class Courtesies:
    """`serve` sets both handlers; `addresses` is where others can dial us."""

    def __init__(self, host: GatedHost, addresses: Callable[[], list[Address]]) -> None:
        self._host = host
        self._addresses = addresses
        self._shares: WeakKeyDictionary[IMuxedConn, _Share] = WeakKeyDictionary()

    def serve(self) -> None:
        self._host.set_stream_handler(TProtocol(PING), self._ping)
        self._host.set_stream_handler(TProtocol(IDENTIFY), self._identify)
        self._host.courtesies = COURTESIES

    async def _ping(self, stream: INetStream) -> None:
        await self._within_bounds(stream, self._echo)

    async def _identify(self, stream: INetStream) -> None:
        await self._within_bounds(stream, self._tell)

    async def _within_bounds(
        self, stream: INetStream, answer: Callable[[INetStream, Pace], Awaitable[None]]
    ) -> None:
        """Raises PeerFault for a stream too many: whoever called us resets it."""
        share = self._shares.setdefault(stream.muxed_conn, _Share())
        if share.streams >= STREAMS_MAX:
            raise PeerFault("courtesy-streams", f"{STREAMS_MAX} are open on this connection")
        share.streams += 1
        try:
            with trio.move_on_after(STREAM_S_MAX):
                await answer(stream, share.pace)
            await stream.close()
        finally:
            share.streams -= 1

    async def _echo(self, stream: INetStream, pace: Pace) -> None:
        while len(payload := await _exactly(stream, PING_BYTES)) == PING_BYTES:
            await pace.take()
            await stream.write(payload)

    async def _tell(self, stream: INetStream, pace: Pace) -> None:
        await pace.take()
        await stream.write(encode_varint_prefixed(self._identity(stream).SerializeToString()))

    def _identity(self, stream: INetStream) -> Identify:
        protocols = [name for name in self._host.multiselect.handlers if name is not None]
        own = [Multiaddr(a.rpartition("/p2p/")[0]) for a in self._addresses()]
        observed = _as_multiaddr(stream.get_remote_address())
        return Identify(
            protocol_version=PROTOCOL_VERSION,
            agent_version=f"daa-compute/{importlib.metadata.version('daa-compute')}",
            public_key=self._host.get_public_key().serialize(),
            listen_addrs=[address.to_bytes() for address in own[:LISTEN_ADDRESSES_MAX]],
            observed_addr=b"" if observed is None else observed.to_bytes(),
            protocols=sorted(protocols),
        )


async def _exactly(stream: INetStream, size: int) -> bytes:
    """`size` bytes, or fewer where the stream ends."""
    held = bytearray()
    while len(held) < size:
        try:
            piece = await stream.read(size - len(held))
        except StreamEOF:
            break
        if not piece:
            break
        held += piece
    return bytes(held)


def _as_multiaddr(endpoint: tuple[str, int] | None) -> Multiaddr | None:
    if endpoint is None:
        return None
    host, port = endpoint[0].split("%")[0], endpoint[1]
    if not is_host(host):
        return None  # behind a relay
    return Multiaddr(f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{port}")
