"""Sockets that are accepted and have said nothing yet: dozens at once, at next to no cost each.

    the kernel's queue --ACCEPTS_PER_S--> anteroom --a first byte--> served, at the service's pace
                                             \\-- full, or silent for long --> closed

A crowd that connects and says nothing is let in as fast as it comes and gives way to whoever comes
next. So it fills neither the kernel's queue, in which an honest visitor would wait behind it, nor
the places of those who are served. A visitor has something to say at once: it is gone from here by
the time that a few dozen others have come. Nobody here has a task or a stream of its own, and a
crowd is let in by handfuls: to wake up for each would cost more than all the rest.
"""

import errno
import selectors
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import trio

from daa_node.adapters.descriptors import Gate
from daa_node.adapters.waiting_room import SHARES, Familiar, network_of
from daa_node.network.pace import Pace

# Each costs a tenth of a millisecond: a flood of them a twentieth of a core. With 64 places whoever
# comes has an eighth of a second for its first byte, half of it where a lull has ended, and much
# longer where nobody presses. At a hundred a second a crowd fills the kernel's queue again: whoever
# comes waits for half a minute.
ACCEPTS_PER_S = 500.0
BURST = 20.0  # those of 40 ms, in which the loop may have done other work
HANDFUL = 10  # between two looks at what else is to do: a millisecond
HANDFUL_S = HANDFUL / ACCEPTS_PER_S  # in which a handful gathers, where the room is full
LOOK_S = 1.0  # between two looks at who has been silent for too long
# What accept(2) says of one visitor, and not of the door.
_GONE_ALREADY = frozenset(
    getattr(errno, name)
    for name in (
        *("ECONNABORTED", "EPERM", "EPROTO", "ENOPROTOOPT", "EOPNOTSUPP"),
        *("ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "ENONET", "ECONNRESET"),
        *("ETIMEDOUT", "ENOSR", "ESOCKTNOSUPPORT", "EPROTONOSUPPORT"),
    )
    if hasattr(errno, name)
)


@dataclass(frozen=True, slots=True, eq=False)
class _Guest:
    socket: socket.socket
    network: str
    came_s: float


class Anteroom:
    """Of one door. When it is full, the one goes that came first of the network with most here.

    Networks that are familiar come last to go, and first to be served; but behind all others while
    they hold more than their share: one that somebody shares with the operator keeps nobody out.
    """

    def __init__(self, capacity: int, silent_s: float, familiar: Familiar) -> None:
        """Whoever says nothing for `silent_s` goes in any case."""
        self._capacity = capacity
        self._silent_s = silent_s
        self._familiar = familiar
        self._guests: dict[_Guest, None] = {}  # the oldest first
        self._held = Counter[str]()  # by network
        self._selector = selectors.DefaultSelector()
        self._came = trio.Event()

    def __len__(self) -> int:
        return len(self._guests)

    @property
    def is_full(self) -> bool:
        return len(self._guests) >= self._capacity

    def enter(self, visitor: socket.socket, host: str) -> None:
        """It is ours from now on, until `speaker` gives it back; closed if this raises OSError."""
        guest = _Guest(visitor, network_of(host), trio.current_time())
        try:
            visitor.setblocking(False)
            self._selector.register(visitor.fileno(), selectors.EVENT_READ, guest)
        except OSError:  # whoever is not watched could never be let go
            visitor.close()
            raise
        if self.is_full:
            self._drop(self._who_goes())
        self._guests[guest] = None
        self._held[guest.network] += 1
        self._came.set()

    async def speaker(self) -> socket.socket:
        """The next one that has said something; it is the caller's."""
        while True:
            if not self._guests:
                self._came = trio.Event()
                await self._came.wait()
            with trio.move_on_after(LOOK_S):
                await trio.lowlevel.wait_readable(self._selector.fileno())
            guests: list[_Guest] = [key.data for key, _ in self._selector.select(0)]
            for guest in sorted(guests, key=self._standing):
                if self._has_spoken(guest):
                    self._forget(guest)
                    return guest.socket
            self._send_away_the_silent()

    def close(self) -> None:
        """Nobody is here afterwards; it can be entered again."""
        for guest in list(self._guests):
            self._drop(guest)

    def _has_spoken(self, guest: _Guest) -> bool:
        """A visitor that has hung up instead is dropped."""
        try:
            heard = guest.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:  # it was nothing
            return False
        except OSError:
            heard = b""
        if not heard:
            self._drop(guest)
        return bool(heard)

    def _send_away_the_silent(self) -> None:
        latest_s = trio.current_time() - self._silent_s
        for guest in [one for one in self._guests if one.came_s <= latest_s]:
            self._drop(guest)

    def _standing(self, guest: _Guest) -> tuple[bool, bool]:
        """The less, the sooner it is served and the later it goes; see waiting_room."""
        is_crowd = self._held[guest.network] > self._capacity // SHARES
        return is_crowd, guest.network not in self._familiar

    def _who_goes(self) -> _Guest:
        def rank(guest: _Guest) -> tuple[bool, bool, int]:
            return *self._standing(guest), self._held[guest.network]

        return max(self._guests, key=rank)  # the first of equals, which is the oldest

    def _drop(self, guest: _Guest) -> None:
        self._forget(guest)
        guest.socket.close()

    def _forget(self, guest: _Guest) -> None:
        self._selector.unregister(guest.socket.fileno())
        del self._guests[guest]
        self._held[guest.network] -= 1
        if not self._held[guest.network]:
            del self._held[guest.network]


@contextmanager
def _borrowed(listener: trio.SocketListener) -> Iterator[socket.socket]:
    """The same socket as Python has it: trio would make several objects for each that comes."""
    door = socket.socket(fileno=listener.socket.fileno())
    door.setblocking(False)
    try:
        yield door
    finally:
        door.detach()  # the listener closes it


async def serve_who_speaks(
    listener: trio.SocketListener,
    handler: Callable[[trio.SocketStream], Awaitable[object]],
    gate: Gate,
    anteroom: Anteroom,
) -> None:
    """Until cancelled: as `descriptors.serve`, but places and pace are for those who speak.

    A socket is closed when its handler returns, which must raise nothing.
    """

    async def handle(visitor: socket.socket) -> None:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(visitor))
        try:
            await handler(stream)
        finally:
            await trio.aclose_forcefully(stream)
            gate.places.release()

    async def let_in(door: socket.socket, pace: Pace) -> bool:
        """Whether more may wait. Those who came before it met a lack are in, and paid for."""
        if listener.socket.fileno() < 0:
            raise trio.ClosedResourceError
        await trio.lowlevel.wait_readable(listener.socket)
        for _ in range(HANDFUL):
            try:
                visitor, address = door.accept()
            except BlockingIOError:
                return False
            except OSError as fault:
                if fault.errno not in _GONE_ALREADY:
                    raise
            else:
                if address:
                    anteroom.enter(visitor, str(address[0]))
                else:  # gone already, as BSD and macOS say it
                    visitor.close()
            pace.spend(1)  # who has hung up, too
        return True

    async def let_all_in() -> None:
        pace = Pace(ACCEPTS_PER_S, BURST)
        with _borrowed(listener) as door:
            while True:
                may_wait = await gate.shortage.outlast(partial(let_in, door, pace))
                gathers = anteroom.is_full and not may_wait
                await trio.sleep(HANDFUL_S if gathers else pace.debt_s)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_all_in)
            while True:
                await gate.places.acquire()
                await gate.pace.take()
                nursery.start_soon(handle, await anteroom.speaker())
    finally:
        anteroom.close()
