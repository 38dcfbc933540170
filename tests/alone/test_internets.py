"""Packets between real namespaces take their link's time, and meet the faults that it has."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic_ns, sleep

import pytest

from simnet.nodes.processes import probes
from simnet.nodes.processes.backends import Findings, examine
from simnet.nodes.processes.borders import public_address_of
from simnet.nodes.processes.fork_server import ForkServer
from simnet.nodes.processes.internets import Internet, tun_internet
from simnet.nodes.processes.lines import Line
from simnet.nodes.processes.measurement import Probes
from simnet.nodes.processes.probes import Arrivals, Flow, Report
from simnet.world.link_conditions import LinkState
from simnet.world.links import MS, NS, LinkModel

NODES = 3
DATAGRAMS, GAP_NS = 50, 2 * MS
ATTEMPTS = 5  # whatever else a machine does passes; a link that is wrong is wrong each time
LOST = LinkModel(latency_ns=40 * MS, jitter_ns=4 * MS, bits_per_s=20_000_000, loss_ppm=100_000)
QUICK = LinkModel(latency_ns=5 * MS)
PAIRS = [(one, other) for one in range(NODES) for other in range(NODES) if one != other]


@pytest.fixture(scope="module")
def tried() -> Findings:
    return examine()


@pytest.fixture(params=["namespaces", "user_namespaces"])
def world(request: pytest.FixtureRequest, tried: Findings, tmp_path: Path) -> Iterator["World"]:
    probe = next(probe for probe in tried.probes if probe.name == request.param)
    if not probe.ok:
        pytest.skip(f"{probe.name}: {probe.detail}")
    with ExitStack() as stack:
        server = ForkServer(tmp_path / "log")
        stack.callback(server.end)
        as_user = request.param.startswith("user")
        internet = tun_internet(server, (None,) * NODES, 5, as_user)
        stack.callback(internet.end)
        yield World(server, internet, stack)


class World:
    """Three namespaces with a probe in each."""

    def __init__(self, server: ForkServer, internet: Internet, stack: ExitStack) -> None:
        self.internet = internet
        self.addresses = [public_address_of(node) for node in range(NODES)]
        self.lines: list[Line] = []
        self._flows = 1000
        for node, address in enumerate(self.addresses):
            life = partial(probes.serve, address)
            line = server.fork_helper("probe", life, internet.namespace_of(node))
            stack.callback(line.close)
            line.hear()  # it is ready
            self.lines.append(line)

    def set(self, **changes: LinkState) -> None:
        """All links are quick, but those named: `_0_1` is from node 0 to node 1."""
        states = dict.fromkeys(PAIRS, LinkState(QUICK))
        for name, state in changes.items():
            _, sender, receiver = name.split("_")
            states[int(sender), int(receiver)] = state
        self.internet.set_links(states)

    def send(self, sender: int, receiver: int) -> int:
        """Start a flow; its number."""
        self._flows += 1
        flow = Flow(self._flows, self.addresses[receiver], DATAGRAMS, 100, GAP_NS, monotonic_ns())
        self.lines[sender].send([flow])
        return self._flows

    def arrived(self, receiver: int, flow: int) -> tuple[int, float]:
        """(how many, mean milliseconds) once there was time for all of them."""
        sleep((DATAGRAMS * GAP_NS + 500 * MS) / NS)
        report: Report = self.lines[receiver].ask(None)
        found = report.arrived.get(flow, Arrivals())
        return found.count, found.delay_ns_mean / MS


def test_measured_delay_rate_and_loss_are_within_a_tenth_of_what_was_asked(world: World) -> None:
    models = dict.fromkeys(PAIRS, LOST)
    world.internet.set_links({ends: LinkState(model) for ends, model in models.items()})
    for _ in range(ATTEMPTS):
        measured = Probes(world.lines).measure(models)
        if not measured.faults():
            break
    assert not measured.faults()
    assert {pool.percent_asked for pool in measured.pools} == {10.0}
    assert measured.pools[0].sent > 8_000
    assert 40 < measured.links[0].delay_ms < 46


def test_links_close_one_way_hold_and_slow_down(world: World) -> None:
    closed = LinkState(QUICK, is_open=False)
    world.set(_0_1=closed, _1_2=LinkState(QUICK, holds=True), _2_0=LinkState(QUICK.slowed(8)))
    there, back = world.send(0, 1), world.send(1, 0)
    held, slow = world.send(1, 2), world.send(2, 0)
    assert world.arrived(1, there)[0] == 0
    assert world.arrived(0, back)[0] == DATAGRAMS
    assert world.arrived(2, held)[0] == 0
    for _ in range(ATTEMPTS):
        count, delay_ms = world.arrived(0, slow)
        assert count == DATAGRAMS
        if delay_ms < 48:
            break
        slow = world.send(2, 0)
    assert 36 < delay_ms < 48
    world.set()
    count, delay_ms = world.arrived(2, held)
    assert count == DATAGRAMS  # all at once, however long they waited
    assert delay_ms > 200
    assert world.arrived(1, world.send(0, 1))[0] == DATAGRAMS
