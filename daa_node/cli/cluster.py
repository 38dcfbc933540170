"""A local cluster of daemons, each a process of its own with its own keys, directory and port.

D/demo.json      what this demo is; only a directory with this file is taken up again
D/genesis.json   the network; also in every node's directory
D/node-<k>/      one node's directory; its daemon's output goes to daemon.log inside
"""

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daa_node import config_file, genesis
from daa_node.adapters import control_socket
from daa_node.adapters.key_files import load_keys
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.cli import identity, local
from daa_node.cli.dashboard import address_of
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.free_ports import free_ports
from daa_node.config_file import Override
from daa_node.errors import UserError
from daa_node.genesis import Genesis, Job

MARKER = "demo.json"
MARKER_VERSION = 1
STOP_TIMEOUT_S = 60.0  # a drained daemon finishes its round first
KILL_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 15
RESTART_S = 3.0  # long enough to see that the others go on
FALLS_MAX = 3  # in a row without a new height: then something is wrong that a start does not mend


@dataclass(slots=True)
class Daemon:
    """One child process and what it last said of itself."""

    directory: Path
    node_id: str
    port: int
    process: "subprocess.Popen[bytes]"
    status: dict[str, Any] | None = None
    rounds: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0
    down: str | None = None  # how it ended, until it is started again
    fell_s: float | None = None  # when that was seen, until it has caught up
    falls: int = 0  # in a row
    height_at_fall: int = -1

    @property
    def done(self) -> bool:
        """It says that the job has ended, and has told of every round."""
        return bool(self.status and self.status.get("done")) and not self._rounds_behind()

    def _rounds_behind(self) -> bool:
        told = self.rounds[-1]["height"] if self.rounds else -1
        return bool(self.status and self.status["height"] != told)

    def poll(self) -> None:
        """Ask for its status; what it does not answer stays as it was."""
        try:
            path = self.directory / "control.sock"
            self.status = control_socket.ask(path, "status")
            if self._rounds_behind():
                self._take(control_socket.ask(path, "rounds")["rounds"])
        except UserError:
            return  # it has not opened its door yet, or is gone: `returncode` tells

    def how_it_ended(self) -> str | None:
        """In words, if it ended before its time."""
        code = self.process.poll()
        if code is None or (self.done and code == 0):
            return None
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _take(self, rounds: list[dict[str, Any]]) -> None:
        """Of rounds before its newest start it knows no more what it took and sent."""
        before = {line["height"]: line for line in self.rounds if line["wall_s"]}
        self.rounds = [before.get(line["height"], line) for line in rounds]

    def log_tail(self) -> str:
        try:
            lines = (self.directory / "daemon.log").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join("  | " + line for line in lines[-LOG_TAIL_LINES:])


