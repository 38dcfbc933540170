"""The internet over TUN devices: a namespace for each node, and the switch between them."""

import os
from collections.abc import Mapping
from pathlib import Path

from simnet.processes import namespaces
from simnet.processes.family import Helper, Zygote, start_helper
from simnet.processes.switch import LinkState, links_message
from simnet.processes.weather import Ends

SWITCH_MODULE = "simnet.processes.switch"


class TunInternet:
    """Made before any daemon; its links are closed until `set_links` first opens them."""

    dialable = True

    def __init__(self, zygote: Zygote, count: int, seed: int, user_namespace: bool, log: Path):
        """Raises UserError where the system refuses namespaces or devices."""
        # at most 15 characters, and no other run's
        device = f"daa{os.getpid()}n"
        tuns = zygote.make_tun_world(count, device, user_namespace)
        self.helper: Helper = start_helper("switch", SWITCH_MODULE, log, "--seed", str(seed))
        try:
            self.helper.line.ask({"tuns": len(tuns)}, tuns)
        finally:
            for tun in tuns:
                os.close(tun)

    def set_links(self, states: Mapping[Ends, LinkState]) -> None:
        self.helper.line.ask(links_message(states))

    def counts(self) -> dict[str, float]:
        """What the switch has done so far."""
        return self.helper.line.ask({})[0]

    def listen(self, node: int) -> str:
        """The multiaddr on which the node's daemon listens."""
        return namespaces.multiaddr_of(node)

    def announce(self, _node: int) -> str | None:
        return None

    def dial(self, _node: int, other: int) -> str:
        return self.listen(other)

    def pids(self) -> list[int]:
        return [self.helper.process.pid]

    def end(self) -> None:
        self.helper.end()
