"""What a daemon that is forked from the warm parent is given, and in what it differs from another.

It is `daa-node run` in all that decides. Its worker comes from a warm parent and may be slow, its
wall clock may be set wrong, its disk may be full; and the daemon of a node that the scenario calls
an adversary is disguised at its seams (simnet/adversaries/disguise.py).
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from simnet.processes import clocks, disks, kernel
from simnet.processes.workers import SpawnWarm
from simnet.scenario import AdversaryConfig


@dataclass(frozen=True, slots=True)
class Lies:
    """How a node lies; `league` are the node ids of all that do."""

    config: AdversaryConfig
    seed: int
    league: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Nature:
    """One node's daemon, in each of its lives."""

    node_id: str  # in hex, as events name it
    directory: Path
    workers: Path  # where the warm parent of training workers serves
    dialable: bool  # whether others may dial its bulk port, too
    slowness: float = 1.0  # of its worker's processor
    full: bool = False  # its disk, from the first moment on
    lies: Lies | None = None

    @property
    def clock(self) -> Path:
        return self.directory / clocks.FILE

    def as_message(self) -> kernel.Message:
        lies = self.lies
        return {
            "node_id": self.node_id,
            "directory": str(self.directory),
            "workers": str(self.workers),
            "dialable": self.dialable,
            "slowness": self.slowness,
            "full": self.full,
            "lies": lies
            and [lies.config.model_dump_json(), lies.seed, [name.hex() for name in lies.league]],
        }

    @classmethod
    def from_message(cls, message: kernel.Message) -> "Nature":
        lies = None
        if message["lies"]:
            config, seed, league = message["lies"]
            lies = Lies(
                AdversaryConfig.model_validate_json(config),
                seed,
                tuple(bytes.fromhex(name) for name in league),
            )
        return cls(
            message["node_id"],
            Path(message["directory"]),
            Path(message["workers"]),
            message["dialable"],
            message["slowness"],
            message["full"],
            lies,
        )


def be_daemon(nature: Nature) -> None:
    """What `daa-node run --dir DIRECTORY` does. Raises SystemExit."""
    # the warm parent has imported all this already, and the tool needs none of it
    from daa_dag.ids import NodeId
    from daa_node.cli.compose import Simulated, run_daemon
    from daa_node.errors import NodeError
    from daa_node.node_parts import NodeParts
    from simnet.adversaries.disguise import Liar, disguised

    liar = None
    if nature.lies is not None:
        league = frozenset(NodeId(name) for name in nature.lies.league)
        liar = Liar(nature.lies.config, nature.lies.seed, league)

    def disguise(honest: NodeParts) -> NodeParts:
        parts = replace(honest, clock=clocks.WrongClock(nature.clock))
        return parts if liar is None else disguised(parts, liar)

    disks.limit_files(0, nature.full)
    mislabelled = liar is not None and liar.trains_mislabelled
    spawn = SpawnWarm(nature.workers, nature.slowness, mislabelled)
    try:
        run_daemon(nature.directory, None, (), False, Simulated(spawn, nature.dialable, disguise))
    except NodeError as error:
        os.write(2, f"error: {error}\n".encode())
        raise SystemExit(1) from None
