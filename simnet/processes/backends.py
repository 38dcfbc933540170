"""Which internet this machine can have, tried out and not guessed; best first.

    netem   namespaces, and the kernel's own link emulation between them
    tun     namespaces, and our switch over one TUN device in each
    proxy   no privileges: every connection goes through a relay on loopback

A probe that fails says why, and what a person can do about it.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daa_node.errors import UserError
from simnet.processes.family import Zygote, start_helper
from simnet.processes.tun import TunInternet
from simnet.scenario import Scenario

if TYPE_CHECKING:
    from simnet.processes.cluster import Internet

TRIAL_MODULE = "simnet.processes.trial"
TRIAL_TIMEOUT_S = 20.0
REMEDY = {
    "namespaces": "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone)",
    "user_namespaces": "sysctl -w user.max_user_namespaces=15000, and let users open /dev/net/tun",
    "real_time": "run as root, or grant CAP_SYS_NICE: delays are then right on a busy machine too",
}


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that was tried."""

    name: str
    ok: bool
    detail: str  # what was seen
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Backend:
    """One of the three, and whether the machine can have it."""

    name: str
    ok: bool
    why: str
    what: str  # one sentence about it
    user_namespace: bool = False
    carries_datagrams: bool = True


def choose() -> Backend:
    """The best one that works here. Raises UserError when none does."""
    found = [backend for backend in backends(try_everything()) if backend.ok]
    if not found:
        raise UserError("no internet between processes works here: see `simnet doctor`", 1)
    return found[0]


def try_everything() -> dict[str, Probe]:
    """Every probe by its name. Takes a tenth of a second; leaves nothing behind."""
    helper = start_helper("trial", TRIAL_MODULE, Path(os.devnull))
    try:
        said, _ = helper.hear(TRIAL_TIMEOUT_S)
    finally:
        helper.end()
    return {
        name: Probe(name, said[name] == "", said[name] or "works", REMEDY[name]) for name in said
    }


def backends(probes: dict[str, Probe]) -> list[Backend]:
    """Best first, each with the reason why it can or cannot be had."""
    plain, own = probes["namespaces"], probes["user_namespaces"]
    either = plain if plain.ok else own
    return [
        Backend(
            "tun",
            either.ok,
            "as a user" if not plain.ok and own.ok else either.detail,
            "a namespace for each node, and a switch of ours between their TUN devices",
            user_namespace=not plain.ok,
        ),
    ]


def open_internet(backend: Backend, zygote: Zygote, scenario: Scenario, log: Path) -> "Internet":
    """Raises UserError where the system refuses after all."""
    return TunInternet(zygote, scenario.node_count, scenario.seed, backend.user_namespace, log)
