"""The internet that the kernel emulates: a namespace for each node, cabled to a hub with qdiscs."""

from collections.abc import Mapping

from simnet.processes import kernel, namespaces
from simnet.processes.family import Line, Zygote
from simnet.processes.switch import LinkState, links_message
from simnet.processes.weather import Ends


class NetemInternet:
    """Made before any daemon; every link is cut until `set_links` first opens it."""

    dialable = True

    def __init__(self, zygote: Zygote, count: int, user_namespace: bool) -> None:
        """Raises UserError where the system refuses namespaces, cables or qdiscs."""
        zygote.make_cabled_world(count, user_namespace)
        ours, theirs = kernel.pair()
        with theirs:
            self._pid = zygote.spawn_hub(count, theirs)
        self._line = Line("hub", ours)

    def set_links(self, states: Mapping[Ends, LinkState]) -> None:
        self._line.ask(links_message(states))

    def counts(self) -> dict[str, float]:
        """What the qdiscs have done so far."""
        return self._line.ask({})[0]

    def listen(self, node: int) -> str:
        """The multiaddr on which the node's daemon listens."""
        return namespaces.multiaddr_of(node)

    def announce(self, _node: int) -> str | None:
        return None

    def dial(self, _node: int, other: int) -> str:
        return self.listen(other)

    def pids(self) -> list[int]:
        return [self._pid]

    def end(self) -> None:
        self._line.close()
