"""What those who are not admitted may make us do, all of them together.

A unit is ten microseconds of the event loop (see libp2p_yamux). Whoever asks first is served first,
and who comes from where somebody was admitted before does not queue behind who does not.
"""

from daa_node.adapters.waiting_room import Familiar, network_of
from daa_node.network.pace import SharedPace

# Some hundredths of a core: a validator whose rounds share a core notices no more. Fifty
# connections may come at once, as after a failure of the power.
STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX = 3_000, 15_000


class Purses:
    """One for those who are familiar, and one for all others."""

    def __init__(self, familiar: Familiar) -> None:
        self.familiar = familiar
        self._known = SharedPace(STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX)
        self._unknown = SharedPace(STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX)

    def of(self, host: str | None) -> SharedPace:
        return self._known if network_of(host) in self.familiar else self._unknown
