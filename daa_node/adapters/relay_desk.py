"""Relays bytes between two peers of which neither can dial the other, if the operator says so.

    reserved --RESERVED_S without another request, or its connection ends--> forgotten
    circuit  --either end closes, or for IDLE_S says or takes nothing------> closed

Who has a reservation can be reached through us by whom we have welcomed. We see the two ends and
the number of bytes: what they say is sealed by noise from end to end. Every member has a pace of
its own, all who are no members share one; whoever sends faster waits. No circuit leads through two
relays.

All of it counts as data of our link, both ways, and keeps to its caps (see link_limits). With a
tenth of a day's bytes left no reservation is given and no circuit opened, and guests' circuits
end; those of members stay, for the letters in them, at SPENT_BYTES_PER_S once nothing is left.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import trio

from daa_node.adapters.libp2p_peer_stream import count_elsewhere, set_apart
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.link_limits import Budget, LinkLimits
from daa_node.network.pace import Pace
from daa_node.seams import ByteStream, IsMember, OnFault, PeerId
from daa_node.wire import protocols, relay_messages
from daa_node.wire.framing import TRUNCATED, read_message, write_message
from daa_node.wire.limits import KIB, MIB

RESERVED_S = 600
RESERVATIONS_MAX, GUESTS_RESERVATIONS_MAX = 128, 32
CIRCUITS_MAX, GUESTS_CIRCUITS_MAX = 256, 32  # each may hold half a MiB that nobody takes
CIRCUITS_PER_CALLER_MAX = 16  # of 64 streams that a peer may have
# Not more, or one caller took all of the streams on which others reach who cannot be dialled.
CIRCUITS_PER_PAIR_MAX = 2  # as connections: one may be ending
GUESTS_CIRCUITS_TO_ONE_MAX = 8
# Whoever is called pays for a handshake each time: out of what all pay that come through us.
CONNECTS_PER_S, CONNECTS_BURST = 0.5, 32.0  # of a member, and of all guests together
# A member: a contribution of 100 MB in a minute. Guests: as one of them, all together.
BYTES_PER_S, BYTES_BURST = 2.0 * MIB, 32.0 * MIB
# Once our day is spent, of a member: its letters, and little beside them.
SPENT_BYTES_PER_S = 16.0 * KIB
PIECE_BYTES = 64 * KIB
IDLE_S = 90.0  # six pings of yamux, which both ends send
WORDS_TIMEOUT_S = 10.0
MEMBERS_KEPT_MAX = 256  # paces

OpenStream = Callable[[PeerId, str], Awaitable[ByteStream]]  # raises Unavailable


class RelayDesk:
    """`serve` handles protocols.RELAY, which admitted peers alone may speak."""

    def __init__(
        self,
        open_stream: OpenStream,
        is_relayed: Callable[[PeerId], bool],
        is_connected: Callable[[PeerId], bool],
        is_member: IsMember,
        on_fault: OnFault,
        limits: Callable[[], LinkLimits | None] = lambda: None,
    ) -> None:
        """`limits`: of our link, once they are known."""
        self._limits = limits
        self._open_stream = open_stream
        self._is_relayed = is_relayed
        self._is_connected = is_connected
        self._is_member = is_member
        self._on_fault = on_fault
        self._reserved: dict[PeerId, float] = {}  # until when
        self._pairs = Counter[tuple[PeerId, PeerId]]()  # circuits, by caller and called
        self._of_guests = Counter[PeerId]()  # those that no member has asked for, by called
        self._paces: dict[PeerId, Pace] = {}
        self._guests_pace: Pace | None = None
        self._connects: dict[PeerId | None, Pace] = {}  # None: of guests
        self.circuits = 0

    async def serve(self, stream: ByteStream) -> None:
        try:
            with trio.fail_after(WORDS_TIMEOUT_S):
                payload = await read_message(stream, relay_messages.MESSAGE_BYTES_MAX)
            word, peer_id = relay_messages.wish_of(payload)
        except PeerFault as fault:
            if fault.reason != TRUNCATED:  # it went away; that is no lie
                self._on_fault(stream.peer_id, fault)
            raise
        try:
            if self._is_relayed(stream.peer_id):
                raise Unavailable("no circuit leads through two relays")
            # as what it carries will count: a circuit that would end at its first piece is refused
            ends = (stream.peer_id,) if word == "reserve" else (stream.peer_id, peer_id)
            limits, for_guest = self._limits(), not all(map(self._is_member, ends))
            if limits is not None and not limits.may_relay(for_guest):
                raise Unavailable("today's data are nearly spent: another relay may have some")
            if word == "reserve":
                self._reserve(stream.peer_id)
                await write_message(stream, relay_messages.granted(RESERVED_S))
            else:
                await self._connect(stream, peer_id)
        except Unavailable as reason:
            await write_message(stream, relay_messages.refused(str(reason)))

    def joins(self, one: PeerId, other: PeerId) -> bool:
        """Whether a circuit of these two leads through us now."""
        return bool(self._pairs[one, other] or self._pairs[other, one])

    def _reserve(self, peer_id: PeerId) -> None:
        now_s = trio.current_time()
        self._reserved = {
            peer: until
            for peer, until in self._reserved.items()
            if until > now_s and self._is_connected(peer)
        }
        if peer_id not in self._reserved:
            guests = sum(not self._is_member(peer) for peer in self._reserved)
            if len(self._reserved) >= RESERVATIONS_MAX:
                raise Unavailable(f"{RESERVATIONS_MAX} others have a reservation here")
            if not self._is_member(peer_id) and guests >= GUESTS_RESERVATIONS_MAX:
                raise Unavailable(f"{GUESTS_RESERVATIONS_MAX} who are no members have one here")
        self._reserved[peer_id] = now_s + RESERVED_S

    async def _connect(self, caller: ByteStream, called_id: PeerId) -> None:
        if self._reserved.get(called_id, 0.0) <= trio.current_time():
            raise Unavailable("that peer has no reservation here")
        with self._circuit(caller.peer_id, called_id):
            called = await self._open_stream(called_id, protocols.RELAYED)
            try:
                with trio.fail_after(WORDS_TIMEOUT_S):
                    await write_message(called, relay_messages.from_peer(caller.peer_id))
                    answer = await read_message(called, relay_messages.MESSAGE_BYTES_MAX)
                relay_messages.seconds_granted(answer)
                await write_message(caller, relay_messages.granted())
                await self._relay(caller, called)
            except (trio.TooSlowError, trio.BrokenResourceError, PeerFault):
                raise Unavailable("that peer does not answer") from None
            finally:
                await called.aclose()

    @contextmanager
    def _circuit(self, caller: PeerId, called: PeerId) -> Iterator[None]:
        is_guest = not self._is_member(caller)
        if caller == called:
            raise Unavailable("that peer is the one who asks")
        if not self._connects_of(None if is_guest else caller).take_at_once():
            raise Unavailable("asked too often: ask again later")
        if self.circuits >= CIRCUITS_MAX:
            raise Unavailable(f"busy: {self.circuits} circuits lead through this relay")
        if is_guest and (
            self._of_guests.total() >= GUESTS_CIRCUITS_MAX
            or self._of_guests[called] >= GUESTS_CIRCUITS_TO_ONE_MAX
        ):
            raise Unavailable(f"busy: {self._of_guests.total()} circuits of who are no members")
        of_caller = sum(count for (one, _), count in self._pairs.items() if one == caller)
        if of_caller >= CIRCUITS_PER_CALLER_MAX:
            raise Unavailable(f"busy: {CIRCUITS_PER_CALLER_MAX} circuits of one peer")
        if self._pairs[caller, called] >= CIRCUITS_PER_PAIR_MAX:
            raise Unavailable(f"busy: {CIRCUITS_PER_PAIR_MAX} circuits to that peer")
        of_guests = (called,) if is_guest else ()
        self.circuits += 1
        self._pairs.update([(caller, called)])
        self._of_guests.update(of_guests)
        try:
            yield
        finally:
            self.circuits -= 1
            self._pairs.subtract([(caller, called)])
            self._of_guests.subtract(of_guests)
            self._pairs, self._of_guests = +self._pairs, +self._of_guests

    def _connects_of(self, caller: PeerId | None) -> Pace:
        if caller not in self._connects:
            if len(self._connects) >= MEMBERS_KEPT_MAX:
                self._connects = {p: pace for p, pace in self._connects.items() if not pace.is_full}
            self._connects[caller] = Pace(CONNECTS_PER_S, CONNECTS_BURST)
        return self._connects[caller]

    async def _relay(self, caller: ByteStream, called: ByteStream) -> None:
        """Until either end closes."""
        for end in (caller, called):
            set_apart(end)
            count_elsewhere(end)  # who is no member spends of strangers' data, both ways
        try:
            async with trio.open_nursery() as nursery:
                ends = caller.peer_id, called.peer_id
                for source, sink in ((caller, called), (called, caller)):
                    pace = self._pace_of(source.peer_id, *ends)
                    carry = partial(self._carry, source, sink, pace, pace is self._guests_pace)
                    nursery.start_soon(_then_cancel, carry, nursery.cancel_scope)
        except* trio.BrokenResourceError:
            pass  # one of them has broken it off

    async def _carry(
        self, source: ByteStream, sink: ByteStream, pace: Pace, of_guest: bool
    ) -> None:
        while True:
            piece = b""
            with trio.move_on_after(IDLE_S):
                piece = await source.receive_some(PIECE_BYTES)
            if not piece:
                return
            if not await self._may_pass(len(piece), pace, of_guest):
                return
            with trio.move_on_after(IDLE_S) as taking:
                await sink.send_all(piece)
            if taking.cancelled_caught:
                return  # who reads nothing holds no circuit either

    async def _may_pass(self, size_bytes: int, pace: Pace, of_guest: bool) -> bool:
        """Wait until a piece may; False if its circuit is to end."""
        limits = self._limits()
        if limits is None:
            await pace.take(size_bytes)
            return True
        if of_guest and not limits.may_relay(True):
            return False
        is_spent = limits.budget is Budget.SPENT
        await pace.take(size_bytes * BYTES_PER_S / SPENT_BYTES_PER_S if is_spent else size_bytes)
        await limits.relay(size_bytes, of_guest)
        return True

    def _pace_of(self, peer_id: PeerId, *ends: PeerId) -> Pace:
        """What a member sends to a guest is not taken from what it may send to members."""
        if not all(map(self._is_member, ends)):
            if self._guests_pace is None:
                self._guests_pace = Pace(BYTES_PER_S, BYTES_BURST)
            return self._guests_pace
        if peer_id not in self._paces:
            if len(self._paces) >= MEMBERS_KEPT_MAX:
                self._paces = {p: pace for p, pace in self._paces.items() if not pace.is_full}
            self._paces[peer_id] = Pace(BYTES_PER_S, BYTES_BURST)
        return self._paces[peer_id]


async def _then_cancel(work: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await work()
    scope.cancel()
