"""The bulk channel with real libp2p below it: sessions, frames on the socket, frames relayed."""

import os
import socket

import pytest
import trio

from daa_dag.ids import ChainId, NodeId
from daa_node.adapters.bulk_channel import BulkChannel
from daa_node.adapters.bulk_dialer import EndpointDialer
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.adapters.sealed_stream import RelayPipe, SealedStream, SocketPipe
from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys
from daa_node.identity.session import Local
from daa_node.network.config import NetworkConfig
from daa_node.seams import FrameStream, PeerId
from daa_node.wire.limits import FRAME_BYTES_MAX

CHAIN = ChainId(b"c" * 32)
ALICE, BOB = NodeKeys.from_seed(b"alice"), NodeKeys.from_seed(b"bob")
KNOWN: dict[PeerId, NodeId] = {keys.peer_id: keys.node_id for keys in (ALICE, BOB)}
FRAMES = 16


class Entropy:
    def bytes(self, size_bytes: int) -> bytes:
        return os.urandom(size_bytes)


def accuse(peer_id: PeerId, fault: PeerFault) -> None:
    raise AssertionError(f"{peer_id}: {fault}")


def node(
    keys: NodeKeys, listen: str | None, websocket: bool = True, announce: tuple[str, ...] = ()
) -> tuple[Libp2pTransport, BulkChannel]:
    """One that listens there; without it on loopback, where no bulk is let in."""
    where = listen or "127.0.0.1:0"
    config = NetworkConfig(listen=(where,), websocket=websocket, announce=announce)
    transport = Libp2pTransport(keys.ed25519_seed, "bulk-test", config)
    door = None if listen is None else transport.bulk_door
    channel = BulkChannel(
        Local(CHAIN, keys),
        transport,
        Entropy(),
        KNOWN.get,
        accuse,
        transport.doorbell.host_of,
        door,
    )
    return transport, channel


async def pour(stream: FrameStream) -> None:
    while (request := await stream.receive_frame()) is not None:
        for _ in range(FRAMES):
            await stream.send_frame(request * (FRAME_BYTES_MAX // len(request)))


@pytest.mark.parametrize(
    ("listen", "ours", "pipe", "way"),
    [
        ("127.0.0.1:0", None, SocketPipe, "dialled"),
        ("/dns4/localhost/tcp/0", None, SocketPipe, "dialled"),
        (None, "127.0.0.1:0", SocketPipe, "dialled_by_peer"),
        (None, None, RelayPipe, "over_stream"),
    ],
)
async def test_frames_cross_and_a_slow_reader_loses_none(
    listen: str | None,
    ours: str | None,
    pipe: type[SocketPipe] | type[RelayPipe],
    way: str,
) -> None:
    near, alice = node(ALICE, ours)
    far, bob = node(BOB, listen)
    alice.set_handler(pour, lambda _peer_id: True)
    bob.set_handler(pour, lambda _peer_id: True)
    ways: list[tuple[PeerId, str]] = []
    alice.on_opened = lambda peer_id, way: ways.append((peer_id, way))
    async with trio.open_nursery() as nursery:
        for runs in (near.run, far.run, alice.run, bob.run):
            await nursery.start(runs)
        with trio.fail_after(120):
            await near.dial(far.addresses()[0])
            stream = await alice.open(BOB.peer_id)
            assert isinstance(stream, SealedStream)
            assert isinstance(stream._pipe, pipe)
            assert ways == [(BOB.peer_id, way)]
            words = os.urandom(1024)
            await stream.send_frame(words)
            # longer than yamux bears a full window: its writer would give the stream up after 5 s
            await trio.sleep(6.0 if pipe is RelayPipe else 0.0)
            for _ in range(FRAMES):
                assert await stream.receive_frame() == words * (FRAME_BYTES_MAX // 1024)
            await stream.aclose()
            # frames count as bulk, and not once more as bytes of the stream that carries them
            carried = near.carried.of_members + near.carried.of_strangers
            assert 0 < carried < 0.1 * FRAMES * FRAME_BYTES_MAX
        nursery.cancel_scope.cancel()


def behind_a_firewall(*channels: BulkChannel, lets_in: set[int]) -> None:
    """What they dial elsewhere is dropped."""

    async def connect(host: str, port: int) -> trio.SocketStream:
        if port not in lets_in:
            await trio.sleep_forever()
        return await trio.open_tcp_stream(host, port)

    for channel in channels:
        channel._dialer = EndpointDialer(connect)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("announce", [(), ("localhost:{port}",)])
@pytest.mark.parametrize("websocket", [True, False])
async def test_one_open_port_is_enough_for_bulk_both_ways(
    websocket: bool, announce: tuple[str, ...]
) -> None:
    """Of a validator's firewall; the trainer at home cannot be dialled at all."""
    port = free_port()
    told = tuple(text.format(port=port) for text in announce)
    at_home, trainer = node(ALICE, None)
    in_a_cloud, validator = node(BOB, f"127.0.0.1:{port}", websocket, told)
    for channel in (trainer, validator):
        channel.set_handler(pour, lambda _peer_id: True)
    ways: list[str] = []
    trainer.on_opened = validator.on_opened = lambda _peer_id, way: ways.append(way)
    async with trio.open_nursery() as nursery:
        for runs in (at_home.run, in_a_cloud.run, trainer.run, validator.run):
            await nursery.start(runs)
        behind_a_firewall(trainer, validator, lets_in={port})
        with trio.fail_after(30):
            await at_home.dial(in_a_cloud.addresses()[0])
            for reader, source in ((trainer, BOB), (validator, ALICE)):
                stream = await reader.open(source.peer_id)
                await stream.send_frame(bytes(1024))
                for _ in range(FRAMES):
                    assert await stream.receive_frame() is not None
                await stream.aclose()
        assert ways == ["dialled", "dialled_by_peer"]
        nursery.cancel_scope.cancel()
