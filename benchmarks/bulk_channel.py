"""What a byte costs on the bulk channel, as a ratio to raw trio TCP in the same run.

    python benchmarks/bulk_channel.py [--mib 256] [--blob-mb 10] [--repeat 5] [--json]

1. raw: one process pours plain bytes into another over loopback, with the channel's own socket
   options, read into one buffer;
2. frames: the same bytes as AEAD frames of the bulk channel, handshake aside;
3. blob: one blob through the exchange: manifest, chunks, blake3 of each, written and synced; the
   same bytes are then written and synced without a network, for what the disk alone takes;
4. mesh: four processes, each fetches the blobs of the three others at once.

Files go to the system's temporary directory (TMPDIR). Wall times are medians of the repetitions;
CPU seconds are the receiving process's own.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import trio

from daa_dag.chunking import cut, manifest_of
from daa_dag.ids import BlobRoot, ChainId, NodeId
from daa_node.adapters.bulk_channel import BulkChannel
from daa_node.adapters.bulk_door import BulkDoor
from daa_node.adapters.bulk_sockets import tune
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.keys import NodeKeys
from daa_node.identity.session import Local
from daa_node.network.blob_exchange import BlobFetcher, Want
from daa_node.network.blob_server import BlobServer
from daa_node.network.session_pool import Source
from daa_node.seams import ByteStream, FrameStream, PeerId, StreamHandler

MIB = 1024 * 1024
CHAIN = ChainId(bytes(32))
MESH = 4
KIND = "updates"
DEADLINE_S = 60.0


class Entropy:
    def bytes(self, size_bytes: int) -> bytes:
        return os.urandom(size_bytes)


class ControlStream:
    """A plain socket in place of libp2p's stream: the handshake costs the same on either."""

    def __init__(self, stream: trio.SocketStream, peer_id: PeerId) -> None:
        self._stream = stream
        self._peer_id = peer_id

    @property
    def peer_id(self) -> PeerId:
        return self._peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(payload)

    async def receive_some(self, size_bytes_max: int) -> bytes:
        return bytes(await self._stream.receive_some(size_bytes_max))

    async def aclose(self) -> None:
        await self._stream.aclose()


class ControlTransport:
    """The part of the Transport seam that the bulk channel uses, between trusted processes."""

    def __init__(self, peer_id: PeerId) -> None:
        self.peer_id = peer_id
        self.ports: dict[PeerId, int] = {}
        self.bulk_port = 0
        self._handlers: dict[str, StreamHandler] = {}

    async def serve(self, nursery: trio.Nursery) -> int:
        listeners = await nursery.start(partial(trio.serve_tcp, self._accept, 0, host="127.0.0.1"))
        port: int = listeners[0].socket.getsockname()[1]
        return port

    async def _accept(self, stream: trio.SocketStream) -> None:
        (size_bytes,) = struct.unpack("!B", await stream.receive_some(1))
        peer_id = PeerId((await stream.receive_some(size_bytes)).decode())
        (handler,) = self._handlers.values()
        await handler(ControlStream(stream, peer_id))

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", self.ports[peer_id])
        except OSError as fault:
            raise Unavailable(str(fault)) from None
        name = self.peer_id.encode()
        await stream.send_all(struct.pack("!B", len(name)) + name)
        return ControlStream(stream, peer_id)

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        self._handlers[protocol] = handler

    def addresses(self) -> list[str]:
        return [f"/ip4/127.0.0.1/tcp/{self.bulk_port}"]


def keys_of(number: int) -> NodeKeys:
    return NodeKeys.from_seed(b"bench %d" % number)


def source_of(number: int) -> Source:
    keys = keys_of(number)
    return Source(keys.node_id, keys.peer_id)


def accuse(node: NodeId | PeerId, fault: PeerFault) -> None:
    raise AssertionError(f"{node!r}: {fault}")


