"""Blobs over the bulk seam: real stores and servers, peers that lie, stall, stop or hold a part."""

import math
import os
from collections.abc import Sequence, Set
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from daa_dag.chunking import CHUNK_BYTES_MAX, CHUNKS_MAX, Manifest, cut, manifest_of
from daa_dag.ids import Digest, NodeId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.errors import NotHeld, PeerFault, StorageFailed, Unavailable
from daa_node.network import blob_source
from daa_node.network.blob_exchange import (
    LAST_CALL_S,
    PATIENCE_S,
    Want,
)
from daa_node.network.blob_server import MANIFESTS, SNAPSHOTS, BlobServer
from daa_node.network.chunk_looks import CHUNKS
from daa_node.network.session_pool import BULK_ANSWER_TIMEOUT_S, SESSIONS_PER_SOURCE_MAX
from daa_node.seams import BlobWriter, FrameStream
from daa_node.wire.blob_messages import (
    CHUNKS_PER_REQUEST_MAX,
    ChunksRequest,
    Found,
    Refusal,
    encode_chunks,
    encode_found,
    encode_refused,
)
from tests.daa_node.network.bulk_stage import (
    CHUNK_COUNT,
    KIND,
    MANIFEST,
    PAYLOAD,
    START_CHUNKS,
    MemoryWriter,
    Reply,
    Scene,
    chunk,
    on_stage,
    poison,
    scripted,
    silence,
    source,
    truth,
)


