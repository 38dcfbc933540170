"""What somebody without a key does to a node, again and again until told to stop.

An attack is an async function of its victim that goes on for as long as it can: whoever starts it
bounds its time. `Besieger` runs attacks in a process of their own, so that the test's clock and
descriptors stay its own. To add one, write it and name it in SIEGE, or give it to a test by itself.
"""

import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import trio
from libp2p.exceptions import BaseLibp2pError
from libp2p.utils import encode_varint_prefixed

from daa_node.adapters.libp2p_frames import DATA, RST, SYN
from daa_node.adapters.libp2p_sockets import place_of
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.adapters.system_clock import SystemClock
from daa_node.checkpoints.pages import REQUEST
from daa_node.errors import Unavailable
from daa_node.genesis import parse
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import Role
from daa_node.network.config import NetworkConfig
from daa_node.network.directory import Directory
from daa_node.network.discovery import OwnRecord
from daa_node.network.hello import OPEN_PROTOCOLS, Hello, OwnStanding
from daa_node.network.requests import REQUESTS_PER_S_MAX, Requests
from daa_node.network.topics import dht_namespace
from daa_node.observability.events import EventLog
from daa_node.seams import Address, PeerId
from daa_node.wire import protocols
from daa_node.wire.limits import REQUESTS_PER_PEER_MAX
from tests.daa_node.adapters.libp2p_stranger import Target, frame, muxed, session_with
from tests.scenarios import guest_attacks

ROOT = Path(__file__).parents[2]
SILENT_SOCKETS, SILENT_ADDRESSES = 1500, 250
STRANGERS_WHO_ASK = 8
PAUSE_S = 0.05  # before an attack that was thrown out begins anew
THROWN_OUT = (OSError, trio.BrokenResourceError, trio.TooSlowError, BaseLibp2pError)

GREETING = encode_varint_prefixed(b"/multistream/1.0.0\n")
NAME = encode_varint_prefixed(b"/x\n")


class Victim(Target):
    """A node to attack, and the genesis of its network, which is no secret."""

    def __init__(self, address: str, genesis: Path) -> None:
        super().__init__(address)
        self.genesis = genesis


Attack = Callable[[Victim], Awaitable[None]]


async def silent_sockets(victim: Victim) -> None:
    """1,500 connections from 250 addresses, opened anew as they are closed, and not a word."""
    async with trio.open_nursery() as nursery:
        for number in range(SILENT_SOCKETS):
            address = number % SILENT_ADDRESSES
            nursery.start_soon(_sit, victim, f"127.7.{address // 200}.{address % 200 + 1}")


async def _sit(victim: Victim, host: str) -> None:
    while True:
        with trio.socket.socket() as caller:
            try:
                with trio.fail_after(5):
                    await caller.bind((host, 0))
                    await caller.connect(place_of(victim.address)[1])
                await caller.recv(1)  # until it is closed
            except (OSError, trio.TooSlowError):
                pass
        await trio.sleep(1)


async def dead_streams(victim: Victim) -> None:
    """Frames of yamux that open a stream and reset it, 117 kB a connection."""
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(_again, _dead_streams, victim)


async def _dead_streams(victim: Victim) -> None:
    conn = await muxed(victim)
    for first in range(1, 19_500, 1_950):
        opened = range(first, first + 1_950, 2)
        await conn.write(b"".join(frame(DATA, SYN | RST, stream, 0) for stream in opened))
    await trio.sleep(1)
    await conn.close()


async def endless_names(victim: Victim) -> None:
    """Names of protocols that nobody speaks, on one stream, 1.8 MB if it takes them."""
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(_again, _endless_names, victim)


async def _endless_names(victim: Victim) -> None:
    async with session_with(victim) as session:
        stream = await session.open_stream()
        await stream.write(GREETING)

        async def hear() -> None:
            while True:
                await stream.read(65536)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            for _ in range(18):
                await stream.write(NAME * (100_000 // len(NAME)))
            nursery.cancel_scope.cancel()


async def questions(victim: Victim) -> None:
    """Eight strangers with keys, welcomed as who looks on, each with eight questions at once."""
    async with trio.open_nursery() as nursery:
        for number in range(STRANGERS_WHO_ASK):
            nursery.start_soon(_question, victim, b"asks %d" % number)


async def _question(victim: Victim, seed: bytes) -> None:
    genesis = parse(str(victim.genesis), victim.genesis.read_text())
    clock, keys = SystemClock(), NodeKeys.from_seed(seed)
    log = EventLog(clock.wall_ns)
    config = NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",), websocket=False)
    transport = Libp2pTransport(keys.ed25519_seed, dht_namespace(genesis.chain_id), config)
    directory = Directory(trio.current_time, genesis.peer_ids, log)
    own = OwnRecord(keys, transport.addresses, Role.CLOUD, (), clock)
    standing = OwnStanding(own.current_bytes, lambda: 0)
    hello = Hello(transport, directory, clock, log, genesis.chain_id, standing, config)
    transport.guard(hello.door, OPEN_PROTOCOLS, lambda _peer_id, _fault: None, directory.is_member)
    transport.set_handler(protocols.HELLO, hello.serve)
    asking = Requests(transport, directory, log)
    # The names of final blocks are no secret: whoever asks for pages learns them.
    blocks = sorted((victim.genesis.parent / "chain" / "blocks").iterdir())

    async def ask(peer_id: PeerId, at: int) -> None:
        while True:
            at += STRANGERS_WHO_ASK
            block_id = bytes.fromhex(blocks[at % len(blocks)].name)
            with suppress(Unavailable):
                await asking.ask(peer_id, REQUEST, block_id, 2**24)
            await trio.sleep(1 / REQUESTS_PER_S_MAX)

    async with trio.open_nursery() as nursery:
        await nursery.start(transport.run)
        peer_id = await transport.dial(Address(victim.address))
        for number in range(REQUESTS_PER_PEER_MAX):
            nursery.start_soon(ask, peer_id, number)


async def _again(attack: Attack, victim: Victim) -> None:
    while True:
        with trio.move_on_after(30):
            try:
                await attack(victim)
            except* THROWN_OUT:
                pass
        await trio.sleep(PAUSE_S)


# One after another, on a cluster that must go on; see tests/alone/test_besieged_cluster.py.
SIEGE: tuple[Attack, ...] = (
    silent_sockets,
    dead_streams,
    endless_names,
    questions,
    guest_attacks.one_name_with_many_transport_keys,
    guest_attacks.silent_questions_and_bad_gossip,
)


class Besieger:
    """A process that attacks `address` in the way that it is told."""

    def __init__(self, address: str, genesis: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, address, str(genesis)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._heard()

    @contextmanager
    def at_work(self, attack: Attack) -> Iterator[None]:
        """From the attack's begin until all of its connections are closed."""
        self._say(attack.__name__)
        try:
            yield
        finally:
            self._say("stop")

    def cpu_s(self) -> float:
        """What it has used of the machine so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _say(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        self._heard()

    def _heard(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "done\n", "the attacker has died"


async def _obey(victim: Victim) -> None:
    attacks = {attack.__name__: attack for attack in SIEGE}
    orders = trio.wrap_file(sys.stdin)
    while True:
        sys.stdout.write("done\n")
        sys.stdout.flush()
        order = (await orders.readline()).strip()
        if not order:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_again, attacks[order], victim)
            sys.stdout.write("done\n")
            sys.stdout.flush()
            await orders.readline()
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    trio.run(_obey, Victim(sys.argv[1], Path(sys.argv[2])))
