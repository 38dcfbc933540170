"""Real TCP through real boxes: out and back, and nobody comes in who is not dialled as well."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
import trio

from daa_node.adapters.budgets import Endpoint
from daa_node.adapters.host_names import dial
from daa_node.adapters.simultaneous_open import cross
from daa_node.errors import Unavailable
from simnet.nodes.processes.backends import examine
from simnet.nodes.processes.borders import CARRIER, own_address_of, public_address_of
from simnet.nodes.processes.fork_server import ForkServer
from simnet.nodes.processes.internets import Internet, tun_internet
from simnet.nodes.processes.lines import Line
from simnet.world.link_conditions import LinkState, all_ends
from simnet.world.links import MS, LinkModel
from simnet.world.node_classes import Nat

NATS: tuple[Nat | None, ...] = (None, None, "cone", "symmetric", "cgnat", "cgnat", "cone")
PORT = 4001
NOBODY_S = 1.0  # so long we wait where nobody is to answer
ANSWERED_S = 30.0  # and where somebody is
PAYLOAD = bytes(range(256)) * 250


def live(address: str, line: Line) -> None:
    """Echoes whoever connects; dials whom it is told to, from `PORT` of its own if told so.

    Says who it was for the other end, or why there was none.
    """
    door = socket.create_server((address, PORT), backlog=8, reuse_port=True)
    threading.Thread(target=echo_all, args=(door,), daemon=True).start()
    seen_by: list[trio.socket.SocketType] = []  # kept open, as a connection with a relay is
    line.send(None)
    while True:
        match line.receive()[0]:
            case "seen", host, port:
                seen_by.append(trio.run(dial, (host, port)).socket)
                line.send((seen_by[-1].getsockname(), trio.run(seen_as, seen_by[-1])))
            case "cross", own, other:
                line.send(trio.run(meet, own, other))
            case order:
                line.send(dialled(address, *order))


def echo_all(door: socket.socket) -> None:
    while True:
        caller, end = door.accept()
        threading.Thread(target=echo, args=(caller, end), daemon=True).start()


def echo(caller: socket.socket, end: tuple[str, int]) -> None:
    with caller:
        caller.sendall(f"{end[0]}:{end[1]}".encode().ljust(32))
        while piece := caller.recv(1 << 16):
            caller.sendall(piece)


def dialled(own: str, host: str, port: int, from_door: bool, within_s: float) -> str:
    with socket.socket() as dial:
        dial.settimeout(within_s)
        if from_door:
            dial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            dial.bind((own, PORT))
        try:
            dial.connect((host, port))
            seen = dial.recv(32).decode().strip()
            dial.sendall(PAYLOAD)
            heard = b""
            while len(heard) < len(PAYLOAD):
                heard += dial.recv(1 << 16)
        except TimeoutError:
            return "nobody"
        return seen if heard == PAYLOAD else "damaged"


async def seen_as(there: trio.socket.SocketType) -> Endpoint:
    """Where the echo at the other end sees us."""
    host, _, port = (await there.recv(32)).decode().strip().partition(":")
    return host, int(port)


async def meet(own: Endpoint, other: Endpoint) -> str:
    """Dial the other end at the same moment as it dials us; what it says."""
    try:
        stream = await cross(own, other)
    except Unavailable:
        return "nobody"
    await stream.send_all(f"from {own[0]}".encode())
    return bytes(await stream.receive_some(64)).decode()


class World:
    """A node of each kind, with an echo and a caller in it."""

    def __init__(self, server: ForkServer, internet: Internet, stack: ExitStack) -> None:
        self.internet = internet
        self.lines = []
        for node, nat in enumerate(NATS):
            life = partial(live, own_address_of(node, nat))
            line = server.fork_helper("caller", life, internet.namespace_of(node))
            stack.callback(line.close)
            line.hear()
            self.lines.append(line)

    def dial(self, node: int, host: str, from_door: bool = False) -> str:
        """As whom the node is seen there."""
        found: str = self.lines[node].ask((host, PORT, from_door, ANSWERED_S))
        return found

    def is_let_in(self, node: int, host: str) -> bool:
        return bool(self.lines[node].ask((host, PORT, False, NOBODY_S)) != "nobody")

    def shows(self, node: int) -> tuple[Endpoint, Endpoint]:
        """A socket of its own towards node 0, and where that one sees it."""
        found: tuple[Endpoint, Endpoint] = self.lines[node].ask(
            ("seen", public_address_of(0), PORT)
        )
        return found

    def cross(self, one: int, other: int) -> list[str]:
        """What each of the two hears of the other when both dial at once."""
        (own, seen), (its_own, seen_there) = self.shows(one), self.shows(other)
        self.lines[one].send(("cross", own, seen_there))
        self.lines[other].send(("cross", its_own, seen))
        return [self.lines[node].hear()[0] for node in (one, other)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    found = examine()
    tun = next(backend for backend in found.backends if backend.boxes)
    if not tun.ok:
        pytest.skip(f"{tun.name}: {tun.why}")
    with ExitStack() as stack:
        server = ForkServer(tmp_path_factory.mktemp("nat") / "log")
        stack.callback(server.end)
        internet = tun_internet(server, NATS, 5, tun.user_namespace)
        stack.callback(internet.end)
        quick = LinkState(LinkModel(latency_ns=2 * MS))
        internet.set_links(dict.fromkeys(all_ends(len(NATS)), quick))
        yield World(server, internet, stack)


@pytest.mark.parametrize("node", range(2, len(NATS)))
def test_a_stream_goes_out_through_each_kind_of_box_and_all_bytes_come_back(
    world: World, node: int
) -> None:
    host, _, port = world.dial(node, public_address_of(0)).partition(":")
    assert host == (CARRIER if NATS[node] == "cgnat" else public_address_of(node))
    assert int(port) > 0
    assert not world.is_let_in(0, host)
    assert world.internet.counts()["nat_refused"] > 0


def test_who_is_behind_no_box_is_reached_as_ever(world: World) -> None:
    assert world.dial(0, public_address_of(1)).startswith(public_address_of(0) + ":")


def test_a_cone_shows_one_port_to_two_hosts_and_a_symmetric_box_two(world: World) -> None:
    hosts = [public_address_of(0), public_address_of(1)]
    cone, symmetric = (
        [world.dial(node, host, from_door=True) for host in hosts] for node in (2, 3)
    )
    assert cone[0] == cone[1] == f"{public_address_of(2)}:{PORT}"
    assert symmetric[0] != symmetric[1]
    # and still nobody comes in to the port that all the world has seen, but who was written to
    assert not world.is_let_in(4, public_address_of(2))


@pytest.mark.parametrize(
    ("one", "other", "is_let_through"), [(2, 6, True), (2, 4, True), (2, 3, False), (4, 5, False)]
)
def test_two_cones_let_each_other_through_when_both_dial_and_no_symmetric_box_does(
    world: World, one: int, other: int, is_let_through: bool
) -> None:
    """Nor do two homes of one carrier, whose box turns nothing round."""
    wanted = [f"from {own_address_of(node, NATS[node])}" for node in (other, one)]
    assert world.cross(one, other) == (wanted if is_let_through else ["nobody", "nobody"])
