"""Real daemons in real processes behind emulated links, as long as a `with` block lasts.

    with running(scenario, root, note) as cluster:
        cluster.measure()
        cluster.start()

Leaving the block ends every process, and with them the namespaces and devices.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep

from daa_node.adapters import control_socket
from daa_node.errors import Unavailable, UserError
from simnet.determinism import Streams
from simnet.processes import disks, kernel, namespaces, nodes
from simnet.processes.backends import Backend, Internet, choose, open_internet
from simnet.processes.daemon import Nature
from simnet.processes.family import Zygote
from simnet.processes.leftovers import Note, scratch
from simnet.processes.measurement import Measurement, Probes
from simnet.processes.weather import Weather
from simnet.scenario import Scenario
from simnet.topology import Topology

WARM_TIMEOUT_S = READY_TIMEOUT_S = 60.0
LOOK_S = 0.01
STOP_S = 4.0  # a drained daemon ends its round; then it is told once more, to stop at once
STOP_AT_ONCE_S = 8.0
VERIFY_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Node:
    """A node's directory, and its daemon's process while it has one."""

    index: int
    nature: Nature
    pid: int | None = None

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
        zygote: Zygote,
        internet: Internet,
        backend: Backend,
        natures: list[Nature],
    ) -> None:
        self.weather = Weather(Topology(scenario, Streams(scenario.seed)), scenario.node_count)
        self.internet = internet
        self.backend = backend
        self.nodes = [Node(index, nature) for index, nature in enumerate(natures)]
        self.warm_s = 0.0
        self._zygote = zygote
        self._workers = natures[0].workers
        self.scratch = self._workers.parent  # goes with the cluster

    def measure(self) -> Measurement | None:
        """What the links do, before anybody uses them; None where datagrams cannot travel."""
        if not self.backend.carries_datagrams:
            return None
        with ExitStack() as stack:
            lines = []
            for node in self.nodes:
                ours, theirs = kernel.pair()
                stack.callback(ours.close)
                with theirs:
                    address = namespaces.address_of(node.index)
                    self._zygote.spawn_probe(node.index, address, theirs)
                lines.append(ours)
            for line in lines:
                kernel.receive(line)  # it is ready: a busy machine forks slowly
            probes = Probes(lines, [namespaces.address_of(n.index) for n in self.nodes])
            states = self.weather.states([], 0)
            return probes.measure({ends: state.model for ends, state in states.items()})

    def warm(self) -> None:
        """Import everything once: the daemon's code, and the workers' beside it."""
        began_s = monotonic()
        pid = self._zygote.start_workers(self._workers)
        self._zygote.warm()
        while not self._workers.exists():
            if self._zygote.wait(pid, LOOK_S) is not None or monotonic() - began_s > WARM_TIMEOUT_S:
                raise UserError("the warm parent of workers does not come up", exit_code=1)
        self.warm_s = monotonic() - began_s

    def start(self) -> float:
        """Start every daemon; the seconds until all of them answer. Raises UserError."""
        began_s = monotonic()
        for node in self.nodes:
            self.start_node(node)
        waiting = list(self.nodes)
        while waiting := [node for node in waiting if not self._answers(node)]:
            if monotonic() - began_s > READY_TIMEOUT_S:
                raise UserError(
                    f"node {waiting[0].index} is not ready after {READY_TIMEOUT_S:g} s; its last "
                    f"words:\n{waiting[0].words()}",
                    exit_code=1,
                )
            sleep(LOOK_S)
        return monotonic() - began_s

    def start_node(self, node: Node) -> None:
        assert node.pid is None
        node.pid = self._zygote.spawn_daemon(node.index, node.nature, node.log)

    def kill_node(self, node: Node) -> None:
        """SIGKILL, to the worker as well; returns when the daemon is gone."""
        if node.pid is not None:
            self._zygote.kill_group(node.pid, signal.SIGKILL)
            self._zygote.wait(node.pid, STOP_S)
            node.pid = None

    def pause_node(self, node: Node, paused: bool) -> None:
        if node.pid is not None:
            self._zygote.kill_group(node.pid, signal.SIGSTOP if paused else signal.SIGCONT)

    def fill_disk(self, node: Node, full: bool) -> None:
        """Its disk takes nothing more, or something again; also after a restart."""
        node.nature = replace(node.nature, full=full)
        if node.pid is not None:
            disks.fill(node.pid, full)

    def died(self, node: Node) -> int | None:
        """How its daemon ended by itself; None while it runs, or if we ended it."""
        return None if node.pid is None else self._zygote.code_of(node.pid)

    def stop(self) -> list[str]:
        """Ask all to stop; what is wrong with how they ended."""
        running = [node for node in self.nodes if node.pid is not None]
        for patience_s in (STOP_S, STOP_AT_ONCE_S):
            for node in running:
                self._signal(node, signal.SIGTERM)
            deadline_s = monotonic() + patience_s
            for node in running:
                assert node.pid is not None
                self._zygote.wait(node.pid, max(0.0, deadline_s - monotonic()))
        wrong = []
        for node in running:
            assert node.pid is not None
            code = self._zygote.code_of(node.pid)
            if code != 0:
                wrong.append(f"node {node.index}: {_ending(code)}")
            self.kill_node(node)
            node.pid = None
        return wrong

    def verify(self) -> dict[int, str]:
        """`daa-node checkpoint verify` of each node that has a chain: node -> its JSON."""
        running = {}
        for node in self.nodes:
            said = node.directory / "verify.json"
            said.unlink(missing_ok=True)
            order = ["checkpoint", "verify", "--json", "--dir", str(node.directory)]
            running[node.index] = self._zygote.spawn(node.index, order, said), said
        for pid, _ in running.values():
            if self._zygote.wait(pid, VERIFY_TIMEOUT_S) is None:
                self._zygote.kill_group(pid, signal.SIGKILL)
        return {index: said.read_text() for index, (_, said) in running.items()}

    def _signal(self, node: Node, number: int) -> None:
        assert node.pid is not None
        self._zygote.kill_group(node.pid, number)

    def _answers(self, node: Node) -> bool:
        code = self.died(node)
        if code is not None:
            raise UserError(
                f"the daemon of node {node.index} ended ({_ending(code)}); its last words:\n"
                f"{node.words()}",
                exit_code=1,
            )
        try:
            control_socket.ask(node.directory / "control.sock", "status")
        except UserError:
            return False  # its door is not open yet
        return True


@contextmanager
def running(scenario: Scenario, root: Path, note: Note) -> Iterator[Cluster]:
    """A cluster below `root`, measured and started by whoever asked. Raises UserError."""
    nodes.check_scenario(scenario)
    backend = choose()
    with ExitStack() as stack:
        zygote = Zygote(root / "helpers.log", note.add_process)
        stack.callback(zygote.end)
        note.add_process(zygote.helper.process.pid)
        try:
            internet = open_internet(backend, zygote, scenario, root / "helpers.log")
        except Unavailable as failed:
            raise UserError(f"{backend.name}: {failed}", exit_code=1) from None
        stack.callback(internet.end)
        for pid in internet.pids():
            note.add_process(pid)
        # a folder of its own: the name of a socket is short
        workers = stack.enter_context(scratch(note)) / "workers"
        natures = nodes.make_nodes(scenario, root, internet, workers)
        cluster = Cluster(scenario, zygote, internet, backend, natures)
        internet.set_links(cluster.weather.states([], 0))
        yield cluster


def _ending(code: int | None) -> str:
    if code is None:
        return "it did not end"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
