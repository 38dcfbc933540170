"""An internet whose daemons live in namespaces of their own, whoever carries between these."""

from collections.abc import Callable, Mapping

from simnet.processes import namespaces
from simnet.processes.family import Line
from simnet.processes.switch import LinkState, links_message
from simnet.processes.weather import Ends


class NamespacedInternet:
    """Made before any daemon; its links are cut until `set_links` first opens them."""

    dialable = True  # so is a daemon's bulk port; else bulk is relayed by libp2p

    def __init__(self, line: Line, carrier_pid: int, end: Callable[[], None]) -> None:
        """`line` leads to the process that carries the packets, and `end` ends it."""
        self._line = line
        self._carrier_pid = carrier_pid
        self.end = end

    def set_links(self, states: Mapping[Ends, LinkState]) -> None:
        """From now on. Raises Unavailable when the carrier has died."""
        self._line.ask(links_message(states))

    def counts(self) -> dict[str, float]:
        """What the carrier has done so far."""
        return self._line.ask({})[0]

    def listen(self, node: int) -> str:
        """The multiaddr on which the node's daemon listens."""
        return namespaces.multiaddr_of(node)

    def announce(self, _node: int) -> str | None:
        """What it tells others instead."""
        return None

    def dial(self, _node: int, other: int) -> str:
        """Where one node finds the other."""
        return self.listen(other)

    def pids(self) -> list[int]:
        return [self._carrier_pid]
