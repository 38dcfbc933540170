"""Real daemons in real processes behind emulated links, as long as a `with` block lasts.

    with running(scenario, root, scratch) as cluster:
        cluster.measure()
        cluster.start()

Leaving the block ends every process, and with them the namespaces and devices.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep

from daa_node.adapters import control_socket
from daa_node.errors import UserError
from simnet.nodes.processes import daemon, hardware, nodes, probes
from simnet.nodes.processes.backends import Backend, choose
from simnet.nodes.processes.borders import own_address_of
from simnet.nodes.processes.daemon import Nature
from simnet.nodes.processes.fork_server import ForkServer
from simnet.nodes.processes.internets import Internet, open_internet
from simnet.nodes.processes.measurement import Measurement, Probes
from simnet.world.determinism import Streams
from simnet.world.link_conditions import LinkConditions
from simnet.world.scenario import Scenario
from simnet.world.topology import Topology

# Imported once: a daemon that is forked from torch would seem to need all of its memory.
DAEMON_MODULES = "daa_node.cli.compose", "daa_node.cli.main", "simnet.nodes.processes.daemon"
WORKER_MODULES = (
    "daa_node.training.torch_worker",
    "simnet.world.adversaries.lying_trainer",
    "simnet.world.adversaries.cheating_core",
)
READY_TIMEOUT_S = 60.0
LOOK_S = 0.01
STOP_S = 4.0  # a drained daemon ends its round; then it is told once more, to stop at once
STOP_AT_ONCE_S = 8.0


@dataclass(slots=True)
class Node:
    """A node's directory, and its daemon's process while it has one."""

    index: int
    nature: Nature
    pid: int | None = None
    is_paused: bool = False

    @property
    def directory(self) -> Path:
        return self.nature.directory

    @property
    def log(self) -> Path:
        return self.directory / "daemon.log"

    def words(self) -> str:
        """The end of what it said."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        except OSError:
            return ""


class Cluster:
    """The nodes of one scenario. Made by `running`."""

    def __init__(
        self,
        scenario: Scenario,
        server: ForkServer,
        internet: Internet,
        backend: Backend,
        natures: list[Nature],
        scratch: Path,
    ) -> None:
        topology = Topology(scenario, Streams(scenario.seed))
        self.conditions = LinkConditions(topology.link, scenario.node_count)
        self._nats = scenario.nats
        self.internet = internet
        self.backend = backend
        self.nodes = [Node(index, nature) for index, nature in enumerate(natures)]
        self.scratch = scratch  # goes with the cluster
        self._server = server

    def measure(self) -> Measurement | None:
        """What the links do, before anybody uses them; None where datagrams cannot travel.

        Not the ways to nodes that nobody can dial: no datagram comes to them unasked.
        """
        if not self.internet.dialable:
            return None
        with ExitStack() as stack:
            lines = []
            for node in range(len(self.nodes)):
                life = partial(probes.serve, own_address_of(node, self._nats[node]))
                place = self.internet.namespace_of(node)
                lines.append(self._server.fork_helper(f"probe of node {node}", life, place))
                stack.callback(lines[-1].close)
            for line in lines:
                line.hear()  # it is ready: a busy machine forks slowly
            states = self.conditions.states(0)
            hidden = self.internet.addresses.hidden
            models = {e: state.model for e, state in states.items() if e[1] not in hidden}
            if not models:
                return None
            return Probes(lines).measure(models)

    def start(self) -> float:
        """Start every daemon; the seconds until all of them answer. Raises UserError."""
        began_s = monotonic()
        for node in self.nodes:
            self.start_node(node)
        waiting = list(self.nodes)
        while waiting := [node for node in waiting if not self._answers(node)]:
            if monotonic() - began_s > READY_TIMEOUT_S:
                why = f"is not ready after {READY_TIMEOUT_S:g} s"
                raise _failed(waiting[0], why)
            sleep(LOOK_S)
        return monotonic() - began_s

    def start_node(self, node: Node) -> None:
        assert node.pid is None
        life, place = partial(daemon.be_daemon, node.nature), self.internet.namespace_of(node.index)
        node.is_paused = False
        node.pid = self._server.fork(life, node.log, place)

    def kill_node(self, node: Node) -> None:
        """SIGKILL, to the worker as well; returns when the daemon is gone."""
        if node.pid is not None:
            self._server.kill_group(node.pid, signal.SIGKILL)
            self._server.wait(node.pid, STOP_S)
            node.pid = None

    def pause_node(self, node: Node, paused: bool) -> None:
        node.is_paused = paused
        if node.pid is not None:
            self._server.kill_group(node.pid, signal.SIGSTOP if paused else signal.SIGCONT)

    def fill_disk(self, node: Node, full: bool) -> None:
        """Its disk takes nothing more, or something again; also after a restart."""
        node.nature = replace(node.nature, full=full)
        if node.pid is not None:
            hardware.fill(node.pid, full)

    def died(self, node: Node) -> int | None:
        """How its daemon ended by itself; None while it runs, or if we ended it."""
        return None if node.pid is None else self._server.code_of(node.pid)

    def stop(self) -> list[str]:
        """Ask all to stop; what is wrong with how they ended."""
        running = {node.pid: node for node in self.nodes if node.pid is not None}
        for patience_s in (STOP_S, STOP_AT_ONCE_S):
            for pid in running:
                self._server.kill_group(pid, signal.SIGTERM)
            deadline_s = monotonic() + patience_s
            for pid in running:
                self._server.wait(pid, max(0.0, deadline_s - monotonic()))
        wrong = []
        for pid, node in running.items():
            code = self._server.code_of(pid)
            if code != 0:
                wrong.append(f"node {node.index}: {_ending(code)}")
            self.kill_node(node)
        return wrong

    def _answers(self, node: Node) -> bool:
        code = self.died(node)
        if code is not None:
            raise _failed(node, f"has ended ({_ending(code)})")
        try:
            control_socket.ask(node.directory / "control.sock", "status")
        except UserError:
            return False  # its door is not open yet
        return True


@contextmanager
def running(scenario: Scenario, root: Path, scratch: Path) -> Iterator[Cluster]:
    """A cluster below `root`, started by whoever asked. Raises UserError."""
    nodes.check_scenario(scenario)
    backend = choose(boxes=any(scenario.nats))
    with ExitStack() as stack:
        log, workers = root / "helpers.log", scratch / "workers"
        server = ForkServer(log, None, DAEMON_MODULES)
        stack.callback(server.end)
        worker_server = ForkServer(log, workers, WORKER_MODULES)
        stack.callback(worker_server.end)
        internet = open_internet(backend, server, scenario)
        stack.callback(internet.end)
        made = nodes.make_nodes(scenario, root, internet.addresses, workers, internet.dialable)
        cluster = Cluster(scenario, server, internet, backend, made, scratch)
        internet.set_links(cluster.conditions.states(0))
        worker_server.call(list)  # answers when all is imported
        yield cluster


def _failed(node: Node, why: str) -> UserError:
    return UserError(
        f"the daemon of node {node.index} {why}; its last words:\n{node.words()}", exit_code=1
    )


def _ending(code: int | None) -> str:
    if code is None:
        return "it did not end"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
