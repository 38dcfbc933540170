"""Messages between machines where a script says who hears whom, and two bodies have one key.

A machine's MessageTransport carries the streams of votes itself, and leaves all others to the
transport inside. A line to a key ends at every machine that has it, and what they say comes to
others on one stream, so that nobody hears one body instead of the other:

    mailbox --Line--> Stage.passes, for each body that hears --link's time--> Reading --> mailbox

What does not pass is lost, as often as it is sent again. A line breaks when a machine at its other
end starts or stops, and when `reopen` ends an attack: then both sides say anew where they stand.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import trio

from daa_consensus.bft.chain import ANY_COMMITTEE
from daa_node.agreement.messages import Message
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import ByteStream, PeerId, StreamHandler, Transport
from daa_node.wire.limits import LENGTH_PREFIX_BYTES, MIB
from daa_node.wire.protocols import REQUEST, VOTES
from simnet.nodes.virtual.job import Founding
from simnet.nodes.virtual.network import HEADER_BYTES, Network
from simnet.nodes.virtual.scheduling import at, now_ns
from simnet.world.decoded_messages import decoded
from simnet.world.wrapped_transport import WrappedTransport

Place = tuple[int, int]  # (node, body)

UNREAD_BYTES_MAX = 16 * MIB  # of one member: it is read at a pace of its own
READINGS_MAX = 256  # that nobody has taken up: one a member


class Stage(Protocol):
    """What a script arranges beyond a scenario: leaders, and who hears whom, body by body."""

    def founded(self, founding: Founding) -> Founding:
        """The network, with leaders of the script's choice in its first epoch."""

    def passes(self, sender: Place, receiver: Place, message: Message) -> bool:
        """Whether the message, sent now, goes on the wire to this machine."""

    def meets(self, asking: Place, asked: Place) -> bool:
        """Whether a request that is made now comes to this machine."""


class Lines:
    """All messages of a run."""

    def __init__(self, stage: Stage, network: Network) -> None:
        self.stage = stage
        self.network = network
        self._machines: dict[PeerId, tuple[MessageTransport, ...]] = {}  # that run, by their key
        self._attack = 0

    def reopen(self) -> None:
        """Break every line: who was parted from others says anew where it stands."""
        self._attack += 1

    def state(self, peer_id: PeerId) -> tuple[object, ...]:
        """Another one as soon as a line to that key is broken."""
        return (self._attack, *self._machines.get(peer_id, ()))

    def machines(self, peer_id: PeerId) -> tuple["MessageTransport", ...]:
        return self._machines.get(peer_id, ())

    def enter(self, machine: "MessageTransport") -> None:
        self._machines[machine.peer_id] = (*self.machines(machine.peer_id), machine)

    def leave(self, machine: "MessageTransport") -> None:
        others = tuple(each for each in self.machines(machine.peer_id) if each is not machine)
        self._machines[machine.peer_id] = others


class MessageTransport(WrappedTransport):
    """A Transport whose votes' streams are lines. `run` beside the transport inside."""

    def __init__(self, inner: Transport, lines: Lines, place: Place) -> None:
        super().__init__(inner)
        self._lines = lines
        self.place = place
        self._handler: StreamHandler | None = None
        self._readings: dict[PeerId, Reading] = {}
        self._new, self._untaken = trio.open_memory_channel[Reading](READINGS_MAX)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hear others, until cancelled."""
        self._lines.enter(self)
        try:
            async with trio.open_nursery() as nursery:
                task_status.started()
                async for reading in self._untaken:
                    nursery.start_soon(self._read, reading)
        finally:
            self._lines.leave(self)

    async def _read(self, reading: "Reading") -> None:
        if self._handler is not None:
            await self._handler(reading)
        del self._readings[reading.peer_id]  # what comes from now on is another stream

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        machines, meets = self._lines.machines(peer_id), self._lines.stage.meets
        if protocol == VOTES:
            await trio.lowlevel.checkpoint()
            if peer_id in self.connected() and machines:
                return Line(self, self._lines, peer_id)
        # Which body of a key the transport inside has met, only chance can tell.
        elif protocol != REQUEST or all(meets(self.place, machine.place) for machine in machines):
            return await self._inner.open_stream(peer_id, protocol)
        raise Unavailable(f"{peer_id} is not connected")

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        if protocol == VOTES:
            self._handler = handler
        else:
            self._inner.set_handler(protocol, handler)

    def hear(self, sender: PeerId, payload: bytes) -> None:
        """A message is here."""
        reading = self._readings.get(sender)
        if reading is None:
            reading = self._readings[sender] = Reading(sender)
            self._new.send_nowait(reading)
        reading.add(payload)


class Line:
    """A ByteStream for messages to one key. It is read by nobody."""

    def __init__(self, sender: MessageTransport, lines: Lines, peer_id: PeerId) -> None:
        self.peer_id = peer_id
        self._sender = sender
        self._lines = lines
        self._state = lines.state(peer_id)

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        lines, network, told = self._lines, self._lines.network, bytes(payload)
        message = _message(told[LENGTH_PREFIX_BYTES:])
        for machine in lines.machines(self.peer_id):
            route = (self._sender.place[0], machine.place[0])
            await network.until_free(route)
            if self._state != lines.state(self.peer_id):
                raise trio.BrokenResourceError("a machine at the other end has started or stopped")
            if message is None or lines.stage.passes(self._sender.place, machine.place, message):
                network.trace.frame(now_ns(), *route, told)
                at_ns = network.ways.arrival_ns(route, len(told) + HEADER_BYTES)
                at(at_ns, partial(machine.hear, self._sender.peer_id, told))

    async def receive_some(self, size_bytes_max: int) -> bytes:
        raise trio.BrokenResourceError("messages go one way")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@dataclass(eq=False, slots=True)
class Reading:
    """A ByteStream of all that one key says, whichever of its bodies."""

    peer_id: PeerId
    _unread: bytearray = field(default_factory=bytearray)
    _arrived: trio.Event = field(default_factory=trio.Event)

    def add(self, payload: bytes) -> None:
        self._unread += payload
        assert len(self._unread) <= UNREAD_BYTES_MAX
        self._arrived.set()

    async def receive_some(self, size_bytes_max: int) -> bytes:
        while not self._unread:
            self._arrived = trio.Event()
            await self._arrived.wait()
        taken = bytes(self._unread[:size_bytes_max])
        del self._unread[:size_bytes_max]
        return taken

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        raise trio.BrokenResourceError("messages go one way")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def _message(payload: bytes) -> Message | None:
    """None for what some liar sends."""
    try:
        return decoded(payload, ANY_COMMITTEE)
    except PeerFault:
        return None
