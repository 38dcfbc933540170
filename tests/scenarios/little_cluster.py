"""A little cluster of real daemons that a test kills, stops and starts again, one by one.

Each daemon is a process of its own with keys, directory and port; the ports stay the same, so that
one which comes back is where the others look for it. What happens is read from the event logs on
disk, which survive the daemon: nothing here sleeps for a fixed time and hopes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from daa_consensus.votes import Kind
from daa_dag import canonical
from daa_node import genesis
from daa_node.adapters import control_socket
from daa_node.adapters.disk_journal import open_journal
from daa_node.adapters.journal_format import RECORD_BYTES_MAX
from daa_node.adapters.key_files import load_keys
from daa_node.adapters.offload import ThreadOffload
from daa_node.agreement.config import AgreementConfig
from daa_node.agreement.slots import VIEW_KINDS, entry_of
from daa_node.checkpoints.config import CheckpointsConfig
from daa_node.cli import identity
from daa_node.cli.cluster import settings
from daa_node.cli.free_ports import free_ports
from daa_node.errors import UserError
from daa_node.genesis import Job
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.training.config import EvaluationConfig, InnerConfig
from daa_node.training.data_config import DataConfig
from daa_node.training.model_config import ModelConfig
from daa_node.updates.config import UpdatesConfig

WAIT_S = 180.0  # for anything that a machine does in a few seconds that computes nothing else
LOOK_S = 0.002  # between two looks at an event log: a moment of a round lasts a few of these
ENDED_S = 120.0  # a drain's own bound, and the end of processes that wait for a core

TINY = Job(
    name="tiny",
    seed=5,
    model=ModelConfig(kind="mlp", depth=1, width=16),
    data=DataConfig(kind="digits"),
    inner=InnerConfig(batch_size=8, warmup_steps=0, total_steps=100_000),
    evaluation=EvaluationConfig(windows=64),
    updates=UpdatesConfig(rule="trimmed_mean", f_agg=1),
    rounds=RoundsConfig(inner_steps_max=5, window_ms=3_000, exec_ms=6_000),
    # Short epochs, so that restarts meet their boundaries as well.
    agreement=AgreementConfig(delta_ms=150, view_timeout_cap_ms=3_000, epoch_rounds=7),
    checkpoints=CheckpointsConfig(snapshot_every=4),
    end=EndConfig(rounds=1_000_000),
)

Event = dict[str, Any]
Wanted = Callable[[Event], bool]


@dataclass(slots=True)
class EventFile:
    """Follows one daemon's event log on disk, over its restarts."""

    path: Path
    seen: list[Event] = field(default_factory=list)
    rounds: list[tuple[int, Event]] = field(default_factory=list)  # finalized; where in `seen`
    _offset: int = 0

    def read(self) -> list[Event]:
        """What was written since the last read."""
        try:
            if self.path.stat().st_size == self._offset:  # as most looks find it
                return []
            with self.path.open("rb") as file:
                file.seek(self._offset)
                payload = file.read()
        except FileNotFoundError:
            return []
        whole = payload[: payload.rfind(b"\n") + 1]
        self._offset += len(whole)
        new = [json.loads(line) for line in whole.splitlines()]
        rounds = (at for at, event in enumerate(new) if event["name"] == "round_finalized")
        self.rounds += [(len(self.seen) + at, new[at]) for at in rounds]
        self.seen += new
        return new

    def mark(self) -> int:
        """Now, as a place to look from."""
        self.read()
        return len(self.seen)

    def since(self, mark: int) -> list[Event]:
        self.read()
        return self.seen[mark:]

    def count(self, name: str, since: int = 0) -> int:
        return sum(event["name"] == name for event in self.since(since))


class Node:
    """One daemon: its directory, and its process while it has one."""

    def __init__(self, directory: Path, index: int) -> None:
        self.directory = directory
        self.index = index
        self.node_id = load_keys(directory / "keys").node_id
        self.events = EventFile(directory / "events.jsonl")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self.process is None or self.process.poll() is not None
        with (self.directory / "told").open("ab") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "daa_node", "run", "--with-parent"]
                + ["--dir", str(self.directory)],
                stdin=subprocess.PIPE,  # closes when the test's process ends, however it ends
                stdout=told,
                stderr=told,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    @property
    def running(self) -> "subprocess.Popen[bytes]":
        assert self.process is not None, f"node {self.index} was never started"
        return self.process

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.running.send_signal(signal.SIGKILL)
        self.gone()

    def gone(self) -> int:
        """Wait for the end of the process; its exit code, negative for a signal."""
        code = self.running.wait(ENDED_S)
        if self.running.stdin is not None:
            self.running.stdin.close()
        return code

    def status(self) -> dict[str, Any] | None:
        try:
            return control_socket.ask(self.directory / "control.sock", "status")
        except UserError:
            return None

    def wait_event(self, wanted: Wanted, since: int, what: str, wait_s: float = WAIT_S) -> Event:
        """The first event after `since` that is `wanted`, looked for every few milliseconds."""
        deadline_s = time.monotonic() + wait_s
        looked_at = since
        while True:
            events = self.events.since(looked_at)
            looked_at += len(events)
            for event in events:
                if wanted(event):
                    return event
            if time.monotonic() > deadline_s:
                raise AssertionError(f"node {self.index} never: {what}\n{self.last_words()}")
            time.sleep(LOOK_S)

    def last_words(self) -> str:
        told = self.directory / "told"
        said = told.read_text(errors="replace") if told.exists() else ""
        lines = [json.dumps(event) for event in self.events.since(0)[-40:]]
        return "\n".join([f"node {self.index}:", *lines, *said.splitlines()[-20:]])


