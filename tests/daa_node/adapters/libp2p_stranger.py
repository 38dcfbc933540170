"""A peer that speaks the protocols by hand, and therefore badly when a test wants it."""

import os
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio
from libp2p.abc import ISecureConn
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.x25519 import create_new_key_pair as create_new_x25519_key_pair
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.protocol_muxer.multiselect_client import MultiselectClient
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.security.noise.transport import PROTOCOL_ID, Transport
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX_ID
from libp2p.stream_muxer.yamux.yamux import Yamux
from multiaddr import Multiaddr

from daa_node.adapters.libp2p_sockets import SocketStream, place_of
from daa_node.adapters.libp2p_upgrade import ExactReader, Upgrader
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.adapters.yamux_streams import YamuxStream

ROOT = Path(__file__).parents[3]


class Target:
    """A node that listens, wherever it runs."""

    def __init__(self, address: str) -> None:
        self.address = Multiaddr(address)
        self.peer_id = ID.from_base58(address.rpartition("/p2p/")[2])


class Subject(Target):
    """The attacked process."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        super().__init__(address)
        self.process = process

    @property
    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) / 1024

    async def lives(self, within_s: float = 120.0) -> bool:
        """Whether an honest newcomer gets its echo in time."""
        answer = b""
        with trio.move_on_after(within_s):
            try:
                async with session_with(self) as session:
                    stream = await opened(session, "/echo")
                    await stream.write(b"alive?")
                    answer = await stream.read()
            except* (OSError, BaseLibp2pError, trio.BrokenResourceError):
                answer = b""
        return answer == b"alive?"


@contextmanager
def subject(kind: str) -> Iterator[Subject]:
    """`kind` is bare or hardened."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.daa_node.adapters.libp2p_subject", kind],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield Subject(process, process.stdout.readline().strip())
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


async def plain_socket(target: Target) -> trio.SocketStream:
    return await trio.open_tcp_stream(*place_of(target.address)[1])


async def secured(
    target: Target, seed: bytes | None = None, key_pair: KeyPair | None = None
) -> ISecureConn:
    """Past noise, before any muxer."""
    key_pair = key_pair or create_new_key_pair(seed or os.urandom(32))
    noise = Transport(key_pair, noise_privkey=create_new_x25519_key_pair().private_key)
    upgrader = Upgrader({TProtocol(PROTOCOL_ID): noise}, {TProtocol(YAMUX_ID): Yamux})
    raw = RawConnection(ExactReader(SocketStream(await plain_socket(target))), True)
    return await upgrader.upgrade_security(raw, True, target.peer_id)


async def muxed(target: Target, seed: bytes | None = None) -> ISecureConn:
    """Past the agreement on yamux: whatever is written now is read as frames."""
    conn = await secured(target, seed)
    await MultiselectClient().select_one_of([TProtocol(YAMUX_ID)], MultiselectCommunicator(conn), 5)
    return conn


@asynccontextmanager
async def session_with(target: Target, seed: bytes | None = None) -> AsyncIterator[YamuxSession]:
    session = YamuxSession(await muxed(target, seed), target.peer_id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.start)
        await session.event_started.wait()
        try:
            yield session
        finally:
            nursery.cancel_scope.cancel()


async def opened(session: YamuxSession, protocol: str) -> YamuxStream:
    stream = await session.open_stream()
    await MultiselectClient().select_one_of(
        [TProtocol(protocol)], MultiselectCommunicator(stream), 5
    )
    return stream


def frame(kind: int, flags: int, stream_id: int, length: int, payload: bytes = b"") -> bytes:
    return struct.pack("!BBHII", 0, kind, flags, stream_id, length) + payload
