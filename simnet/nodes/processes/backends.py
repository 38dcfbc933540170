"""Which internet this machine can have, tried out and not guessed; best first.

    netem   namespaces, and the kernel's own emulation between them
    tun     namespaces, and our switch over one TUN device in each
    proxy   no privileges: every connection goes through a relay on loopback

A probe that fails says why, and what a person can do about it.
"""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from daa_node.errors import UserError
from simnet.nodes.processes import kernel, netem
from simnet.nodes.processes.fork_server import ForkServer
from simnet.world.link_conditions import LinkState
from simnet.world.links import MS, LinkModel

TRIAL_TIMEOUT_S = 20.0
TRIAL_PORT, TRIAL_BYTES, TRIAL_PACKETS = 9, 1000, 10
TRIAL_BITS_PER_S = 1_000_000  # 80 ms for all packets
TRIAL_PATIENCE_S, TRIAL_SILENCE_S = 3.0, 0.1
REMEDY = {
    "namespaces": "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone)",
    "user_namespaces": "sysctl -w user.max_user_namespaces=15000, and let users open /dev/net/tun",
    "real_time": "run as root, or grant CAP_SYS_NICE: delays are then right on a busy machine too",
    "netem": "iproute2, and a kernel with veth, bridge, cls_u32 and sch_ htb, netem, tbf and plug; "
    "without them our own switch does the same work",
    "user_netem": "as for netem, and sysctl -w user.max_user_namespaces=15000",
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
    possible = [backend for backend in backends(try_everything()) if backend.ok]
    wanted = os.environ.get("SIMNET_BACKEND", possible[0].name)  # the last one always works
    for backend in possible:
        if backend.name == wanted:
            return backend
    names = ", ".join(backend.name for backend in possible)
    raise UserError(f"SIMNET_BACKEND={wanted} cannot be had here; {names} can: see `simnet doctor`")


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


def try_everything() -> dict[str, Probe]:
    """Every probe by its name, each in a process that ends at once; leaves nothing behind."""
    with ExitStack() as stack:
        server = ForkServer(Path(os.devnull))
        stack.callback(server.end)
        folder = Path(stack.enter_context(TemporaryDirectory()))
        pids = {
            name: server.fork(partial(_attempt, trial), folder / name)
            for name, trial in TRIALS.items()
        }
        found = {}
        for name, pid in pids.items():
            code = server.wait(pid, TRIAL_TIMEOUT_S)
            said = "it hangs" if code is None else (folder / name).read_text() or "it failed"
            found[name] = Probe(name, code == 0, "works" if code == 0 else said, REMEDY[name])
        return found


def _attempt(trial: Callable[[], object]) -> None:
    """What the system says when it refuses goes to the log."""
    try:
        trial()
    except OSError as refused:
        sys.stderr.write(str(refused))
        raise SystemExit(1) from None


def _try_tun(as_user: bool) -> None:
    kernel.namespaces_with_tuns(1, f"daa{os.getpid()}t", as_user)


def _try_real_time() -> None:
    if not kernel.be_punctual(kernel.CARRIER_PRIORITY):
        raise PermissionError("SCHED_FIFO is not allowed")


def _try_netem(as_user: bool) -> None:
    """The backend, small: packets that wait for a slow link come, and held ones when released.

    netem before Linux 6.13, unless mended, forgets packets that wait below it.
    """
    here, there, hub = netem.cabled_namespaces(2, as_user)
    model = LinkModel(MS, MS, TRIAL_BITS_PER_S, reorder_ppm=1)
    closed, is_open = LinkState(model, is_open=False), LinkState(model)
    holding = LinkState(model, holds=True)
    with _door(there) as receiver, _door(here) as sender:
        kernel.enter_namespace(hub)
        receiver.bind((kernel.address_of(1), TRIAL_PORT))
        for before, now, expected in (
            (None, closed, 0),
            (closed, is_open, TRIAL_PACKETS),
            (is_open, holding, 0),
            (holding, is_open, TRIAL_PACKETS),
        ):
            netem.run("tc", netem.changed((0, 1), before, now))
            netem.run("tc", netem.changed((1, 0), before, is_open))
            if before is not holding:
                for _ in range(TRIAL_PACKETS):
                    sender.sendto(bytes(TRIAL_BYTES), (kernel.address_of(1), TRIAL_PORT))
            came = _count(receiver, expected)
            if came != expected:
                raise OSError(f"{came} of {expected} packets came through {now}")


def _door(namespace: int) -> socket.socket:
    kernel.enter_namespace(namespace)
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _count(receiver: socket.socket, expected: int) -> int:
    """How many datagrams come; more patience where some must."""
    receiver.settimeout(TRIAL_PATIENCE_S if expected else TRIAL_SILENCE_S)
    came = 0
    with suppress(TimeoutError):
        while came < max(1, expected):
            receiver.recv(TRIAL_BYTES)
            came += 1
    return came


TRIALS: dict[str, Callable[[], object]] = {
    "namespaces": partial(_try_tun, False),
    "user_namespaces": partial(_try_tun, True),
    "real_time": _try_real_time,
    "netem": partial(_try_netem, False),
    "user_netem": partial(_try_netem, True),
}
