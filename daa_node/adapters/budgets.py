"""What peers may make us do, and who pays for it out of which budget.

A unit is ten microseconds of the event loop (see libp2p_yamux). Those who are not admitted share a
budget, those who are and are no members another one, visitors a third, and each member has its own.
Guests and visitors are served in the order in which they ask. Strangers are drawn by lot and pay
for a whole admission before it begins, so that nothing is spent on half of one; what it did not
need is given back. Who comes from where a member was admitted before does not wait beside who does
not.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Protocol

import trio

from daa_node.adapters.turns import DrawnPace
from daa_node.adapters.waiting_room import Familiar, network_of
from daa_node.network.pace import Pace, SharedPace

# Of one peer. A stranger needs some 300 for its hello; nobody honest comes near a member's, which
# are a fifth of a core.
STRANGER_UNITS_PER_S, STRANGER_UNITS_MAX = 1_000, 4_000
MEMBER_UNITS_PER_S, MEMBER_UNITS_MAX = 20_000, 20_000
# Some hundredths of a core: a validator whose rounds share a core notices no more. Twenty
# may come at once, as after a failure of the power, and four a second from then on.
STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX = 3_000, 15_000
# As one member: sixty-four who look on and pass on all that they hear need half of it.
GUESTS_UNITS_PER_S, GUESTS_UNITS_MAX = MEMBER_UNITS_PER_S, MEMBER_UNITS_MAX
# Browsers: 200 that take 20 tasks a second together need a tenth of it. One that floods has little.
VISITORS_UNITS_PER_S, VISITORS_UNITS_MAX = 4_000, 8_000
VISITOR_UNITS_PER_S, VISITOR_UNITS_MAX = 200, 2_000
TURN_UNITS = 200  # 2 ms, then everybody else has a turn
NOISE_UNITS = 150
GREETING_UNITS = 150  # the agreement on yamux, our hello, and the end of it all
OPEN_SERVICE_UNITS = 200  # a hello: two records of 7 kB, and the signatures of one
HELLO_UNITS = OPEN_SERVICE_UNITS + TURN_UNITS  # its stream and its frames are half of a turn
ADMISSION_UNITS = NOISE_UNITS + GREETING_UNITS + HELLO_UNITS

Endpoint = tuple[str, int]


def _nobody() -> bool:
    return False


def _nothing() -> None:
    """Nobody waits to hear it."""


class Budget(Protocol):
    """What several pay out of."""

    async def take(self, amount: float) -> None: ...


class Bill:
    """What a peer's frames have cost us since its last payment, and out of whose credit it pays."""

    def __init__(self, strangers: Budget | None) -> None:
        own = Pace(STRANGER_UNITS_PER_S, STRANGER_UNITS_MAX)
        self._own = own
        self._shared: Budget | None = strangers
        self.is_member: Callable[[], bool] = _nobody
        self.units = 0

    def admit(self, is_member: Callable[[], bool], guests: Budget | None) -> None:
        """From now on it pays as a member, while it is one, and else together with all guests."""
        self._own = Pace(MEMBER_UNITS_PER_S, MEMBER_UNITS_MAX)
        self._shared = guests
        self.is_member = is_member

    def keep(self, visitors: Budget) -> None:
        """From now on it pays as a visitor, together with all others."""
        self._own = Pace(VISITOR_UNITS_PER_S, VISITOR_UNITS_MAX)
        self._shared = visitors

    async def settle(self) -> None:
        """Pay when it is worth a pause, and give everybody else a turn."""
        if self.units < TURN_UNITS:
            return
        due, self.units = self.units, 0
        await self._own.take(due)
        if self._shared is not None and not self.is_member():
            await self._shared.take(due)
        await trio.lowlevel.checkpoint()


class Admission:
    """What one stranger pays out of its budget, and what it has paid ahead."""

    def __init__(
        self, strangers: DrawnPace, network: str, on_turn: Callable[[], None] = _nothing
    ) -> None:
        self._strangers = strangers
        self._network = network
        self._on_turn = on_turn
        self._ahead = 0.0

    async def begin(self) -> None:
        """Wait for a turn, and pay for all that an honest one needs."""
        await self._strangers.take(self._network, ADMISSION_UNITS, self._on_turn)
        self._ahead += ADMISSION_UNITS

    async def take(self, amount: float) -> None:
        """Out of what is paid; whoever needs more waits for another turn."""
        paid = min(amount, self._ahead)
        self._ahead -= paid
        if amount > paid:
            await self._strangers.take(self._network, amount - paid, _nothing)

    def end(self) -> None:
        """Admitted or gone."""
        left, self._ahead = self._ahead, 0.0
        self._strangers.give_back(left)


class Budgets:
    """One each for those who are familiar, all other strangers, guests, and visitors."""

    def __init__(self, familiar: Familiar, lots: Random) -> None:
        self.familiar = familiar
        self._known = DrawnPace(STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX, lots)
        self._unknown = DrawnPace(STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX, lots)
        self.guests = SharedPace(GUESTS_UNITS_PER_S, GUESTS_UNITS_MAX)
        self.visitors = SharedPace(VISITORS_UNITS_PER_S, VISITORS_UNITS_MAX)
        self._sockets: dict[Endpoint, Bill] = {}

    def of(self, host: str | None, on_turn: Callable[[], None] = _nothing) -> Admission:
        """For one who comes from there, and hears when its turn begins."""
        network = network_of(host)
        budget = self._known if network in self.familiar else self._unknown
        return Admission(budget, network, on_turn)

    @contextmanager
    def billed(self, remote: Endpoint | None) -> Iterator[Bill]:
        """A socket's own bill, for what it costs below the multiplexer; ends with the socket."""
        bill = Bill(self.of(remote[0] if remote else None))
        if remote is not None:
            self._sockets[remote] = bill
        try:
            yield bill
        finally:
            if remote is not None:
                self._sockets.pop(remote, None)

    def admit(self, remote: Endpoint | None, is_member: Callable[[], bool]) -> None:
        """Whoever is at the other end of this socket has been admitted."""
        if is_member():  # whoever likes is a guest from a thousand addresses
            self.familiar.note(remote[0] if remote else None)
        if remote in self._sockets:
            self._sockets[remote].admit(is_member, self.guests)

    def keep(self, remote: Endpoint | None) -> None:
        """Whoever is at the other end of this socket stays as a visitor."""
        if remote in self._sockets:
            self._sockets[remote].keep(self.visitors)
