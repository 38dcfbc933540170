"""Blobs over the bulk seam: real stores and servers, peers that lie, stall, stop or hold a part."""

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from daa_dag.chunking import CHUNK_BYTES_MAX, Manifest, cut, manifest_of
from daa_dag.fetch import WINDOW_BYTES_START
from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.errors import PeerFault, StorageFailed, Unavailable
from daa_node.network import blob_exchange
from daa_node.network.blob_exchange import (
    ANSWER_TIMEOUT_S,
    PATIENCE_S,
    BlobFetcher,
    Want,
)
from daa_node.network.blob_server import CHUNKS, MANIFESTS, SNAPSHOTS, BlobServer
from daa_node.network.session_pool import (
    IDLE_REUSE_S,
    SESSIONS_PER_SOURCE_MAX,
    SessionPool,
    Source,
)
from daa_node.seams import BlobWriter, FrameHandler, FrameStream, PeerId
from daa_node.wire.blob_messages import (
    CHUNKS_PER_REQUEST_MAX,
    Chunks,
    ChunksRequest,
    FindRequest,
    Found,
    Refusal,
    Refused,
    decode_answer,
    decode_request,
    encode_chunks,
    encode_found,
    encode_refused,
    encode_request,
)

KIND = "updates"
PAYLOAD = os.urandom(10 * CHUNK_BYTES_MAX + 77)
MANIFEST = manifest_of(PAYLOAD, cut([len(PAYLOAD)]))
CHUNK_COUNT = len(MANIFEST.sizes)
START_CHUNKS = WINDOW_BYTES_START // CHUNK_BYTES_MAX
LOCAL = NodeId(b"l" * 32)


def chunk(index: int) -> bytes:
    at = MANIFEST.offsets[index]
    return PAYLOAD[at : at + MANIFEST.sizes[index]]


def source(name: str) -> Source:
    return Source(NodeId(name.encode().ljust(32, b".")), PeerId(name))


class MemoryFrames:
    """One end of a session that loses nothing and holds one frame a direction."""

    def __init__(
        self,
        node_id: NodeId,
        out: trio.MemorySendChannel[bytes],
        into: trio.MemoryReceiveChannel[bytes],
    ) -> None:
        self._node_id = node_id
        self._out = out
        self._into = into

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        try:
            await self._out.send(bytes(payload))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Unavailable("session cut") from None

    async def receive_frame(self) -> bytes | None:
        try:
            return await self._into.receive()
        except trio.EndOfChannel:
            return None
        except trio.ClosedResourceError:
            raise Unavailable("session cut") from None

    async def aclose(self) -> None:
        await self._out.aclose()
        await self._into.aclose()


