"""From a relayed connection to a direct one: both ends dial each other at the same moment.

    initiator                          other end
    asks the relay where that is
    connect  ----------------------->  asks the relay where the initiator is
             <-----------------------  ready
    ping     <---------------------->  pong                    one round trip
    sync     ----------------------->  dials at once
    dials after half a round trip
             <-----------------------  done: it has the connection
    closes what leads through the relay

All of it is said over the relayed connection, which noise has sealed from end to end, and the new
one proves both keys again. Nobody names its own place, so nobody has us dial where it likes: the
relay says from where the other one's connection with it comes, and only to whom it joins with it.
The library has this protocol, too (circuit_v2/dcutr.py): it dials whatever the peer names.
"""

from collections.abc import Callable
from contextlib import suppress

import trio
from libp2p.abc import INetConn, IRawConnection
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.exceptions import SwarmException
from libp2p.peer.id import ID
from multiaddr import Multiaddr

from daa_node.adapters.budgets import Endpoint
from daa_node.adapters.libp2p_circuits import RelayedConnections
from daa_node.adapters.libp2p_host import GatedHost
from daa_node.adapters.libp2p_peer_stream import PeerStream, serving
from daa_node.adapters.libp2p_sockets import SocketStream
from daa_node.adapters.libp2p_swarm import BoundedSwarm, remote_of
from daa_node.adapters.simultaneous_open import TRY_S, Cross, cross, is_in_reach
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.addresses import RELAYED_BY
from daa_node.network.pace import Pace
from daa_node.seams import ByteStream, IsMember, OnFault, PeerId
from daa_node.wire import protocols, punch_messages, relay_messages
from daa_node.wire.framing import TRUNCATED, read_message, write_message
from daa_node.wire.hosts import is_host
from daa_node.wire.punch_messages import PORT_FIRST, TRIES_MAX, Word, said
from daa_node.wire.relay_messages import MESSAGE_BYTES_MAX

OPEN_TIMEOUT_S = 10.0
# Between two words: the other end may still dial, or ask its relay.
WORD_TIMEOUT_S = TRY_S + 6.0
ROUND_TRIP_S_MAX = 3.0  # of a relayed connection: who draws it out has us wait no longer
SETTLE_S = 5.0  # noise and yamux on the new connection
SETTLE_LOOK_S = 0.05
ASKED_EVERY_S, ASKED_BURST = 30.0, 3.0  # of one peer: each asks us for TRIES_MAX dials
ASKERS_KEPT_MAX = 1024
AT_ONCE_MAX = 4  # holes; each may hold a socket for half a minute
ASKED_AT_ONCE_MAX = AT_ONCE_MAX - 1  # of which others ask us: one place is for whom we ask
STRANGERS_AT_ONCE_MAX = ASKED_AT_ONCE_MAX - 1  # and one of those is for members that ask us
ANSWER_TIMEOUT_S = 40.0  # who draws one out holds its place no longer
WHERE_PER_S, WHERE_BURST = 16.0, 64.0  # what a relay answers to all that ask it
WHERE_OF_ONE_PER_S, WHERE_OF_ONE_BURST = 0.1, 8.0  # of which none takes all
PUNCHED_KEPT_MAX = 1024  # who was punched; more than we are ever connected with

OwnEnd = Callable[[Endpoint], Endpoint | None]  # of the socket that we dialled there