def test_a_blob_comes_from_one_peer_and_is_whole(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        assert await scene.fetch([await scene.honest("alice")]) == MANIFEST
        await scene.check()
        assert scene.faults == []
        assert len(PAYLOAD) < scene.fetcher.received_bytes < 1.01 * len(PAYLOAD)

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
        alice = scene.bulk.add("alice", scripted(truth))
        await scene.fetch_into(MemoryWriter(), [staller, liar, alice], 60)
        assert scene.faults == [(liar.node_id, "chunk-mismatch")] * 2

    assert on_stage(tmp_path, play, virtual=True) < 3 * PATIENCE_S


def test_a_banned_peer_is_hung_up_on_while_the_fetch_goes_on(tmp_path: Path) -> None:
    gone = trio.Event()

    async def lying(stream: FrameStream) -> None:
        try:
            await scripted(poison)(stream)
        finally:
            gone.set()

    async def waiting(request: ChunksRequest) -> bytes:
        await gone.wait()
        return await truth(request)

    async def play(scene: Scene) -> None:
        sources = [scene.bulk.add("liar", lying), scene.bulk.add("alice", scripted(waiting))]
        await scene.fetch_into(MemoryWriter(), sources, 60)

    assert on_stage(tmp_path, play, virtual=True) < BULK_ANSWER_TIMEOUT_S


def test_a_session_that_still_owes_an_answer_is_closed_after_the_fetch(tmp_path: Path) -> None:
    count = 2 * CHUNKS_PER_REQUEST_MAX  # tiny ones, all asked for at once in two requests
    chunks = [index.to_bytes(2) for index in range(count)]
    manifest = manifest_of(b"".join(chunks), [2] * count)
    answers = 1

    async def all_of_them(request: ChunksRequest) -> bytes:
        return encode_chunks([chunks[index] for index in request.indices])

    async def once(request: ChunksRequest) -> bytes | None:
        nonlocal answers
        answers -= 1
        return await all_of_them(request) if answers >= 0 else None

    async def play(scene: Scene) -> None:
        tired = scene.bulk.add("tired", scripted(once, manifest))
        alice = scene.bulk.add("alice", scripted(all_of_them, manifest))
        want = Want(KIND, manifest.root, manifest.size_bytes)
        begin = MemoryWriter(count=count).begin
        await scene.fetcher.fetch(want, [tired, alice], begin, 60)
        kept = [node_id for node_id, *_ in scene.fetcher._pool._idle.values()]
        assert kept == [alice.node_id]

    on_stage(tmp_path, play, virtual=True)


def test_kept_sessions_that_all_died_do_not_count_against_the_peer(tmp_path: Path) -> None:
    """A peer that restarted: more dead sessions than a source is given attempts."""

    async def play(scene: Scene) -> None:
        alice = scene.bulk.add("alice", scripted(truth))
        pool = scene.fetcher._pool
        async with AsyncExitStack() as leases:
            for _ in range(SESSIONS_PER_SOURCE_MAX):
                await leases.enter_async_context(pool.lease(alice))
        assert len(pool._idle) == SESSIONS_PER_SOURCE_MAX > blob_source.ATTEMPTS_MAX
        for stream in pool._idle:
            await stream.aclose()
        await scene.fetch_into(MemoryWriter(), [alice], 60)
        assert scene.faults == []

    assert on_stage(tmp_path, play, virtual=True) < blob_source.RETRY_WAIT_S


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
            await scene.fetch_into(MemoryWriter(), [staller], 200)
        assert len(scene.bulk.opened) == blob_source.ATTEMPTS_MAX

    seconds = on_stage(tmp_path, play, virtual=True)
    assert seconds > BULK_ANSWER_TIMEOUT_S * blob_source.ATTEMPTS_MAX


def test_the_deadline_holds_whatever_peers_do(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        staller = scene.bulk.add("staller", scripted(silence))
        with pytest.raises(Unavailable, match="not whole after 2"):
            await scene.fetch_into(MemoryWriter(), [staller], 2.0)

    assert on_stage(tmp_path, play, virtual=True) == pytest.approx(2.0)


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


def test_a_blob_that_is_cut_as_none_is_is_its_makers_fault(tmp_path: Path) -> None:
    """As many chunks as there may be, of a byte: seconds of work for everybody in each round."""
    crumbs = manifest_of(bytes(CHUNKS_MAX), [1] * CHUNKS_MAX)

    async def play(scene: Scene) -> None:
        peer = scene.bulk.add("alice", scripted(truth, crumbs))
        want = Want(KIND, crumbs.root, CHUNKS_MAX, sizes=tuple(cut([CHUNKS_MAX])))
        with pytest.raises(PeerFault, match="malformed-manifest"):
            await scene.fetcher.fetch_blob(want, [peer], scene.store, 5)

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
        poor = scene.bulk.add("poor", BlobServer({KIND: empty}, None, bool).serve)
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
        encode_found(Found(None)),
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

    async def play(scene: Scene) -> None:
        stuck = MemoryWriter(write_s=math.inf, count=64)
        peer = scene.bulk.add("alice", scripted(counted, manifest))
        want = Want(KIND, manifest.root, manifest.size_bytes)
        with pytest.raises(Unavailable):
            await scene.fetcher.fetch(want, [peer], stuck.begin, 1.0)
        # one answer is being written, one posted, the rest is in the peer's hands
        assert sent <= 2 * START_CHUNKS < 64

    on_stage(tmp_path, play)


def test_a_disk_slower_than_our_patience_still_writes_every_chunk(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        alice = scene.bulk.add("alice", scripted(truth))
        await scene.fetch_into(MemoryWriter(write_s=PATIENCE_S), [alice], 100)
        assert scene.faults == []

    assert on_stage(tmp_path, play, virtual=True) >= CHUNK_COUNT * PATIENCE_S


def test_a_disk_that_fails_ends_the_fetch_with_its_own_error(tmp_path: Path) -> None:
    class FullWriter:
        def missing(self) -> list[int]:
            return list(range(CHUNK_COUNT))

        async def write_chunk(self, index: int, payload: bytes) -> None:
            raise StorageFailed("disk full")

        async def write_chunks(self, chunks: Sequence[tuple[int, bytes | memoryview]]) -> None:
            raise StorageFailed("disk full")

        async def read_into(self, indices: Sequence[int], target: memoryview) -> None: ...
        async def commit(self, durable: bool = True) -> None: ...

    async def play(scene: Scene) -> None:
        async def begin(manifest: Manifest) -> BlobWriter:
            return FullWriter()

        want = Want(KIND, MANIFEST.root, len(PAYLOAD))
        with pytest.raises(StorageFailed, match="disk full"):
            await scene.fetcher.fetch(want, [await scene.honest("alice")], begin, 5)
        assert scene.faults == []

    on_stage(tmp_path, play)


def test_only_the_word_of_every_source_tells_that_nobody_holds_a_blob(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        empty = DiskBlobStore(tmp_path / "empty")
        without = [
            scene.bulk.add(n, BlobServer({KIND: empty}, None, bool).serve) for n in ("a", "b")
        ]
        with pytest.raises(NotHeld):
            await scene.fetch(without, deadline_s=5)
        with pytest.raises(Unavailable) as caught:
            await scene.fetch([*without, source("gone")], deadline_s=5)
        assert not isinstance(caught.value, NotHeld)
        with pytest.raises(Unavailable) as caught:
            await scene.fetch([], deadline_s=5)
        assert not isinstance(caught.value, NotHeld)

    on_stage(tmp_path, play)


async def drips(request: ChunksRequest) -> bytes:
    """One chunk right before the session would be given up, and again."""
    await trio.sleep(BULK_ANSWER_TIMEOUT_S - 1.0)
    return encode_chunks([chunk(request.indices[0])] + [None] * (len(request.indices) - 1))


@pytest.mark.parametrize("reply", [None, silence, drips])
def test_who_never_answers_does_not_keep_others_word_that_a_blob_is_gone_from_counting(
    tmp_path: Path, reply: Reply | None
) -> None:
    """Neither one that says nothing, nor one that says it has the blob and never sends it."""

    async def play(scene: Scene) -> None:
        writer, honest = MemoryWriter(), {"a", "b"}
        sources = [scene.bulk.add(name, without) for name in sorted(honest)]
        liar = scene.bulk.add("liar", mute if reply is None else scripted(reply))

        def are_enough(declined: Set[NodeId]) -> bool:
            return {each.node_id for each in sources} <= declined

        want = Want(KIND, MANIFEST.root, len(PAYLOAD))
        with pytest.raises(NotHeld):
            await scene.fetcher.fetch(
                want, [liar, *sources], writer.begin, 120, are_enough=are_enough
            )

    async def without(stream: FrameStream) -> None:
        while await stream.receive_frame() is not None:
            await stream.send_frame(encode_refused(Refusal.UNKNOWN))

    async def mute(_stream: FrameStream) -> None:
        await trio.sleep_forever()

    taken_s = on_stage(tmp_path, play, virtual=True)
    assert taken_s < (LAST_CALL_S if reply is None else BULK_ANSWER_TIMEOUT_S) + 2


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
            sources.append(scene.bulk.add(name, BlobServer({}, store, bool).serve))
        want = Want(SNAPSHOTS, MANIFEST.root, len(PAYLOAD))
        writer = MemoryWriter()
        assert await scene.fetcher.fetch(want, sources, writer.begin, 10) == MANIFEST
        assert writer.committed
        assert writer.chunks == {index: chunk(index) for index in range(CHUNK_COUNT)}
        assert scene.faults == []

    on_stage(tmp_path, play)


def test_a_part_that_nobody_holds_is_named_as_unavailable_and_soon(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        store = DiskBlobStore(tmp_path / "part")
        await snapshot(store, [1, 2])
        part = scene.bulk.add("part", BlobServer({}, store, bool).serve)
        want = Want(SNAPSHOTS, MANIFEST.root, len(PAYLOAD))
        writer = MemoryWriter()
        with pytest.raises(Unavailable, match="cannot be had") as caught:
            await scene.fetcher.fetch(want, [part], writer.begin, 10)
        assert not isinstance(caught.value, NotHeld)  # somebody else may have the rest
        assert sorted(writer.chunks) == [1, 2]  # what there was is kept

    assert on_stage(tmp_path, play) < 5
