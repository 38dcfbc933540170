"""The internet over TUN devices: a namespace for each node, and the switch between them."""

import os
from pathlib import Path

from simnet.processes.family import Zygote, start_helper
from simnet.processes.namespaced import NamespacedInternet

SWITCH_MODULE = "simnet.processes.switch"


def tun_internet(
    zygote: Zygote, count: int, seed: int, user_namespace: bool, log: Path
) -> NamespacedInternet:
    """Raises UserError where the system refuses namespaces or devices."""
    # at most 15 characters, and no other run's
    device = f"daa{os.getpid()}n"
    tuns = zygote.make_tun_world(count, device, user_namespace)
    switch = start_helper("switch", SWITCH_MODULE, log, "--seed", str(seed))
    try:
        switch.line.ask({"tuns": len(tuns)}, tuns)
    finally:
        for tun in tuns:
            os.close(tun)
    return NamespacedInternet(switch.line, switch.process.pid, switch.end)
