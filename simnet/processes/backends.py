"""Which internet this machine can have, tried out and not guessed; best first.

    netem   namespaces, and the kernel's own emulation between them
    tun     namespaces, and our switch over one TUN device in each
    proxy   no privileges: every connection goes through a relay on loopback

A probe that fails says why, and what a person can do about it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from daa_node.errors import UserError
from simnet.processes.family import Zygote, start_helper
from simnet.processes.namespaced import NamespacedInternet
from simnet.processes.netem import netem_internet
from simnet.processes.proxy import ProxyInternet
from simnet.processes.tun import tun_internet
from simnet.scenario import Scenario

Internet = NamespacedInternet | ProxyInternet  # what lies between the nodes

TRIAL_MODULE = "simnet.processes.trial"
TRIAL_TIMEOUT_S = 20.0
REMEDY = {
    "namespaces": "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone)",
    "user_namespaces": "sysctl -w user.max_user_namespaces=15000, and let users open /dev/net/tun",
    "netem": "iproute2, and a kernel with veth, bridge, cls_u32 and sch_ htb, netem, tbf and plug; "
    "without them our own switch does the same work",
    "user_netem": "as for netem, and sysctl -w user.max_user_namespaces=15000",
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
    """The best one that works here, or the one that SIMNET_BACKEND names. Raises UserError."""
    possible = backends(try_everything())
    wanted = os.environ.get("SIMNET_BACKEND")
    if wanted is None:
        return next(backend for backend in possible if backend.ok)  # the last one always works
    for backend in possible:
        if backend.name == wanted and backend.ok:
            return backend
    names = ", ".join(backend.name for backend in possible if backend.ok)
    raise UserError(f"SIMNET_BACKEND={wanted} cannot be had here; {names} can: see `simnet doctor`")


def try_everything() -> dict[str, Probe]:
    """Every probe by its name. Takes a tenth of a second; leaves nothing behind."""
    helper = start_helper("trial", TRIAL_MODULE, Path(os.devnull))
    try:
        said, _ = helper.line.hear(TRIAL_TIMEOUT_S)
    finally:
        helper.end()
    return {
        name: Probe(name, said[name] == "", said[name] or "works", REMEDY[name]) for name in said
    }


def backends(probes: dict[str, Probe]) -> list[Backend]:
    """Best first, each with the reason why it can or cannot be had."""
    return [
        _namespaced(
            "netem",
            (probes["netem"], probes["user_netem"]),
            "a namespace for each node, and the kernel's netem on the cables between them",
        ),
        _namespaced(
            "tun",
            (probes["namespaces"], probes["user_namespaces"]),
            "a namespace for each node, and a switch of ours between their TUN devices",
        ),
        Backend(
            "proxy",
            True,
            "needs nothing; a lost packet is a delay, and links cannot be measured",
            "a relay on loopback that every connection goes through",
            carries_datagrams=False,
        ),
    ]


def _namespaced(name: str, tried: tuple[Probe, Probe], what: str) -> Backend:
    """`tried` plainly, and as root of a user namespace."""
    plain, own = tried
    as_user = own.ok and not plain.ok
    why = "works, as a user" if as_user else plain.detail
    return Backend(name, plain.ok or own.ok, why, what, user_namespace=as_user)


def open_internet(backend: Backend, zygote: Zygote, scenario: Scenario, log: Path) -> Internet:
    """Raises UserError where the system refuses after all."""
    count, seed = scenario.node_count, scenario.seed
    match backend.name:
        case "netem":
            return netem_internet(zygote, count, backend.user_namespace)
        case "tun":
            return tun_internet(zygote, count, seed, backend.user_namespace, log)
        case _:
            return ProxyInternet(count, seed, log)