class LittleCluster:
    """Four nodes of one network in `root`, then its trainers; none runs until it is started."""

    def __init__(self, root: Path, job: Job = TINY, count: int = 4, trainers: int = 0) -> None:
        self.root = root
        directories = [root / f"n{index}" for index in range(count + trainers)]
        ports, records = free_ports(count + trainers), []
        for directory, port in zip(directories, ports, strict=True):
            identity.create_node(directory, settings(port, []))
            records.append((str(directory), identity.make_record(identity.open_node(directory))))
        nonce = os.urandom(genesis.NONCE_BYTES)
        self.genesis = genesis.create(job, records[:count], nonce, trainers=records[count:])
        for directory in directories:
            (directory / "genesis.json").write_text(self.genesis.as_text())
        self.nodes = [Node(directory, index) for index, directory in enumerate(directories)]

    def start(self, nodes: list[Node] | None = None) -> None:
        for node in self.nodes if nodes is None else nodes:
            node.start()

    def others(self, *nodes: Node) -> list[Node]:
        return [node for node in self.nodes if node not in nodes]

    def leader(self, epoch: int, view: int) -> Node:
        """Who leads the view; every node computes the same."""
        leads = self.genesis.committee.leader(self.genesis.domain(epoch), view)
        return next(node for node in self.nodes if node.node_id == leads)

    def close(self) -> None:
        """End every process that was started here."""
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.send_signal(signal.SIGCONT)
                node.kill()


def until(what: str, holds: Callable[[], Any], nodes: list[Node], wait_s: float = WAIT_S) -> Any:
    """The first truthy `holds()`; an AssertionError with everybody's last words else."""
    deadline_s = time.monotonic() + wait_s
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > deadline_s:
            words = "\n".join(node.last_words() for node in nodes)
            raise AssertionError(f"never: {what}\n{words}")
        time.sleep(0.02)


def published(node: Node, since: int = 0) -> list[Event]:
    """The vertices that the node published after `since`, caught-up ones included."""
    node.events.read()
    return [event for at, event in node.events.rounds if at >= since]


def heights(node: Node) -> Iterator[int]:
    return (event["height"] for event in published(node))


def height(node: Node) -> int:
    """Of the newest vertex that the node ever published."""
    return max(heights(node), default=0)


def says(kind: str) -> Wanted:
    """It has signed and sent a word of this kind."""
    return lambda event: event["name"] == "statement_sent" and event["kind"] == kind


def named(name: str, **fields: object) -> Wanted:
    return lambda event: (
        event["name"] == name and all(event.get(key) == fields[key] for key in fields)
    )


def words_in_log(node: Node) -> list[tuple[Kind, int, int]]:
    """(kind, epoch, view or round) of every slotted word in a stopped node's log, as signed.

    The log must hold them all: it was never rewritten.
    """

    async def read() -> list[bytes]:
        async with open_journal(node.directory / "agreement", ThreadOffload()) as journal:
            return await journal.load()

    base, *records = [canonical.decode(record, RECORD_BYTES_MAX) for record in trio.run(read)]
    assert base[0] == "base"
    statements = [entry_of(word).signed.statement for record in records for word in record[2]]
    return [
        (said.kind, said.domain.epoch, said.view if said.kind in VIEW_KINDS else said.height)
        for said in statements
    ]


def assert_verified(nodes: list[Node]) -> None:
    """Every chain verifies from genesis up to its newest vertex, in a process of its own."""
    for node in nodes:
        done = subprocess.run(
            [sys.executable, "-m", "daa_node", "checkpoint", "verify", "--json"]
            + ["--dir", str(node.directory)],
            capture_output=True,
            text=True,
            check=False,
        )
        said = json.loads(done.stdout)
        assert (done.returncode, said["ok"], said["problems"]) == (0, True, []), done.stderr
        assert said["heights"] == height(node)
