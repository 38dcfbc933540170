"""Which internet this machine can have between real nodes, tried out and not guessed; best first.

    tun     a network namespace for each node, and our switch over one TUN device in each
    proxy   no privileges: every connection goes through a relay on loopback

A probe that fails says why, and what a person can do about it.
"""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from daa_node.errors import UserError
from simnet.nodes.processes import kernel
from simnet.nodes.processes.fork_server import ForkServer

SCHEMA_VERSION = 1
TRIAL_TIMEOUT_S = 20.0
OF_TUN = ("namespaces", "user_namespaces")  # probes: one of them is enough


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that was tried."""

    name: str
    ok: bool
    detail: str  # what was seen
    remedy: str


@dataclass(frozen=True, slots=True)
class Backend:
    """One of the two, and whether the machine can have it."""

    name: str
    ok: bool
    why: str
    what: str  # one sentence about it
    user_namespace: bool = False
    boxes: bool = False  # whether nodes may be behind some that translate addresses


@dataclass(frozen=True, slots=True)
class Findings:
    """What was tried, and which backends follow from it, best first; the last one always works."""

    probes: tuple[Probe, ...]
    backends: tuple[Backend, ...]
    cores: int

    @property
    def possible(self) -> list[Backend]:
        return [backend for backend in self.backends if backend.ok]

    def as_json(self) -> dict[str, Any]:
        best = self.possible[0].name
        return {"schema_version": SCHEMA_VERSION, "backend": best, **asdict(self)}

    def as_text(self) -> str:
        best = self.possible[0]
        lines = [f"real processes run over {best.name}: {best.what}"]
        lines += [_row(backend.name, 6, backend.ok, backend.why) for backend in self.backends]
        lines.append(f"tried, on {self.cores} cores:")
        for probe in self.probes:
            lines.append(_row(probe.name, 16, probe.ok, probe.detail))
            if not probe.ok:
                lines.append(f"  {'':16}      remedy: {probe.remedy}")
        return "\n".join(lines)


def _row(name: str, width: int, ok: bool, why: str) -> str:
    return f"  {name:{width}} {'yes' if ok else 'no '}  {why}"


def choose(boxes: bool = False) -> Backend:
    """The best one that works here, or the one that SIMNET_BACKEND names. Raises UserError.

    `boxes`: nodes are behind boxes that translate addresses, which takes packets.
    """
    return chosen(examine(), os.environ.get("SIMNET_BACKEND"), boxes)


def chosen(found: Findings, named: str | None, boxes: bool) -> Backend:
    """Of what was found. Raises UserError."""
    wanted = named or found.possible[0].name
    backend = next((each for each in found.possible if each.name == wanted), None)
    if backend is None:
        names = ", ".join(each.name for each in found.possible)
        raise UserError(
            f"SIMNET_BACKEND={wanted} cannot be had here; {names} can: see `simnet doctor`"
        )
    if boxes and not backend.boxes:
        raise UserError(
            f"`nat` translates the packets of each node's own network, which takes the backend "
            f"tun; over {wanted} there are no packets to translate. {_missing(found)}"
        )
    return backend


def _missing(found: Findings) -> str:
    """What keeps us from packets, and the remedy."""
    if any(backend.boxes for backend in found.possible):
        return "It works here: unset SIMNET_BACKEND"
    wrong = [probe for probe in found.probes if probe.name in OF_TUN and not probe.ok]
    return "It fails here: " + "; or ".join(f"{p.name}: {p.detail} ({p.remedy})" for p in wrong)


def examine() -> Findings:
    """Try everything, each in a process that ends at once; leaves nothing behind."""
    with ExitStack() as stack:
        server = ForkServer(Path(os.devnull))
        stack.callback(server.end)
        folder = Path(stack.enter_context(TemporaryDirectory()))
        pids = {
            name: server.fork(partial(_attempt, trial), folder / name)
            for name, (trial, _) in TRIALS.items()
        }
        found = {}
        for name, pid in pids.items():
            code = server.wait(pid, TRIAL_TIMEOUT_S)
            said = "it hangs" if code is None else (folder / name).read_text() or "it failed"
            found[name] = Probe(name, code == 0, "works" if code == 0 else said, TRIALS[name][1])
    plain, own = found["namespaces"], found["user_namespaces"]
    as_user = own.ok and not plain.ok
    tun = Backend(
        "tun",
        plain.ok or own.ok,
        "works, as a user" if as_user else plain.detail,
        "a namespace for each node, and a switch of ours between their TUN devices",
        as_user,
        boxes=True,
    )
    proxy = Backend(
        "proxy",
        True,
        "needs nothing; a lost packet is a delay, and links cannot be measured",
        "a relay on loopback that every connection goes through",
    )
    return Findings(tuple(found.values()), (tun, proxy), os.cpu_count() or 1)


def _attempt(trial: Callable[[], object]) -> None:
    """What the system says when it refuses goes to the log."""
    try:
        trial()
    except OSError as refused:
        sys.stderr.write(str(refused))
        raise SystemExit(1) from None


def _try_tun(as_user: bool) -> None:
    kernel.namespaces_with_tuns(["10.86.0.1"], f"daa{os.getpid()}t", as_user)


def _try_real_time() -> None:
    if not kernel.be_punctual(kernel.CARRIER_PRIORITY):
        raise PermissionError("SCHED_FIFO is not allowed")


# Each with the remedy for when it fails.
TRIALS: dict[str, tuple[Callable[[], object], str]] = {
    "namespaces": (
        partial(_try_tun, False),
        "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone)",
    ),
    "user_namespaces": (
        partial(_try_tun, True),
        "sysctl -w user.max_user_namespaces=15000, and let users open /dev/net/tun",
    ),
    "real_time": (
        _try_real_time,
        "run as root, or grant CAP_SYS_NICE: delays are then right on a busy machine too",
    ),
}
