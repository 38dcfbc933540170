"""The internet of last resort: daemons on loopback, every connection through the relay.

Nobody may learn where a daemon really listens, or it would be dialled past the relay. So each one
announces a port where nobody listens, and is told by its settings, for each of the others, the
relay's port for the two of them. Bulk sessions travel over the same connections.
"""

from collections.abc import Mapping
from pathlib import Path

from daa_node.cli.free_ports import free_ports
from simnet.processes.family import Helper, start_helper
from simnet.processes.relay import LOOPBACK
from simnet.processes.switch import LinkState, links_message
from simnet.processes.weather import Ends

RELAY_MODULE = "simnet.processes.relay"


class ProxyInternet:
    """Made before any daemon; nothing passes until `set_links`."""

    dialable = False  # past the relay

    def __init__(self, count: int, seed: int, log: Path) -> None:
        self.helper: Helper = start_helper("relay", RELAY_MODULE, log, "--seed", str(seed))
        answer, _ = self.helper.line.ask({"nodes": count})
        self._doors = {(sender, receiver): port for sender, receiver, port in answer["doors"]}
        # once the doors are open: they must not be where a daemon is to listen
        self._ports = free_ports(count)
        self.helper.line.ask({"ports": self._ports})

    def set_links(self, states: Mapping[Ends, LinkState]) -> None:
        self.helper.line.ask(links_message(states))

    def counts(self) -> dict[str, float]:
        return self.helper.line.ask({})[0]

    def listen(self, node: int) -> str:
        return f"/ip4/{LOOPBACK}/tcp/{self._ports[node]}"

    def announce(self, _node: int) -> str | None:
        return f"/ip4/{LOOPBACK}/tcp/1"

    def dial(self, node: int, other: int) -> str:
        return f"/ip4/{LOOPBACK}/tcp/{self._doors[node, other]}"

    def pids(self) -> list[int]:
        return [self.helper.process.pid]

    def end(self) -> None:
        self.helper.end()
