"""What the checks look at: a node's directory, opened as `run` opens it, and the host below it.

What `run` would refuse is kept as the sentence that it would end with; the checks go on without it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from daa_node.adapters import control_socket, host_looks
from daa_node.adapters.asked_process import probe_device
from daa_node.adapters.event_file import LINE_BYTES_MAX
from daa_node.adapters.host_looks import DiskPace, ThreadRoom
from daa_node.adapters.key_files import load_keys
from daa_node.cli import identity
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.local import read_genesis
from daa_node.config import NodeConfig
from daa_node.errors import NodeError
from daa_node.genesis import Genesis
from daa_node.identity.keys import NodeKeys
from daa_node.observability.events import (
    EXEC_CERTIFIED,
    NODE_STARTED,
    TRAINER_LOST,
    TRAINER_STARTED,
)
from daa_node.training import torch_there
from daa_node.training.config import TrainerConfig

# What a run tells before it says that it has started: its worker, and what it reads of its journal.
BEFORE_ITS_START = (TRAINER_STARTED, TRAINER_LOST, EXEC_CERTIFIED)
LOG_BYTES_LOOKED_AT = 16 * LINE_BYTES_MAX  # 1 MiB, the newest: some thousand events

T = TypeVar("T")
Log = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Host:
    """What is asked of the machine; a test gives another one."""

    free_bytes: Callable[[Path], int] = host_looks.free_bytes
    disk_pace: Callable[[Path], DiskPace] = host_looks.disk_pace
    is_stopped: Callable[[int], bool] = host_looks.is_stopped
    files_max: Callable[[], int] = host_looks.files_max
    thread_room: Callable[[], ThreadRoom | None] = host_looks.thread_room
    port_holder: Callable[[int], str | None] = host_looks.port_holder
    has_torch: Callable[[], bool] = torch_there.is_there
    device: Callable[[TrainerConfig], str] = probe_device


@dataclass(frozen=True, slots=True)
class Scene:
    """A node's directory, with what of it could be read."""

    directory: DataDirectory
    host: Host
    config: NodeConfig | None = None
    keys: NodeKeys | None = None
    made: Genesis | None = None
    runs: str | None = None  # the pid of the daemon that has this directory
    # What it says of itself; empty if none runs, or if it does not answer.
    status: Mapping[str, Any] = field(default_factory=dict)
    peers: tuple[Mapping[str, Any], ...] = ()  # whom it knows, as it says
    validators: Mapping[str, int] = field(default_factory=dict)  # stake by node id, as it says
    log: Log = ()  # the newest events of the last run, oldest first
    # Of "directory", "config", "keys", "genesis", "identity": the sentence that `run` ends with.
    faults: Mapping[str, str] = field(default_factory=dict)


def open_scene(root: Path, config_path: Path | None, host: Host) -> Scene:
    """Raises nothing for what is wrong with a node: that is in `faults`."""
    directory = DataDirectory(root)
    faults: dict[str, str] = {}

    def tried(name: str, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except NodeError as fault:
            faults[name] = str(fault)
            return None

    tried("directory", directory.check)
    if faults:
        return Scene(directory, host, faults=faults)
    config = tried("config", lambda: identity.open_config(directory, config_path).value)
    keys = tried("keys", lambda: load_keys(directory.keys))
    made = tried("genesis", lambda: read_genesis(directory.genesis))
    runs = tried("identity", directory.holder)
    status: Mapping[str, Any] | None = None
    peers: Mapping[str, Any] | None = None
    voting: Mapping[str, Any] | None = None
    if runs is not None and runs.isdecimal() and host.is_stopped(int(runs)):
        faults["status"] = f"process {runs} is stopped: `kill -CONT {runs}` lets it go on"
    elif runs is not None:
        status = tried("status", lambda: control_socket.ask(directory.control, "status"))
    if status is not None:
        peers = tried("peers", lambda: control_socket.ask(directory.control, "peers"))
        voting = tried("validators", lambda: control_socket.ask(directory.control, "validators"))
    return Scene(
        directory=directory,
        host=host,
        config=config,
        keys=keys,
        made=made,
        runs=runs,
        status=status or {},
        peers=tuple((peers or {}).get("peers", ())),
        validators={v["node_id"]: v["stake"] for v in (voting or {}).get("validators", ())},
        log=newest_events(directory.events),
        faults=faults,
    )


def newest_events(path: Path) -> Log:
    """Of the last run, as far as its newest LOG_BYTES_LOOKED_AT go; lines that are none left out.

    The log is this node's own file, and yet a power cut may leave anything in it.
    """
    events: list[Mapping[str, Any]] = []
    for line in tail_of(path, LOG_BYTES_LOOKED_AT).splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict):
            continue
        if event.get("name") == str(NODE_STARTED):
            del events[: _of_earlier_runs(events)]
        events.append(event)
    return tuple(events)


def _of_earlier_runs(events: list[Mapping[str, Any]]) -> int:
    """How many of the events are: the next one is the start of a run."""
    count = len(events)
    while count and events[count - 1].get("name") in BEFORE_ITS_START:
        count -= 1
    return count


def tail_of(path: Path, bytes_max: int) -> bytes:
    """The end of a file; nothing of one that is not there or cannot be read."""
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, 2)
            file.seek(max(0, size_bytes - bytes_max))
            return file.read(bytes_max)
    except OSError:
        return b""


def lines_at_end(path: Path, bytes_max: int) -> str:
    """The whole lines among them: half a one may be half a secret, which nobody knows for one."""
    tail = tail_of(path, bytes_max)
    if len(tail) == bytes_max:
        tail = tail.partition(b"\n")[2]
    return tail.decode(errors="replace")