class HolePunches:
    """Punches, for one transport; works once `serve` was called."""

    def __init__(self, circuits: RelayedConnections, cross: Cross = cross) -> None:
        self._circuits = circuits
        self._cross = cross
        self._host: GatedHost | None = None
        self._own_end: OwnEnd = _none
        self._on_fault: OnFault = _nobody_is_told
        self._is_member: IsMember = _nobody
        self._punched: dict[PeerId, Endpoint] = {}  # where each was reached last
        self._askers = _Askers(1 / ASKED_EVERY_S, ASKED_BURST)
        self._where_askers = _Askers(WHERE_OF_ONE_PER_S, WHERE_OF_ONE_BURST)
        self._where: Pace | None = None
        self._busy: set[PeerId] = set()  # with whom a hole is being punched

    def serve(
        self, host: GatedHost, own_end: OwnEnd, on_fault: OnFault, is_member: IsMember
    ) -> None:
        """Punch, and be asked to, from now on."""
        self._host, self._own_end, self._on_fault = host, own_end, on_fault
        self._is_member = is_member
        host.set_stream_handler(TProtocol(protocols.PUNCH), serving(self._on_stream))

    def is_punched(self, peer_id: PeerId) -> bool:
        """Whether we are connected with it through a hole."""
        place = self._punched.get(peer_id)
        if place is None:  # of most, at every look: no connection need be found for it
            return False
        here = self._swarm().get_connections(ID.from_base58(peer_id))
        return any(remote_of(each) == place for each in here)

    async def punch(self, peer_id: PeerId) -> None:
        """Raises Unavailable when none came about, PeerFault for what is no such talk."""
        self._begin(peer_id, AT_ONCE_MAX)
        try:
            own, other = await self._ends(peer_id)
            stream = await self._open(peer_id)
            try:
                raw = await self._agree_and_dial(stream, own, other)
                self._note(peer_id, other)
                await self._swarm().upgrade_outbound_raw_conn(raw, ID.from_base58(peer_id))
                await self._hear(stream, Word.DONE)
            finally:
                await stream.aclose()
        except (trio.TooSlowError, trio.BrokenResourceError, SwarmException) as error:
            raise Unavailable(f"no hole to {peer_id}: {str(error) or 'no answer'}") from None
        finally:
            self._busy.discard(peer_id)
        await self._leave_the_relay(peer_id)

    async def _agree_and_dial(
        self, stream: ByteStream, own: Endpoint, other: Endpoint
    ) -> IRawConnection:
        await write_message(stream, said(Word.CONNECT))
        await self._hear(stream, Word.READY)
        failure = ""
        for _ in range(TRIES_MAX):
            began_s = trio.current_time()
            await write_message(stream, said(Word.PING))
            await self._hear(stream, Word.PONG)
            round_trip_s = min(trio.current_time() - began_s, ROUND_TRIP_S_MAX)
            await write_message(stream, said(Word.SYNC))
            await trio.sleep(round_trip_s / 2)
            try:
                return RawConnection(SocketStream(await self._cross(own, other)), True)
            except Unavailable as reason:
                failure = str(reason)
        raise Unavailable(failure)

    async def _on_stream(self, stream: ByteStream) -> None:
        try:
            with trio.fail_after(WORD_TIMEOUT_S):
                wish = punch_messages.wish_of(await read_message(stream, MESSAGE_BYTES_MAX))
            try:
                if not isinstance(wish, Word):
                    await write_message(stream, self._told_place(stream.peer_id, wish))
                elif wish is Word.CONNECT:
                    await self._answer(stream)
                else:
                    raise PeerFault("punch-malformed", f"{wish!r} begins nothing")
            except Unavailable as reason:
                await write_message(stream, relay_messages.refused(str(reason)))
        except PeerFault as fault:
            if fault.reason != TRUNCATED:  # it went away; that is no lie
                self._on_fault(stream.peer_id, fault)
            raise

    def _told_place(self, asker: PeerId, peer_id: PeerId) -> bytes:
        """What a relay tells one end of a circuit of the other. Raises Unavailable."""
        desk = self._circuits.desk
        if desk is None or not desk.joins(asker, peer_id):
            raise Unavailable("no circuit joins you with that peer")
        if self._where is None:
            self._where = Pace(WHERE_PER_S, WHERE_BURST)
        if not (self._where_askers.take(asker) and self._where.take_at_once()):
            raise Unavailable("busy: ask again later")
        here = self._swarm().get_connections(ID.from_base58(peer_id))
        place = next((found for each in here if (found := remote_of(each)) is not None), None)
        if place is None or not is_host(place[0]) or place[1] < PORT_FIRST:
            raise Unavailable("that peer is at no address that is seen here")
        return punch_messages.at(*place)

    async def _answer(self, stream: ByteStream) -> None:
        """Raises Unavailable for what we do not want to do, or that did not come about."""
        peer_id = stream.peer_id
        if not self._askers.take(peer_id):
            raise Unavailable(f"asked too often: one hole in {ASKED_EVERY_S:.0f} s")
        if not self._is_member(peer_id):
            strangers = sum(not self._is_member(each) for each in self._busy)
            if strangers >= STRANGERS_AT_ONCE_MAX:
                raise Unavailable("busy: other strangers have holes punched")
        self._begin(peer_id, ASKED_AT_ONCE_MAX)
        try:
            own, other = await self._ends(peer_id)
            with trio.fail_after(ANSWER_TIMEOUT_S):
                await self._cross_when_told(stream, own, other)
        finally:
            self._busy.discard(peer_id)

    async def _cross_when_told(self, stream: ByteStream, own: Endpoint, other: Endpoint) -> None:
        await write_message(stream, said(Word.READY))
        for _ in range(TRIES_MAX):
            await self._hear(stream, Word.PING)
            await write_message(stream, said(Word.PONG))
            await self._hear(stream, Word.SYNC)
            with suppress(Unavailable):
                found = await self._cross(own, other)
                await self._take(stream, found, other)
                return

    def _begin(self, peer_id: PeerId, most: int) -> None:
        """Raises Unavailable where so many are under way; who draws its own out keeps a place."""
        if peer_id in self._busy or len(self._busy) >= most:
            raise Unavailable("busy: other holes are being punched")
        self._busy.add(peer_id)

    async def _take(self, stream: ByteStream, found: trio.SocketStream, other: Endpoint) -> None:
        """Serve the other end's new connection, and say once it has come about."""
        swarm = self._swarm()
        assert swarm.background_nursery is not None
        self._note(stream.peer_id, other)
        kind = "ip6" if ":" in other[0] else "ip4"
        maddr = Multiaddr(f"/{kind}/{other[0]}/tcp/{other[1]}")
        swarm.background_nursery.start_soon(swarm.handler_of(maddr), SocketStream(found))
        with trio.move_on_after(SETTLE_S):
            while not self.is_punched(stream.peer_id):
                await trio.sleep(SETTLE_LOOK_S)
            await write_message(stream, said(Word.DONE))

    async def _leave_the_relay(self, peer_id: PeerId) -> None:
        for connection in self._swarm().get_connections(ID.from_base58(peer_id)):
            if _relay_of(connection) is not None:
                await connection.close()

    async def _ends(self, peer_id: PeerId) -> tuple[Endpoint, Endpoint]:
        """Our socket's towards the relay, and where the relay sees the peer.

        Raises Unavailable, or PeerFault of the relay's, which it is blamed for.
        """
        swarm = self._swarm()
        here = swarm.get_connections(ID.from_base58(peer_id))
        relay = next((found for each in here if (found := _relay_of(each)) is not None), None)
        if relay is None:
            raise Unavailable(f"{peer_id} is connected with us through no relay")
        seen = next(iter(map(remote_of, swarm.get_connections(ID.from_base58(relay)))), None)
        own = None if seen is None else self._own_end(seen)
        if seen is None or own is None:
            raise Unavailable("we dialled no socket to the relay: our router has shown it none")
        stream = await self._open(relay)
        try:
            with trio.fail_after(WORD_TIMEOUT_S):
                await write_message(stream, punch_messages.where(peer_id))
                answer = await read_message(stream, MESSAGE_BYTES_MAX)
            other = punch_messages.place_of(answer)
            if not is_in_reach(other[0], seen[0]):
                # no lie for certain: the two may share a private network that we are not in
                raise Unavailable(f"{relay} sees {peer_id} at {other[0]}, which we do not follow")
        except PeerFault as fault:
            if fault.reason != TRUNCATED:
                self._on_fault(relay, fault)
            raise Unavailable(f"{relay} does not say where {peer_id} is") from None
        except (trio.TooSlowError, trio.BrokenResourceError) as error:
            raise Unavailable(f"{relay} does not say where {peer_id} is: {error}") from None
        finally:
            await stream.aclose()
        return own, other

    async def _open(self, peer_id: PeerId) -> ByteStream:
        peer = ID.from_base58(peer_id)
        if self._host is None or peer not in self._swarm().connections:
            raise Unavailable(f"{peer_id} is not connected")
        try:
            with trio.fail_after(OPEN_TIMEOUT_S):
                return PeerStream(await self._host.new_stream(peer, [TProtocol(protocols.PUNCH)]))
        except (BaseLibp2pError, trio.TooSlowError) as error:
            raise Unavailable(f"{peer_id} punches no holes: {error}") from None

    async def _hear(self, stream: ByteStream, wanted: Word) -> None:
        """Raises Unavailable for a refusal, PeerFault for another word, TooSlowError."""
        with trio.fail_after(WORD_TIMEOUT_S):
            word = punch_messages.word_of(await read_message(stream, MESSAGE_BYTES_MAX))
        if word is not wanted:
            raise PeerFault("punch-malformed", f"{word!r} in place of {wanted!r}")

    def _note(self, peer_id: PeerId, place: Endpoint) -> None:
        self._punched.pop(peer_id, None)
        self._punched[peer_id] = place
        if len(self._punched) > PUNCHED_KEPT_MAX:
            del self._punched[next(iter(self._punched))]

    def _swarm(self) -> BoundedSwarm:
        assert self._host is not None, "no hole is punched before the transport runs"
        return self._host.swarm


class _Askers:
    """A pace for each peer that asks us for something."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._paces: dict[PeerId, Pace] = {}

    def take(self, peer_id: PeerId) -> bool:
        """Whether this one may have it now."""
        if peer_id not in self._paces:
            if len(self._paces) >= ASKERS_KEPT_MAX:
                self._paces = {p: pace for p, pace in self._paces.items() if not pace.is_full}
            if len(self._paces) >= ASKERS_KEPT_MAX:
                return False
            self._paces[peer_id] = Pace(self._per_s, self._burst)
        return self._paces[peer_id].take_at_once()


def _relay_of(connection: INetConn) -> PeerId | None:
    """Of one that leads through it."""
    remote = remote_of(connection)
    if remote is None or not remote[0].startswith(RELAYED_BY):
        return None
    return PeerId(remote[0].removeprefix(RELAYED_BY))


def _none(_place: Endpoint) -> None:
    """A world without sockets."""


def _nobody(_peer_id: PeerId) -> bool:
    """Is a member, before a transport runs."""
    return False


def _nobody_is_told(_peer_id: PeerId, _fault: PeerFault) -> None:
    """Until a transport runs."""