class Node:
    """One process's end: a channel, and a way to meet the others through the parent's pipe."""

    def __init__(self, number: int, pipe: Connection) -> None:
        self.keys = keys_of(number)
        self.pipe = pipe
        self.transport = ControlTransport(self.keys.peer_id)
        known = {source_of(i).peer_id: source_of(i).node_id for i in range(MESH)}
        self._door = BulkDoor()
        self.bulk = BulkChannel(
            Local(CHAIN, self.keys),
            self.transport,  # type: ignore[arg-type]  # only what the channel calls
            Entropy(),
            known.get,
            accuse,
            lambda _peer: "127.0.0.1",
            self._door,
        )

    @asynccontextmanager
    async def running(
        self, handler: Callable[[FrameStream], Awaitable[None]]
    ) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            self.bulk.set_handler(handler, lambda _peer: True)
            await nursery.start(self.bulk.run)
            take = partial(trio.serve_tcp, self._take, 0, host="127.0.0.1")
            (listener,) = await nursery.start(take)
            self.transport.bulk_port = listener.socket.getsockname()[1]
            await self.say(await self.transport.serve(nursery))
            ports = await self.hear()
            self.transport.ports = {source_of(i).peer_id: p for i, p in enumerate(ports)}
            yield
            nursery.cancel_scope.cancel()

    async def _take(self, stream: trio.SocketStream) -> None:
        await self._door.on_socket(stream, lambda: None)

    async def say(self, words: object) -> None:
        self.pipe.send(words)

    async def hear(self) -> list[int]:
        words: list[int] = await trio.to_thread.run_sync(self.pipe.recv)
        return words


