"""What peers may make us do, and who pays for it out of which purse.

A unit is ten microseconds of the event loop (see libp2p_yamux). Those who are not admitted share a
purse, those who are and are no members another one, and each member has its own. Whoever asks first
is served first, and who comes from where a member was admitted before does not queue behind who
does not.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from daa_node.adapters.waiting_room import Familiar, network_of
from daa_node.network.pace import Pace, SharedPace

# Of one peer. A stranger needs some 300 for its hello; nobody honest comes near a member's, which
# are a fifth of a core.
STRANGER_UNITS_PER_S, STRANGER_UNITS_MAX = 1_000, 4_000
MEMBER_UNITS_PER_S, MEMBER_UNITS_MAX = 20_000, 20_000
# Some hundredths of a core: a validator whose rounds share a core notices no more. Fifty
# connections may come at once, as after a failure of the power.
STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX = 3_000, 15_000
# As one member: sixty-four who look on and pass on all that they hear need half of it.
GUESTS_UNITS_PER_S, GUESTS_UNITS_MAX = MEMBER_UNITS_PER_S, MEMBER_UNITS_MAX
TURN_UNITS = 200  # 2 ms, then everybody else has a turn

Endpoint = tuple[str, int]


class Bill:
    """What a peer's frames have cost us since its last payment, and out of whose credit it pays."""

    def __init__(self, strangers: SharedPace | None) -> None:
        own = Pace(STRANGER_UNITS_PER_S, STRANGER_UNITS_MAX)
        self._own = own
        self._shared = strangers
        self._is_member: Callable[[], bool] = _nobody
        self.units = 0

    def admit(self, is_member: Callable[[], bool], guests: SharedPace | None) -> None:
        """From now on it pays as a member, while it is one, and else together with all guests."""
        self._own = Pace(MEMBER_UNITS_PER_S, MEMBER_UNITS_MAX)
        self._shared = guests
        self._is_member = is_member

    async def settle(self) -> None:
        """Pay when it is worth a pause, and give everybody else a turn."""
        if self.units < TURN_UNITS:
            return
        due, self.units = self.units, 0
        await self._own.take(due)
        if self._shared is not None and not self._is_member():
            await self._shared.take(due)
        await trio.lowlevel.checkpoint()


class Purses:
    """One for those who are familiar, one for all other strangers, and one for guests."""

    def __init__(self, familiar: Familiar) -> None:
        self.familiar = familiar
        self._known = SharedPace(STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX)
        self._unknown = SharedPace(STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX)
        self.guests = SharedPace(GUESTS_UNITS_PER_S, GUESTS_UNITS_MAX)
        self._sockets: dict[Endpoint, Bill] = {}

    def of(self, host: str | None) -> SharedPace:
        return self._known if network_of(host) in self.familiar else self._unknown

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


def _nobody() -> bool:
    return False
