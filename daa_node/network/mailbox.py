"""Messages between members: one long-lived one-way stream a pair, straight from sender to reader.

    outbox (bounded, see there) -> stream (reopened when cut) -> reader -> on_message

Delivery is best effort: whoever needs certainty resends, and is told when a stream to a member was
opened anew, or when a member has read all that was left after something was dropped. A reader that
stops reading costs its sender a bounded outbox. A
sender that floods is read one message at a time like everybody else, and at a pace of its own: its
newest stream ends the ones before, so that many streams buy no more of our time or memory than one.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf

import trio

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.outbox import Outbox
from daa_node.network.pace import Paces
from daa_node.seams import ByteStream, PeerId, Transport
from daa_node.wire import protocols
from daa_node.wire.framing import TRUNCATED, MessageReader, write_message
from daa_node.wire.limits import MESSAGE_BYTES_MAX

CONNECTED_LOOK_S = 0.2  # between looks whether a member that was away is back
REOPEN_WAIT_S = 0.1  # first wait after a stream broke or failed to open; doubled up to the cap
REOPEN_WAIT_S_MAX = 2.0
SEND_TIMEOUT_S = 10.0  # a reader this slow is cut off; the stream is opened anew
SLOW_LOOK_S = 1.0  # between looks for such readers at least: one for all, no timer for each message

# Largest messages of one member: a Proposal, an answer, and what it offers to who is behind, twice
# over. Its signatures are verified at 20 MB a second: what it may send costs a few hundredths.
READ_A_DELTA_MAX = 4
MESSAGE_COST_BYTES = 1024  # of the smallest: to decode and to step

MessageHandler = Callable[[NodeId, bytes], Awaitable[None]]


@dataclass(slots=True)
class _Box:
    """One member's: what waits for it, and the task that writes it."""

    messages: Outbox = field(default_factory=Outbox)
    posted: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    delivery: trio.CancelScope = field(default_factory=trio.CancelScope)
    away: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    writing: trio.CancelScope | None = None  # on the stream that is open
    message_since_s: float = inf  # the one under way