class MemoryBulk:
    """A BulkTransport whose peers are handlers in this process."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.peers: dict[PeerId, FrameHandler] = {}
        self.opened: list[PeerId] = []

    def add(self, name: str, handler: FrameHandler) -> Source:
        self.peers[source(name).peer_id] = handler
        return source(name)

    async def open(self, peer_id: PeerId) -> FrameStream:
        if peer_id not in self.peers:
            raise Unavailable("not connected")
        self.opened.append(peer_id)
        to_peer, from_us = trio.open_memory_channel[bytes](1)
        to_us, from_peer = trio.open_memory_channel[bytes](1)
        theirs = MemoryFrames(LOCAL, to_us, from_us)
        self._nursery.start_soon(self._handle, self.peers[peer_id], theirs)
        return MemoryFrames(source(peer_id).node_id, to_peer, from_peer)

    async def _handle(self, handler: FrameHandler, stream: MemoryFrames) -> None:
        try:
            await handler(stream)
        except (PeerFault, Unavailable):
            pass
        finally:
            await stream.aclose()

    def set_handler(self, handler: FrameHandler) -> None:
        raise AssertionError("peers are added by name")


class Scene:
    """A fetcher with an empty store, and peers around it."""

    def __init__(self, nursery: trio.Nursery, directory: Path) -> None:
        self.directory = directory
        self.bulk = MemoryBulk(nursery)
        self.store = DiskBlobStore(directory / "local")
        self.faults: list[tuple[NodeId, str]] = []
        self.fetcher = BlobFetcher(
            LOCAL, self.bulk, lambda node, fault: self.faults.append((node, fault.reason))
        )

    async def honest(self, name: str) -> Source:
        store = DiskBlobStore(self.directory / name)
        await fill(await store.begin_blob(KIND, MANIFEST))
        return self.bulk.add(name, BlobServer({KIND: store}, None).serve)

    async def fetch(self, sources: Sequence[Source], deadline_s: float = 60.0) -> Manifest:
        want = Want(KIND, MANIFEST.root, len(PAYLOAD))
        return await self.fetcher.fetch_blob(want, sources, self.store, deadline_s)

    async def check(self) -> None:
        view = await self.store.view_blob(KIND, MANIFEST.root)
        assert bytes(view) == PAYLOAD


async def fill(writer: BlobWriter) -> None:
    for index in writer.missing():
        await writer.write_chunk(index, chunk(index))
    await writer.commit()


Play = Callable[[Scene], Awaitable[None]]


def on_stage(directory: Path, play: Play, virtual: bool = False) -> float:
    """Run the play; the seconds that passed on its clock."""

    async def run() -> float:
        async with trio.open_nursery() as nursery:
            scene = Scene(nursery, directory)
            started_s = trio.current_time()
            with trio.fail_after(300 if virtual else 20):
                await play(scene)
            await scene.fetcher.aclose()
            nursery.cancel_scope.cancel()
        return trio.current_time() - started_s

    # threads do the disk work: the clock may only jump when they have had time to answer
    clock = trio.testing.MockClock(autojump_threshold=0.03) if virtual else None
    seconds: float = trio.run(run, clock=clock)
    return seconds


Reply = Callable[[ChunksRequest], Awaitable[bytes | None]]


def scripted(reply: Reply, manifest: Manifest = MANIFEST) -> FrameHandler:
    """A peer that finds the blob honestly, and then answers as `reply` says; None: never."""

    async def serve(stream: FrameStream) -> None:
        while (frame := await stream.receive_frame()) is not None:
            request = decode_request(frame)
            if isinstance(request, FindRequest):
                size_bytes = len(manifest.encode()) if request.with_manifest else 0
                await stream.send_frame(encode_found(size_bytes, None))
                if request.with_manifest:
                    await stream.send_frame(manifest.encode())
                continue
            answer = await reply(request)
            if answer is None:
                await trio.sleep_forever()
            else:
                await stream.send_frame(answer)

    return serve


async def truth(request: ChunksRequest) -> bytes:
    return encode_chunks([chunk(index) for index in request.indices])


async def poison(request: ChunksRequest) -> bytes:
    return encode_chunks([bytes(MANIFEST.sizes[index]) for index in request.indices])


async def silence(request: ChunksRequest) -> None:
    return None


def test_a_blob_comes_from_one_peer_and_is_whole(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        assert await scene.fetch([await scene.honest("alice")]) == MANIFEST
        await scene.check()
        assert scene.faults == []
        assert scene.fetcher.received_bytes == len(PAYLOAD)

    on_stage(tmp_path, play)


def test_a_blob_that_we_hold_is_not_asked_for(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        alice = await scene.honest("alice")
        await scene.fetch([alice])
        scene.bulk.peers.clear()
        assert await scene.fetch([alice]) == MANIFEST
        assert len(scene.bulk.opened) == 1

    on_stage(tmp_path, play)


def test_a_session_is_kept_for_the_next_fetch_and_reopened_when_it_died(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        alice = await scene.honest("alice")
        for fetched in range(3):
            await scene.fetch([alice])
            await scene.store.delete_blob(KIND, MANIFEST.root)
            assert len(scene.bulk.opened) == 1, fetched
        for stream in scene.fetcher._pool._idle:
            await stream.aclose()  # as a peer's restart would
        await scene.fetch([alice])
        assert len(scene.bulk.opened) == 2
        assert scene.faults == []

    on_stage(tmp_path, play)


def test_a_liar_and_a_staller_cost_seconds_not_the_blob(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        staller = scene.bulk.add("staller", scripted(silence))
        liar = scene.bulk.add("liar", scripted(poison))
        await scene.fetch([staller, liar, await scene.honest("alice")])
        await scene.check()
        assert scene.faults == [(liar.node_id, "chunk-mismatch")] * 2

    assert on_stage(tmp_path, play, virtual=True) < 3 * PATIENCE_S


def test_a_liar_alone_is_named_and_nothing_of_it_reaches_the_disk(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        liar = scene.bulk.add("liar", scripted(poison))
        with pytest.raises(Unavailable, match="lied"):
            await scene.fetch([liar])
        assert {reason for _, reason in scene.faults} == {"chunk-mismatch"}
        writer = await scene.store.begin_blob(KIND, MANIFEST)
        assert len(writer.missing()) == CHUNK_COUNT

    on_stage(tmp_path, play)


def test_a_staller_alone_is_given_up_and_tried_again_then_reported(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        staller = scene.bulk.add("staller", scripted(silence))
        with pytest.raises(Unavailable, match="no answer"):
            await scene.fetch([staller], deadline_s=200)
        assert len(scene.bulk.opened) == blob_exchange.ATTEMPTS_MAX

    seconds = on_stage(tmp_path, play, virtual=True)
    assert seconds > ANSWER_TIMEOUT_S * blob_exchange.ATTEMPTS_MAX


def test_the_deadline_holds_whatever_peers_do(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        with pytest.raises(Unavailable, match="not whole after 2"):
            await scene.fetch([scene.bulk.add("staller", scripted(silence))], deadline_s=2.0)

    assert on_stage(tmp_path, play, virtual=True) == pytest.approx(2.0, abs=0.2)


def test_a_fetch_resumes_where_a_killed_one_stopped(tmp_path: Path) -> None:
    asked: list[int] = []
    held: list[tuple[int, ...]] = []

    async def noted(request: ChunksRequest) -> bytes:
        asked.extend(request.indices)
        return await truth(request)

    async def once(request: ChunksRequest) -> bytes | None:
        held.append(request.indices)
        return await truth(request) if len(held) == 1 else None

    async def first(scene: Scene) -> None:
        with pytest.raises(Unavailable):
            await scene.fetch([scene.bulk.add("dying", scripted(once))], deadline_s=0.5)

    async def second(scene: Scene) -> None:
        await scene.fetch([scene.bulk.add("alice", scripted(noted))])
        await scene.check()

    on_stage(tmp_path, first)
    on_stage(tmp_path, second)
    assert sorted(asked) == [i for i in range(CHUNK_COUNT) if i not in held[0]]
    assert len(asked) == CHUNK_COUNT - 4


def test_a_session_cut_in_the_middle_is_reopened(tmp_path: Path) -> None:
    cuts = 1

    async def cutting(request: ChunksRequest) -> bytes:
        nonlocal cuts
        if 9 in request.indices and cuts:
            cuts -= 1
            raise Unavailable("cut")
        return await truth(request)

    async def play(scene: Scene) -> None:
        await scene.fetch([scene.bulk.add("flaky", scripted(cutting))])
        await scene.check()
        assert len(scene.bulk.opened) == 2
        assert scene.faults == []

    on_stage(tmp_path, play)


def test_a_blob_over_the_limit_is_refused_before_any_chunk_is_asked_for(tmp_path: Path) -> None:
    async def never(request: ChunksRequest) -> bytes:
        raise AssertionError("asked for a chunk")

    async def play(scene: Scene) -> None:
        peer = scene.bulk.add("alice", scripted(never))
        want = Want(KIND, MANIFEST.root, len(PAYLOAD) - 1)
        with pytest.raises(PeerFault, match="too-large"):
            await scene.fetcher.fetch_blob(want, [peer], scene.store, 5)
        known = Want(KIND, MANIFEST.root, 1, MANIFEST)
        with pytest.raises(PeerFault, match="too-large"):
            await scene.fetcher.fetch_blob(known, [peer], scene.store, 5)
        assert scene.faults == []  # whoever named the root is at fault, not who serves it

    on_stage(tmp_path, play)


def test_a_manifest_of_another_blob_is_a_fault_and_another_peer_is_asked(tmp_path: Path) -> None:
    other = manifest_of(b"other", [5])

    async def play(scene: Scene) -> None:
        swapper = scene.bulk.add("swapper", scripted(truth, other))
        await scene.fetch([swapper, await scene.honest("alice")])
        await scene.check()
        assert scene.faults == [(swapper.node_id, "manifest-mismatch")]

    on_stage(tmp_path, play)


def test_a_manifest_that_contradicts_itself_is_its_makers_fault(tmp_path: Path) -> None:
    crooked = Manifest((5, 6), (Digest(bytes(32)), Digest(bytes(32))))

    async def play(scene: Scene) -> None:
        peer = scene.bulk.add("alice", scripted(truth, crooked))
        with pytest.raises(PeerFault, match="malformed-manifest"):
            await scene.fetcher.fetch_blob(Want(KIND, crooked.root, 99), [peer], scene.store, 5)

    on_stage(tmp_path, play)


def test_a_peer_that_lacks_the_blob_says_so_and_is_not_blamed(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        empty = DiskBlobStore(tmp_path / "empty")
        poor = scene.bulk.add("poor", BlobServer({KIND: empty}, None).serve)
        await scene.fetch([poor, await scene.honest("alice")])
        await scene.check()
        await scene.store.delete_blob(KIND, MANIFEST.root)
        with pytest.raises(Unavailable, match="unknown"):
            await scene.fetch([poor])
        want = Want("secrets", MANIFEST.root, len(PAYLOAD))
        with pytest.raises(Unavailable, match="unknown"):
            await scene.fetcher.fetch_blob(want, [poor], scene.store, 5)
        assert scene.faults == []

    on_stage(tmp_path, play)


def test_nobody_to_ask_is_unavailable_at_once(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        with pytest.raises(Unavailable, match="no source"):
            await scene.fetch([])
        with pytest.raises(Unavailable, match="not connected"):
            await scene.fetch([source("gone")])

    assert on_stage(tmp_path, play) < 2.0


def test_garbage_answers_are_faults_and_end_the_session(tmp_path: Path) -> None:
    garbage = [
        b"",
        b"\xff",
        b"\xff\xff" + bytes(10),
        os.urandom(3000),
        encode_found(0, None),
        encode_chunks([b"x"] * (CHUNK_COUNT + 1)),
        encode_chunks([None, None]) + b"x",
    ]

    async def play(scene: Scene) -> None:
        for number, answer in enumerate(garbage):

            async def noise(request: ChunksRequest, answer: bytes = answer) -> bytes:
                return answer

            peer = scene.bulk.add(f"noisy {number}", scripted(noise))
            with pytest.raises(Unavailable, match="malformed"):
                await scene.fetch([peer])
        assert [reason for _, reason in scene.faults] == ["malformed"] * len(garbage)
        assert not scene.fetcher._pool._idle

    on_stage(tmp_path, play)


def test_a_slow_disk_stops_the_reading_instead_of_filling_memory(tmp_path: Path) -> None:
    sent = 0

    chunks = [bytes([index]) * CHUNK_BYTES_MAX for index in range(64)]
    manifest = manifest_of(b"".join(chunks), [CHUNK_BYTES_MAX] * 64)

    async def counted(request: ChunksRequest) -> bytes:
        nonlocal sent
        sent += len(request.indices)
        return encode_chunks([chunks[index] for index in request.indices])

    class SlowWriter:
        def missing(self) -> list[int]:
            return list(range(64))

        async def write_chunk(self, index: int, payload: bytes) -> None:
            await trio.sleep_forever()

        async def commit(self) -> None: ...

    async def play(scene: Scene) -> None:
        async def begin(manifest: Manifest) -> BlobWriter:
            return SlowWriter()

        peer = scene.bulk.add("alice", scripted(counted, manifest))
        want = Want(KIND, manifest.root, manifest.size_bytes)
        with pytest.raises(Unavailable):
            await scene.fetcher.fetch(want, [peer], begin, 1.0)
        # one answer is being written, one posted, the rest is in the peer's hands
        assert sent <= 2 * START_CHUNKS < 64

    on_stage(tmp_path, play)


def test_a_disk_slower_than_our_patience_loses_no_chunk_and_blames_nobody(tmp_path: Path) -> None:
    written: set[int] = set()
    asked_at_once: list[int] = []

    async def counted(request: ChunksRequest) -> bytes:
        asked_at_once.append(len(request.indices))
        return await truth(request)

    class SlowWriter:
        def missing(self) -> list[int]:
            return list(range(CHUNK_COUNT))

        async def write_chunk(self, index: int, payload: bytes) -> None:
            await trio.sleep(2 * PATIENCE_S)
            written.add(index)

        async def commit(self) -> None:
            assert len(written) == CHUNK_COUNT

    async def play(scene: Scene) -> None:
        async def begin(manifest: Manifest) -> BlobWriter:
            return SlowWriter()

        peer = scene.bulk.add("alice", scripted(counted))
        want = Want(KIND, MANIFEST.root, len(PAYLOAD))
        await scene.fetcher.fetch(want, [peer], begin, 100.0)
        assert asked_at_once == [4, 4, 3]  # the peer was never slow: it is asked for no less

    on_stage(tmp_path, play, virtual=True)


def test_a_disk_that_fails_ends_the_fetch_with_its_own_error(tmp_path: Path) -> None:
    class FullWriter:
        def missing(self) -> list[int]:
            return list(range(CHUNK_COUNT))

        async def write_chunk(self, index: int, payload: bytes) -> None:
            raise StorageFailed("disk full")

        async def commit(self) -> None: ...

    async def play(scene: Scene) -> None:
        async def begin(manifest: Manifest) -> BlobWriter:
            return FullWriter()

        want = Want(KIND, MANIFEST.root, len(PAYLOAD))
        with pytest.raises(StorageFailed, match="disk full"):
            await scene.fetcher.fetch(want, [await scene.honest("alice")], begin, 5)
        assert scene.faults == []

    on_stage(tmp_path, play)


# Snapshots


async def snapshot(store: DiskBlobStore, indices: Sequence[int]) -> None:
    await store.put_record(MANIFESTS, MANIFEST.root.hex(), MANIFEST.encode())
    for index in indices:
        await store.put_record(CHUNKS, MANIFEST.digests[index].hex(), chunk(index))


def test_a_snapshot_comes_from_peers_that_hold_parts_of_it(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        sources = []
        for name, part in (("low", range(7)), ("high", range(5, CHUNK_COUNT))):
            store = DiskBlobStore(tmp_path / name)
            await snapshot(store, list(part))
            sources.append(scene.bulk.add(name, BlobServer({}, store).serve))
        want = Want(SNAPSHOTS, MANIFEST.root, len(PAYLOAD))
        assert await scene.fetcher.fetch_snapshot(want, sources, scene.store, 10) == MANIFEST
        for index in range(CHUNK_COUNT):
            name = MANIFEST.digests[index].hex()
            assert await scene.store.get_record(CHUNKS, name) == chunk(index)
        assert await scene.store.get_record(MANIFESTS, MANIFEST.root.hex()) is not None
        assert scene.faults == []

    on_stage(tmp_path, play)


def test_a_part_that_nobody_holds_is_named_as_unavailable_and_soon(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        store = DiskBlobStore(tmp_path / "part")
        await snapshot(store, [1, 2])
        part = scene.bulk.add("part", BlobServer({}, store).serve)
        want = Want(SNAPSHOTS, MANIFEST.root, len(PAYLOAD))
        with pytest.raises(Unavailable, match="cannot be had"):
            await scene.fetcher.fetch_snapshot(want, [part], scene.store, 10)
        assert len(await scene.store.record_names(CHUNKS)) == 2  # what there was is kept

    assert on_stage(tmp_path, play) < 5


# The server


async def converse(server: BlobServer, *requests: bytes) -> list[bytes]:
    """The frames that a session with these requests brings; faults are raised."""
    answers: list[bytes] = []
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        raised: list[PeerFault] = []

        async def guarded(stream: FrameStream) -> None:
            try:
                await server.serve(stream)
            except PeerFault as fault:
                raised.append(fault)

        bulk.add("server", guarded)
        stream = await bulk.open(PeerId("server"))
        for request in requests:
            await stream.send_frame(request)
            frame = await stream.receive_frame()
            if frame is not None:
                answers.append(frame)
        await stream.aclose()
    if raised:
        raise raised[0]
    return answers


async def shelf(tmp_path: Path) -> DiskBlobStore:
    store = DiskBlobStore(tmp_path / "shelf")
    await fill(await store.begin_blob(KIND, MANIFEST))
    return store


async def test_the_server_gives_what_is_asked_and_nothing_else(tmp_path: Path) -> None:
    server = BlobServer({KIND: await shelf(tmp_path)}, None)
    (frame,) = await converse(server, encode_request(ChunksRequest(KIND, MANIFEST.root, (1, 10))))
    answer = decode_answer(frame)
    assert isinstance(answer, Chunks)
    assert [bytes(p) for p in answer.payloads if p is not None] == [chunk(1), chunk(10)]
    assert server.sent_bytes == len(frame)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ChunksRequest(KIND, BlobRoot(bytes(32)), (0,)), Refusal.UNKNOWN),
        (ChunksRequest("states", MANIFEST.root, (0,)), Refusal.UNKNOWN),
        (ChunksRequest("../keys", MANIFEST.root, (0,)), Refusal.UNKNOWN),
        (FindRequest(SNAPSHOTS, MANIFEST.root, True), Refusal.UNKNOWN),
        (ChunksRequest(KIND, MANIFEST.root, (CHUNK_COUNT,)), Refusal.TOO_MUCH),
        (ChunksRequest(KIND, MANIFEST.root, tuple(range(5))), Refusal.TOO_MUCH),
    ],
)
async def test_what_the_server_will_not_do_it_refuses_by_name(
    tmp_path: Path, request_: ChunksRequest | FindRequest, reason: Refusal
) -> None:
    server = BlobServer({KIND: await shelf(tmp_path)}, None)
    (frame,) = await converse(server, encode_request(request_))
    assert decode_answer(frame) == Refused(reason)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xc1", b"x" * 5000, b"\x91\xa4find", os.urandom(100)],
)
async def test_garbage_requests_are_faults(tmp_path: Path, garbage: bytes) -> None:
    with pytest.raises(PeerFault, match="malformed"):
        await converse(BlobServer({}, None), garbage)


async def test_a_chunk_that_the_disk_damaged_is_not_here(tmp_path: Path) -> None:
    store = await shelf(tmp_path)
    path = store.directory.path_of(KIND, MANIFEST.root)
    with open(path, "r+b") as file:
        file.write(b"flipped")
    server = BlobServer({KIND: store}, None)
    (frame,) = await converse(server, encode_request(ChunksRequest(KIND, MANIFEST.root, (0, 1))))
    answer = decode_answer(frame)
    assert isinstance(answer, Chunks)
    assert answer.payloads[0] is None
    assert answer.payloads[1] is not None
    assert bytes(answer.payloads[1]) == chunk(1)
    assert server.damaged_chunks == 1


async def test_a_blob_deleted_while_it_is_served_is_refused_as_unknown(tmp_path: Path) -> None:
    store = await shelf(tmp_path)
    server = BlobServer({KIND: store}, None)
    request = encode_request(ChunksRequest(KIND, MANIFEST.root, (0,)))
    await converse(server, request)
    await store.delete_blob(KIND, MANIFEST.root)
    (frame,) = await converse(server, request)
    assert decode_answer(frame) == Refused(Refusal.UNKNOWN)


# Messages


def test_messages_come_back_as_they_were() -> None:
    root = BlobRoot(b"r" * 32)
    for request in (FindRequest(KIND, root, True), ChunksRequest(KIND, root, (0, 5, 9))):
        assert decode_request(encode_request(request)) == request
    for have in (None, frozenset[int](), frozenset({0, 9, 65_535})):
        assert decode_answer(encode_found(7, have)) == Found(7, have)
    answer = decode_answer(encode_chunks([b"one", None, b""]))
    assert answer == Chunks((memoryview(b"one"), None, memoryview(b"")))
    for reason in Refusal:
        assert decode_answer(encode_refused(reason)) == Refused(reason)


def test_requests_are_bounded_and_ascend() -> None:
    root = BlobRoot(b"r" * 32)
    most = ChunksRequest(KIND, root, tuple(range(60_000, 60_000 + CHUNKS_PER_REQUEST_MAX)))
    assert decode_request(encode_request(most)) == most
    for indices in ((), (1, 1), (2, 1), (-1,), (70_000,), tuple(range(200))):
        with pytest.raises(PeerFault, match="malformed"):
            decode_request(encode_request(ChunksRequest(KIND, root, indices)))


# The pool


async def test_a_peer_is_held_to_a_few_sessions_and_the_rest_wait(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        alice = bulk.add("alice", scripted(truth))
        pool = SessionPool(bulk)
        most = 0

        async def use() -> None:
            nonlocal most
            async with pool.lease(alice):
                most = max(most, len(bulk.opened))
                await trio.sleep(0.01)

        async with trio.open_nursery() as users:
            for _ in range(20):
                users.start_soon(use)
        assert len(bulk.opened) == most == SESSIONS_PER_SOURCE_MAX
        assert not pool._turns
        await pool.aclose()


async def test_an_old_idle_session_is_not_trusted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        alice = bulk.add("alice", scripted(truth))
        pool = SessionPool(bulk)
        for wait_s, opened in ((0.0, 1), (IDLE_REUSE_S - 1, 1), (IDLE_REUSE_S + 1, 2)):
            await trio.sleep(wait_s)
            async with pool.lease(alice):
                assert len(bulk.opened) == opened
        await pool.aclose()


async def test_a_session_with_an_answer_under_way_is_not_used_again() -> None:
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        alice = bulk.add("alice", scripted(truth))
        pool = SessionPool(bulk)
        async with pool.lease(alice) as lease:
            lease.clean = False
        async with pool.lease(alice) as lease:
            assert not lease.reused
        await pool.aclose()
