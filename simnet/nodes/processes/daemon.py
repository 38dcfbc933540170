"""What a daemon that is forked from a warm parent is given, and in what it differs from another.

It is `daa-node run` in all that decides. Its worker comes from a warm parent and may be slow, its
wall clock may be set wrong, its disk may be full; and the daemon of a node that the scenario calls
an adversary is disguised at its seams (simnet/world/adversaries/disguise.py).
"""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from simnet.nodes.processes import hardware
from simnet.nodes.processes.workers import WorkerNature, spawn_worker
from simnet.world.adversaries.disguise import Liar, disguised


@dataclass(frozen=True, slots=True)
class Nature:
    """One node's daemon, in each of its lives."""

    node_id: str  # in hex, as events name it
    directory: Path
    workers: Path  # where the warm parent of workers serves
    dialable: bool  # whether others may open sockets for bulk to it
    slowness: float = 1.0  # of its worker's processor
    full: bool = False  # its disk, from the first moment on
    liar: Liar | None = None

    @property
    def clock(self) -> Path:
        return self.directory / "simulated-clock"


def be_daemon(nature: Nature) -> None:
    """What `daa-node run --dir DIRECTORY` does. Raises SystemExit."""
    from daa_node.cli.compose import Simulated, run_daemon
    from daa_node.errors import NodeError
    from daa_node.node_parts import NodeParts

    liar = nature.liar

    def disguise(honest: NodeParts) -> NodeParts:
        parts = replace(honest, clock=hardware.WrongClock(nature.clock))
        return parts if liar is None else disguised(parts, liar)

    hardware.limit_files(0, nature.full)
    worker = WorkerNature(nature.slowness)
    if liar is not None:
        worker = WorkerNature(nature.slowness, liar.trains_mislabelled, liar.cheat)
    spawn = partial(spawn_worker, nature.workers, worker)
    try:
        run_daemon(nature.directory, None, (), False, Simulated(spawn, nature.dialable, disguise))
    except NodeError as error:
        os.write(2, f"error: {error}\n".encode())
        raise SystemExit(1) from None