class Mailbox:
    """Sends messages to members and hands theirs to `on_message`, in the order of each sender."""

    def __init__(
        self,
        transport: Transport,
        peer_of: Callable[[NodeId], PeerId | None],
        node_of: Callable[[PeerId], NodeId | None],
        members: Iterable[NodeId],
        message_bytes_max: Callable[[], int],
        on_fault: Callable[[NodeId, PeerFault], None],
        delta_s: float,
    ) -> None:
        """`message_bytes_max` of ours, in bytes, `delta_s` the bound on a message's way."""
        # at which each member is read
        self._paces = Paces(delta_s, lambda: READ_A_DELTA_MAX * message_bytes_max())
        self._transport = transport
        self._peer_of = peer_of
        self._node_of = node_of
        self._message_bytes_max = message_bytes_max
        self._on_fault = on_fault
        self._members: set[NodeId] = set()  # whose messages are read
        self._is_one = False
        self._boxes: dict[NodeId, _Box] = {}  # of whom we write to
        self._begin_delivery: Callable[[NodeId, _Box], None] | None = None
        self._reading: dict[NodeId, trio.CancelScope] = {}  # the newest stream of each member
        self._opened_s: dict[NodeId, float] = {}  # when we last began to write to each member
        self._missing = trio.lowlevel.ParkingLot()  # who looks for members that are away
        self.bytes_sent = 0
        self.bytes_received = 0
        self.follow(members)

    def follow(self, members: Iterable[NodeId], is_one: bool = True) -> None:
        """From now on read what these write, and write to them if we are one of them.

        Else only to those who write to us: to them we are one already. The others would not read
        it, and however many look on, each of them would open streams to every member in vain.
        """
        before, self._members, self._is_one = self._members, set(members), is_one
        for gone in sorted(before - self._members):
            self._paces.forget(gone)
            self._opened_s.pop(gone, None)
            if gone in self._reading:
                self._reading.pop(gone).cancel()
        self._open_boxes()

    def _open_boxes(self) -> None:
        wanted = self._members if self._is_one else self._members & self._reading.keys()
        for gone in sorted(self._boxes.keys() - wanted):
            self._boxes.pop(gone).delivery.cancel()
        for member in sorted(wanted - self._boxes.keys()):
            box = self._boxes[member] = _Box()
            if self._begin_delivery is not None:
                self._begin_delivery(member, box)

    async def run(self, on_message: MessageHandler, on_opened: Callable[[NodeId], None]) -> None:
        """Serve until cancelled.

        `on_opened(member)` follows every newly opened stream to it, and every gap: then it has read
        all that was left for it after something was dropped.
        """
        receive = partial(self._receive, on_message=on_message)
        self._transport.set_handler(protocols.VOTES, receive)
        async with trio.open_nursery() as nursery:

            def begin(member: NodeId, box: _Box) -> None:
                nursery.start_soon(self._deliver, member, box, on_opened)

            nursery.start_soon(self._part_with_the_slow)
            nursery.start_soon(self._look_for_the_away)
            for member, box in self._boxes.items():
                begin(member, box)
            self._begin_delivery = begin
            try:
                await trio.sleep_forever()  # also while there is nobody else: somebody may join
            finally:
                self._begin_delivery = None

    async def _part_with_the_slow(self) -> None:
        """Look again when what is under way for longest now may have been so for too long."""
        while True:
            now_s = trio.current_time()
            oldest_s = min([now_s, *(box.message_since_s for box in self._boxes.values())])
            await trio.sleep_until(max(now_s + SLOW_LOOK_S, oldest_s + SEND_TIMEOUT_S))
            now_s = trio.current_time()
            for box in self._boxes.values():
                if box.message_since_s + SEND_TIMEOUT_S <= now_s and box.writing is not None:
                    box.writing.cancel()

    async def _look_for_the_away(self) -> None:
        """One look for all: dialling is not our work; but who comes back hears of us at once."""
        while True:
            if not any(box.away for box in self._boxes.values()):
                await self._missing.park()
            await trio.sleep(CONNECTED_LOOK_S)
            connected = set(self._transport.connected())
            for member, box in self._boxes.items():
                if box.away and self._peer_of(member) in connected:
                    box.away.unpark_all()

    def send(self, member: NodeId, message: bytes) -> None:
        """Put `message` into the member's outbox; strangers have none and get nothing."""
        box = self._boxes.get(member)
        if box is not None:
            self._post([box], message)

    def answer(self, member: NodeId, message: bytes) -> bool:
        """As `send`, what the member asked for; False if it must read others of these first."""
        assert len(message) <= self._message_bytes_max(), len(message)
        box = self._boxes.get(member)
        if box is None or not box.messages.put_answer(message, self._message_bytes_max()):
            return False
        box.posted.unpark_all()
        return True

    def forget(self, member: NodeId) -> None:
        """What waits for the member, but for what was begun: all that matters is said anew."""
        box = self._boxes.get(member)
        if box is not None:
            box.messages.clear()

    def broadcast(self, message: bytes) -> None:
        self._post(self._boxes.values(), message)

    def _post(self, boxes: Iterable[_Box], message: bytes) -> None:
        bytes_max = self._message_bytes_max()
        assert len(message) <= bytes_max, len(message)
        for box in boxes:
            box.messages.put(message, bytes_max)
            if box.posted:
                box.posted.unpark_all()

    async def _receive(self, stream: ByteStream, on_message: MessageHandler) -> None:
        sender = self._node_of(stream.peer_id)
        if sender is None or sender not in self._members:
            return  # not a member: nothing it says here counts
        before, scope = self._reading.get(sender), trio.CancelScope()
        if before is not None:
            before.cancel()
        self._reading[sender] = scope
        self._open_boxes()
        try:
            with scope:
                await self._read(sender, stream, on_message)
        except PeerFault as fault:
            self._on_fault(sender, fault)
        finally:
            if sender not in self._members:
                self._paces.forget(sender)  # its stream asked for it after it had gone
            if self._reading.get(sender) is scope:
                del self._reading[sender]
                self._open_boxes()

    async def _read(self, sender: NodeId, stream: ByteStream, on_message: MessageHandler) -> None:
        # Larger than our own may be: a committee that has grown writes to who was away.
        messages = MessageReader(stream, MESSAGE_BYTES_MAX)
        while True:
            pace = self._paces.of(sender)
            # Before the first message, too: what earlier streams brought is still owed.
            debt_s = pace.debt_s
            if debt_s:
                await trio.sleep(debt_s)
            try:
                message = await messages.next()
            except PeerFault as fault:
                # A writer that stops, or for which we took too long, ends amid a message.
                pace.spend(MESSAGE_COST_BYTES + messages.ahead_bytes)
                if fault.reason != TRUNCATED:
                    raise
                return
            if message is None:
                return
            self.bytes_received += len(message)
            pace.spend(MESSAGE_COST_BYTES + len(message))
            await on_message(sender, message)

    async def _deliver(
        self, member: NodeId, box: _Box, on_opened: Callable[[NodeId], None]
    ) -> None:
        with box.delivery:
            wait_s = REOPEN_WAIT_S
            # Who looks on loses a box with the member's stream: hanging up must not make it new.
            if member in self._opened_s:
                await trio.sleep_until(self._opened_s[member] + REOPEN_WAIT_S_MAX)
            while True:
                peer_id = self._peer_of(member)
                if peer_id is None or peer_id not in self._transport.connected():
                    wait_s = REOPEN_WAIT_S
                    self._missing.unpark_all()
                    await box.away.park()
                    continue
                try:
                    stream = await self._transport.open_stream(peer_id, protocols.VOTES)
                except (Unavailable, trio.BrokenResourceError):
                    await trio.sleep(wait_s)
                    wait_s = min(2 * wait_s, REOPEN_WAIT_S_MAX)
                    continue
                opened_s = self._opened_s[member] = trio.current_time()
                on_opened(member)
                await self._drain(member, box, stream, on_opened)
                # What we say to it anew costs us more than it costs a reader to hang up each time.
                lasted = trio.current_time() - opened_s > REOPEN_WAIT_S_MAX
                wait_s = REOPEN_WAIT_S if lasted else wait_s
                await trio.sleep(wait_s)
                wait_s = min(2 * wait_s, REOPEN_WAIT_S_MAX)

    async def _drain(
        self,
        member: NodeId,
        box: _Box,
        stream: ByteStream,
        on_gap: Callable[[NodeId], None],
    ) -> None:
        """Write messages until the stream breaks; the one under way is kept for the next stream."""
        messages = box.messages
        try:
            with trio.CancelScope() as box.writing:
                while True:
                    if messages:
                        message = messages.first()
                        box.message_since_s = trio.current_time()
                        await write_message(stream, message)
                        box.message_since_s = inf
                        self.bytes_sent += len(message)
                        messages.sent(message)
                    elif messages.has_gap:
                        on_gap(member)
                        messages.has_gap = False  # what this very call may have dropped is no news
                    else:
                        await box.posted.park()
        except (trio.BrokenResourceError, trio.ClosedResourceError, Unavailable):
            return  # it is opened anew
        finally:
            box.writing, box.message_since_s = None, inf
            with trio.move_on_after(1) as cleanup:
                cleanup.shield = True
                await stream.aclose()
