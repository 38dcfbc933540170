"""The relay delays streams as links say, stops them while a link is shut, and loses nothing."""

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic

import pytest

from simnet.nodes.processes.fork_server import ForkServer
from simnet.nodes.processes.internets import Internet, relayed_internet
from simnet.nodes.processes.kernel import NODES_MAX
from simnet.world.link_conditions import LinkState
from simnet.world.links import MILLION, MS, LinkModel

THERE, BACK = (0, 1), (1, 0)
SLOW = LinkState(LinkModel(latency_ns=60 * MS))
QUICK = LinkState(LinkModel(latency_ns=1 * MS))
CONNECTIONS = 100
ECHOES = 5
PAYLOAD = bytes(range(256)) * 400


def port_of(multiaddr: str) -> int:
    return int(multiaddr.rsplit("/", 1)[1])


@pytest.fixture
def internet(tmp_path: Path) -> Iterator[Internet]:
    with opened(2, tmp_path) as found:
        yield found


@contextmanager
def opened(count: int, folder: Path) -> Iterator[Internet]:
    server = ForkServer(folder / "log")
    try:
        found = relayed_internet(server, count, 5)
        yield found
        found.end()
    finally:
        server.end()


@pytest.fixture
def caller(internet: Internet) -> Iterator[socket.socket]:
    """Node 0's connection to node 1, which says everything twice."""

    def serve() -> None:
        called, _ = server.accept()
        with called:
            while piece := called.recv(1 << 16):
                called.sendall(piece)

    internet.set_links({THERE: QUICK, BACK: QUICK})
    with socket.create_server(("127.0.0.1", port_of(internet.addresses.listening[1]))) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        with socket.create_connection(
            ("127.0.0.1", port_of(internet.addresses.dial(0, 1)))
        ) as caller:
            caller.settimeout(60)
            yield caller
        thread.join()


def echo_ms(caller: socket.socket, payload: bytes = b"x") -> float:
    began_s = monotonic()
    caller.sendall(payload)
    heard = b""
    while len(heard) < len(payload):
        heard += caller.recv(1 << 16)
    assert heard == payload
    return (monotonic() - began_s) * 1000


def quickest_ms(caller: socket.socket, payload: bytes = b"x") -> float:
    """Of some: whatever else a machine does makes an echo later, never earlier."""
    return min(echo_ms(caller, payload) for _ in range(ECHOES))


def test_an_echo_takes_both_ways_latency(internet: Internet, caller: socket.socket) -> None:
    assert 2 <= quickest_ms(caller) < 50
    internet.set_links({THERE: SLOW})
    assert 61 <= quickest_ms(caller) < 110
    internet.set_links({BACK: SLOW})
    assert 120 <= quickest_ms(caller) < 170


def test_a_link_has_its_rate_and_a_lost_packet_is_a_late_one(
    internet: Internet, caller: socket.socket
) -> None:
    internet.set_links({THERE: LinkState(LinkModel(bits_per_s=4_000_000))})
    assert 200 <= quickest_ms(caller, PAYLOAD) < 300  # 102,400 bytes
    internet.set_links({THERE: LinkState(LinkModel(latency_ns=10 * MS, loss_ppm=500_000))})
    assert echo_ms(caller, PAYLOAD) > 50  # every other of 71 packets again, and some again


@pytest.mark.parametrize(
    "shut",
    [
        LinkState(LinkModel(), is_open=False),
        LinkState(LinkModel(), holds=True),
        LinkState(LinkModel(loss_ppm=MILLION)),
    ],
)
def test_nothing_passes_a_shut_link_and_all_of_it_comes_when_it_opens(
    internet: Internet, caller: socket.socket, shut: LinkState
) -> None:
    internet.set_links({THERE: shut})
    caller.sendall(b"late")
    caller.settimeout(0.3)
    with pytest.raises(TimeoutError):
        caller.recv(10)
    internet.set_links({THERE: QUICK})
    caller.settimeout(60)
    assert caller.recv(10) == b"late"


@pytest.fixture
def few_files() -> Iterator[None]:
    """What most systems let a process have open, unless it asks for more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
def test_as_many_nodes_as_may_be_have_ports_of_their_own_and_connections(tmp_path: Path) -> None:
    nodes = range(NODES_MAX)
    pairs = [(one, other) for one in nodes for other in nodes if one != other]
    with ExitStack() as stack:
        internet = stack.enter_context(opened(NODES_MAX, tmp_path))
        doors = {port_of(internet.addresses.dial(*ends)) for ends in pairs}
        assert len(doors) == len(pairs)
        for node in nodes:
            address = ("127.0.0.1", port_of(internet.addresses.listening[node]))
            stack.enter_context(socket.create_server(address))
        for ends in pairs[:CONNECTIONS]:
            address = ("127.0.0.1", port_of(internet.addresses.dial(*ends)))
            stack.enter_context(socket.create_connection(address))
        deadline_s = monotonic() + 120
        while internet.counts()["connections"] < CONNECTIONS:
            assert monotonic() < deadline_s
