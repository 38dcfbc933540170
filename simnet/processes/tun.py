"""The internet over TUN devices: a namespace for each node, and the switch between them."""

import os
from collections.abc import Mapping
from pathlib import Path

from simnet.processes import namespaces
from simnet.processes.family import Helper, Zygote, start_helper
from simnet.processes.switch import LinkState
from simnet.processes.weather import Ends

SWITCH_MODULE = "simnet.processes.switch"
DAEMON_PORT = 4001


class TunInternet:
    """Made before any daemon; its links are closed until `set_links` first opens them."""

    dialable = True

    def __init__(self, zygote: Zygote, count: int, seed: int, user_namespace: bool, log: Path):
        """Raises UserError where the system refuses namespaces or devices."""
        # at most 15 characters, and no other run's
        device = f"daa{os.getpid()}n"
        self.inodes, tuns = zygote.make_world(count, device, user_namespace)
        self.helper: Helper = start_helper("switch", SWITCH_MODULE, log, "--seed", str(seed))
        try:
            answer, _ = self.helper.ask({"tuns": len(tuns)}, tuns)
        finally:
            for tun in tuns:
                os.close(tun)
        self.punctual: bool = answer["punctual"]

    def set_links(self, states: Mapping[Ends, LinkState]) -> None:
        self.helper.ask({"links": [[*ends, state.as_message()] for ends, state in states.items()]})

    def counts(self) -> dict[str, float]:
        """What the switch has done so far."""
        return self.helper.ask({})[0]

    def listen(self, node: int) -> str:
        """The multiaddr on which the node's daemon listens."""
        return f"/ip4/{namespaces.address_of(node)}/tcp/{DAEMON_PORT}"

    def announce(self, _node: int) -> str | None:
        return None

    def dial(self, _node: int, other: int) -> str:
        return self.listen(other)

    def pids(self) -> list[int]:
        return [self.helper.process.pid]

    def end(self) -> None:
        self.helper.end()