class Cluster:
    """The daemons of one demo. Use `prepare`, then `start`, and `stop` or `kill` in any case."""

    def __init__(self, root: Path, made: Genesis, directories: list[Path]) -> None:
        self.root = root
        self.genesis = made
        self.daemons: list[Daemon] = []
        self.news: list[str] = []  # of daemons that fell and came back, not yet told
        self.page: str | None = None  # its address, while it is served
        self.dashboard: str | None = None  # the same, with its token
        self._told_of_page = ""
        self._directories = directories

    def start(self, page_port: int | None = None, with_dashboard: bool = False) -> None:
        """Spawn every daemon on a free port. Each ends when this process does.

        The first one is a gateway if there is a port for its page, and may serve a dashboard.
        """
        *ports, api_port = free_ports(len(self._directories) + 1, but=page_port)
        keys = [load_keys(directory / "keys") for directory in self._directories]
        addresses = [
            f"/ip4/127.0.0.1/tcp/{port}/p2p/{k.peer_id}"
            for port, k in zip(ports, keys, strict=True)
        ]
        for index, directory in enumerate(self._directories):
            others = [a for a in addresses if a != addresses[index]]
            text = settings(ports[index], others, page_port if index == 0 else None)
            if with_dashboard and index == 0:
                text += f"api: {{listen: '127.0.0.1:{api_port}'}}\n"
            (directory / "config.yaml").write_text(text)
            node_id = keys[index].node_id.hex()
            self.daemons.append(Daemon(directory, node_id, ports[index], _spawn(directory)))

    def poll(self) -> None:
        """Ask everybody, and start again who fell.

        Raises UserError with the tail of its log when a daemon falls again and again.
        """
        for daemon in self.daemons:
            daemon.poll()
            how = daemon.how_it_ended()
            if how is not None:
                self._mend(daemon, how)
            elif daemon.fell_s is not None and self._is_level(daemon):
                took_s = time.monotonic() - daemon.fell_s
                daemon.fell_s = None
                assert daemon.status is not None, "it is level by what it says"
                self.news.append(
                    f"{daemon.directory.name} has caught up: height {daemon.status['height']}, "
                    f"{took_s:.1f} s after it fell"
                )
        self._tell_of_page()
        self._tell_of_dashboard()

    def _tell_of_dashboard(self) -> None:
        first = self.daemons[0]
        api = (first.status or {}).get("api")
        if self.dashboard is None and api is not None and api["url"] is not None:
            self.dashboard = address_of(DataDirectory(first.directory), api)
            self.news.append(f"watch it in a browser of this machine: {self.dashboard}")

    def _tell_of_page(self) -> None:
        gateway = (self.daemons[0].status or {}).get("gateway")
        if gateway is None:
            return
        self.page = gateway["url"]
        told = f"open {self.page} in a browser of this machine"
        if self.page is None:
            told = f"the page cannot be opened now: {gateway['failure']}"
        if told != self._told_of_page and (self.page or gateway["failure"]):
            self._told_of_page = told
            self.news.append(told)

    def _mend(self, daemon: Daemon, how: str) -> None:
        height = max((line["height"] for d in self.daemons for line in d.rounds), default=0)
        if daemon.down is None:
            daemon.falls = 1 if height > daemon.height_at_fall else daemon.falls + 1
            daemon.down, daemon.fell_s = how, time.monotonic()
            daemon.height_at_fall, daemon.status = height, None
            self.news.append(
                f"{daemon.directory.name} is gone ({how}) at height {height}: the others go on "
                f"while they are a quorum; it starts again in {RESTART_S:.0f} s"
            )
        if daemon.falls >= FALLS_MAX:
            raise UserError(
                f"the daemon in {daemon.directory} ended ({how}), {daemon.falls} times without a "
                f"new height; its last words:\n{daemon.log_tail()}",
                exit_code=1,
            )
        assert daemon.fell_s is not None, "it is down"
        if time.monotonic() - daemon.fell_s >= RESTART_S:
            daemon.process, daemon.down = _respawn(daemon), None
            daemon.restarts += 1
            self.news.append(f"{daemon.directory.name} is started again, pid {daemon.process.pid}")

    def _is_level(self, daemon: Daemon) -> bool:
        """Whether it stands where the others do, or is in the round after."""
        heights = [d.status["height"] for d in self.daemons if d is not daemon and d.status]
        return daemon.status is not None and daemon.status["height"] >= max(heights, default=0)

    def stop(self) -> list[int]:
        """SIGTERM to all, their exit codes; one that does not end in time is killed."""
        for daemon in self.daemons:
            if daemon.process.poll() is None:
                daemon.process.send_signal(signal.SIGTERM)
        return self._reap(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End every daemon now: its standard input closes, and who ignores that is killed."""
        self._reap(KILL_TIMEOUT_S, hang_up=True)

    def _reap(self, timeout_s: float, hang_up: bool = False) -> list[int]:
        deadline_s = time.monotonic() + timeout_s
        codes = []
        for daemon in self.daemons:
            if hang_up and daemon.process.stdin is not None:
                daemon.process.stdin.close()
        for daemon in self.daemons:
            try:
                daemon.process.wait(max(0.1, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                daemon.process.kill()
            codes.append(daemon.process.wait())
            if daemon.process.stdin is not None:
                daemon.process.stdin.close()
        return codes


def _spawn(directory: Path) -> "subprocess.Popen[bytes]":
    with (directory / "daemon.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "daa_node", "run", "--with-parent", "--dir", str(directory)],
            stdin=subprocess.PIPE,  # closes when we end, however we end
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is ours to handle, in order
        )


def _respawn(daemon: Daemon) -> "subprocess.Popen[bytes]":
    if daemon.process.stdin is not None:
        daemon.process.stdin.close()
    return _spawn(daemon.directory)


def prepare(root: Path, nodes: int, rounds: int | None, seed: int | None) -> Cluster:
    """Make a demo in `root`, or take up the one that is there. Raises UserError."""
    marker = root / MARKER
    if marker.exists():
        return _taken_up(root, nodes, rounds, seed)
    if root.is_dir() and any(root.iterdir()):
        raise UserError(f"{root} is not empty and holds no demo: choose another --dir")
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is a file: choose another --dir")
    root.mkdir(parents=True, exist_ok=True)
    directories = [root / f"node-{index}" for index in range(nodes)]
    records = []
    for directory, port in zip(directories, free_ports(nodes), strict=True):
        identity.create_node(directory, settings(port, []))
        records.append((str(directory), identity.make_record(identity.open_node(directory))))
    made = genesis.create(
        demo_job(nodes, rounds, seed), records, SystemEntropy().bytes(genesis.NONCE_BYTES)
    )
    for directory in directories:
        local.write_genesis(DataDirectory(directory).genesis, made)
    local.write_genesis(root / "genesis.json", made)
    # last: without it an interrupted preparation is not mistaken for a demo
    marker.write_text(json.dumps({"version": MARKER_VERSION, "nodes": nodes}) + "\n")
    return Cluster(root, made, directories)


def demo_job(nodes: int, rounds: int | None, seed: int | None) -> Job:
    """configs/demo.yaml with what the command line changes."""
    text = identity.packaged_config("demo.yaml")
    job = config_file.load("demo.yaml", text, Job).value
    changes: list[Override] = []
    if rounds is not None:
        # the cosine ends with the job
        steps = rounds * job.rounds.inner_steps_max
        changes.append(Override(("end", "rounds"), str(rounds), "flag --rounds"))
        changes.append(Override(("inner", "total_steps"), str(steps), "flag --rounds"))
    if seed is not None:
        changes.append(Override(("seed",), str(seed), "flag --seed"))
    return config_file.load("demo.yaml", text, Job, changes).value


def settings(port: int, others: list[str], page_port: int | None = None) -> str:
    """A demo node's config.yaml; with a port for the page it is a gateway."""
    bootstrap = json.dumps(others)
    gateway = f"gateway: {{enabled: true, listen: '127.0.0.1:{page_port}'}}\n" if page_port else ""
    return (
        "# Written by `daa-node demo` at every start: ports are whichever are free.\n"
        "network:\n"
        f"  listen: [/ip4/127.0.0.1/tcp/{port}]\n"
        f"  bootstrap: {bootstrap}\n{gateway}"
    )


def _taken_up(root: Path, nodes: int, rounds: int | None, seed: int | None) -> Cluster:
    try:
        marker = json.loads((root / MARKER).read_text())
        version, count = int(marker["version"]), int(marker["nodes"])
    except (ValueError, KeyError, TypeError, OSError) as broken:
        raise UserError(
            f"{root / MARKER} cannot be read ({broken}): choose another --dir"
        ) from None
    if version > MARKER_VERSION:
        raise UserError(
            f"{root} holds a demo of a newer daa-node (version {version}, this one reads "
            f"{MARKER_VERSION}): choose another --dir"
        )
    made = local.read_genesis(root / "genesis.json")
    wanted = {"--nodes": (nodes, count)}
    if rounds is not None:
        wanted["--rounds"] = (rounds, made.job.end.rounds or 0)
    if seed is not None:
        wanted["--seed"] = (seed, made.job.seed)
    for flag, (asked, is_there) in wanted.items():
        if asked != is_there:
            raise UserError(
                f"the demo in {root} was made with {flag} {is_there}, not {asked}: leave the flag "
                "out to go on with it, or choose another --dir"
            )
    return Cluster(root, made, [root / f"node-{index}" for index in range(count)])