async def pour_frames(size_bytes: int, stream: FrameStream) -> None:
    payload = os.urandom(MIB)
    while await stream.receive_frame() is not None:
        for _ in range(size_bytes // MIB):
            await stream.send_frame(payload)


async def pour_raw(size_bytes: int, stream: trio.SocketStream) -> None:
    tune(stream)
    payload = os.urandom(MIB)
    while await stream.receive_some(1):
        for _ in range(size_bytes // MIB):
            await stream.send_all(payload)


Measured = list[tuple[float, float]]  # wall and CPU seconds of each repetition


async def timed(repeat: int, work: Callable[[], Awaitable[None]]) -> Measured:
    times = []
    for _ in range(repeat):
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        await work()
        times.append((time.perf_counter() - wall_s, time.process_time() - cpu_s))
    return times


async def stream_node(number: int, pipe: Connection, size_bytes: int, repeat: int) -> None:
    """Process 0 pours, process 1 reads: raw, then frames."""
    node = Node(number, pipe)
    async with node.running(partial(pour_frames, size_bytes)), trio.open_nursery() as nursery:
        if number == 0:
            listeners = await nursery.start(
                partial(trio.serve_tcp, partial(pour_raw, size_bytes), 0, host="127.0.0.1")
            )
            await node.say(listeners[0].socket.getsockname()[1])
            await node.hear()
        else:
            (port,) = await node.hear()
            raw = await trio.open_tcp_stream("127.0.0.1", port)
            tune(raw)
            buffer = memoryview(bytearray(MIB))

            async def read_raw() -> None:
                await raw.send_all(b"!")
                left = size_bytes
                while left:
                    left -= await raw.socket.recv_into(buffer[: min(left, MIB)])

            stream = await node.bulk.open(source_of(0).peer_id)

            async def read_frames() -> None:
                await stream.send_frame(b"!")
                for _ in range(size_bytes // MIB):
                    assert await stream.receive_frame()

            for work in (read_raw, read_frames):
                await work()  # warm: sockets grow their windows once
            await node.say({"raw": await timed(repeat, read_raw)})
            await node.say({"frames": await timed(repeat, read_frames)})
            await stream.aclose()
        nursery.cancel_scope.cancel()


async def blob_node(
    number: int, pipe: Connection, blob_bytes: int, repeat: int, nodes: int
) -> None:
    """Every process serves a blob a repetition and fetches the others' (process 0 alone if two)."""
    with tempfile.TemporaryDirectory() as folder:
        store = DiskBlobStore(Path(folder) / "work")
        roots = [await make_blob(store, number, i, blob_bytes) for i in range(repeat)]
        node = Node(number, pipe)
        server = BlobServer({KIND: store}, None, bool)
        fetcher = BlobFetcher(node.keys.node_id, node.bulk, accuse)
        async with node.running(server.serve):
            await node.say(roots)
            everything: list[list[BlobRoot]] = await node.hear()  # type: ignore[assignment]
            others = [i for i in range(nodes) if i != number]
            if nodes == 2 and number:
                others = []

            async def fetch_all(turn: int) -> None:
                async with trio.open_nursery() as nursery:
                    for i in others:
                        want = Want(KIND, everything[i][turn], blob_bytes)
                        nursery.start_soon(
                            fetcher.fetch_blob, want, [source_of(i)], store, DEADLINE_S
                        )

            for turn in range(repeat):
                await node.say("ready")
                await node.hear()
                await node.say(await timed(1, partial(fetch_all, turn)))
            if nodes == 2 and not number:
                await node.say(await timed(repeat, partial(write_alone, folder, blob_bytes)))
            await node.hear()
            await fetcher.aclose()


async def make_blob(store: DiskBlobStore, number: int, turn: int, size_bytes: int) -> BlobRoot:
    payload = os.urandom(size_bytes)
    manifest = manifest_of(payload, cut([size_bytes]))
    writer = await store.begin_blob(KIND, manifest)
    for index in writer.missing():
        at = manifest.offsets[index]
        await writer.write_chunk(index, payload[at : at + manifest.sizes[index]])
    await writer.commit()
    return manifest.root


async def write_alone(folder: str, size_bytes: int) -> None:
    path = Path(folder) / "alone"
    with open(path, "wb") as file:
        file.write(bytes(size_bytes))
        file.flush()
        os.fdatasync(file.fileno())
    path.unlink()


def child(
    work: Callable[..., Awaitable[None]], number: int, pipe: Connection, args: tuple[int, ...]
) -> None:
    trio.run(partial(work, number, pipe, *args))


class Cluster:
    """Processes of this benchmark, and a pipe to each."""

    def __init__(
        self, count: int, work: Callable[..., Awaitable[None]], args: tuple[int, ...]
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes = []
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=child, args=(work, number, theirs, args))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.tell(self.ask())  # where each one's control stream is

    def tell(self, words: object) -> None:
        for pipe in self.pipes:
            pipe.send(words)

    def ask(self) -> list[object]:
        return [pipe.recv() for pipe in self.pipes]

    def join(self) -> None:
        for process in self.processes:
            process.join()
            assert process.exitcode == 0


def median(measured: Measured) -> tuple[float, float]:
    walls, cpus = zip(*measured, strict=True)
    return statistics.median(walls), statistics.median(cpus)


def streams(mib: int, repeat: int) -> dict[str, tuple[float, float]]:
    cluster = Cluster(2, stream_node, (mib * MIB, repeat))
    cluster.pipes[1].send([cluster.pipes[0].recv()])
    raw, frames = cluster.pipes[1].recv(), cluster.pipes[1].recv()
    cluster.pipes[0].send("done")
    cluster.join()
    return {"raw": median(raw["raw"]), "frames": median(frames["frames"])}


def blobs(nodes: int, blob_bytes: int, repeat: int) -> dict[str, object]:
    """Wall seconds until the last process has everything, and CPU seconds of all together."""
    cluster = Cluster(nodes, blob_node, (blob_bytes, repeat, nodes))
    cluster.tell(cluster.ask())  # the roots of what each one serves
    walls, cpus = [], []
    for _ in range(repeat):
        cluster.ask()
        started_s = time.perf_counter()
        cluster.tell("go")
        done = [measured[0] for measured in cluster.ask()]  # type: ignore[index]
        walls.append(time.perf_counter() - started_s)
        cpus.append([cpu_s for _, cpu_s in done])
    result: dict[str, object] = {
        "first_wall_s": walls[0],
        "wall_s": statistics.median(walls[1:] or walls),
        "cpu_s": [statistics.median(column) for column in zip(*cpus, strict=True)],
    }
    if nodes == 2:
        result["disk_alone_s"] = median(cluster.pipes[0].recv())[0]
    cluster.tell("stop")
    cluster.join()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--blob-mb", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    streamed = streams(options.mib, options.repeat)
    one = blobs(2, options.blob_mb * 1_000_000, options.repeat)
    mesh = blobs(MESH, options.blob_mb * 1_000_000, options.repeat)
    (raw_s, raw_cpu_s), (frames_s, frames_cpu_s) = streamed["raw"], streamed["frames"]
    report = {
        "schema_version": 1,
        "mib": options.mib,
        "raw_mib_per_s": options.mib / raw_s,
        "raw_cpu_s": raw_cpu_s,
        "frames_mib_per_s": options.mib / frames_s,
        "frames_cpu_s": frames_cpu_s,
        "frames_of_raw": raw_s / frames_s,
        "blob_mb": options.blob_mb,
        "blob": one,
        "mesh": mesh,
    }
    if options.json:
        print(json.dumps(report))
        return
    print(f"raw TCP        {report['raw_mib_per_s']:7.0f} MiB/s   {raw_cpu_s:.3f} CPU s")
    print(f"sealed frames  {report['frames_mib_per_s']:7.0f} MiB/s   {frames_cpu_s:.3f} CPU s")
    print(f"ratio          {report['frames_of_raw']:7.2f} of raw")
    print(f"one blob of {options.blob_mb} MB from one peer: {one}")
    print(f"{MESH} processes, each fetches {MESH - 1} blobs of {options.blob_mb} MB: {mesh}")


if __name__ == "__main__":
    main()
