"""One source among others: when it counts as silent, how often it is tried, and what is kept."""

import os
from collections import Counter
from pathlib import Path

import pytest
import trio

from daa_dag.chunking import manifest_of
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.errors import NotHeld, Unavailable
from daa_node.network import blob_source
from daa_node.network.blob_exchange import LAST_CALL_S, PATIENCE_S, BlobFetcher, Want
from daa_node.network.blob_server import BlobServer
from daa_node.network.session_pool import SessionPool
from daa_node.network.waits import STAGGER_S
from daa_node.seams import FrameStream
from daa_node.wire.blob_messages import (
    MANIFEST_BEGINNING_BYTES_MAX,
    Chunks,
    ChunksRequest,
    FindRequest,
    Found,
    Refusal,
    decode_request,
    encode_found,
    encode_refused,
)
from tests.daa_node.network.bulk_stage import (
    CHUNK_COUNT,
    KIND,
    LOCAL,
    MANIFEST,
    PAYLOAD,
    MemoryBulk,
    MemoryWriter,
    Scene,
    on_stage,
    poison,
    scripted,
    silence,
    truth,
)


class Paced:
    """Tells the truth, each answer after a while; counts the chunks that it was asked for."""

    def __init__(self, answer_s: float) -> None:
        self._answer_s = answer_s
        self.asked: Counter[int] = Counter()

    async def reply(self, request: ChunksRequest) -> bytes:
        self.asked.update(request.indices)
        await trio.sleep(self._answer_s)
        return await truth(request)


def test_who_falls_silent_after_an_answer_lags_like_who_never_gave_one(tmp_path: Path) -> None:
    answers = 1

    async def once(request: ChunksRequest) -> bytes | None:
        nonlocal answers
        answers -= 1
        return await (truth if answers >= 0 else silence)(request)

    async def play(scene: Scene) -> None:
        tired = scene.bulk.add("tired", scripted(once))
        alice = scene.bulk.add("alice", scripted(Paced(PATIENCE_S / 4).reply))
        await scene.fetch_into(MemoryWriter(), [tired, alice], 60)

    assert on_stage(tmp_path, play, virtual=True) < 6 * PATIENCE_S


def test_who_answers_in_time_each_time_is_asked_for_nothing_twice(tmp_path: Path) -> None:
    sources = [Paced(0.8 * PATIENCE_S), Paced(0.8 * PATIENCE_S)]

    async def play(scene: Scene) -> None:
        added = [scene.bulk.add(f"p{n}", scripted(s.reply)) for n, s in enumerate(sources)]
        await scene.fetch_into(MemoryWriter(), added, 60)

    assert on_stage(tmp_path, play, virtual=True) > PATIENCE_S
    assert sum((sources[0].asked + sources[1].asked).values()) == CHUNK_COUNT


def test_who_had_nothing_to_do_is_not_called_silent_for_it(tmp_path: Path) -> None:
    """One hangs up after some answers; what it owed is asked of one other each."""
    answer_s, left = 0.8 * PATIENCE_S, 1
    idle = [Paced(answer_s), Paced(answer_s)]
    owed: Counter[int] = Counter()

    async def hangs_up(request: ChunksRequest) -> bytes:
        nonlocal left
        await trio.sleep(answer_s)
        left -= 1
        if left < 0:
            owed.update(request.indices)
            raise Unavailable("gone")
        return await truth(request)

    async def play(scene: Scene) -> None:
        sources = [scene.bulk.add("gone", scripted(hangs_up))]
        sources += [scene.bulk.add(f"p{n}", scripted(s.reply)) for n, s in enumerate(idle)]
        await scene.fetch_into(MemoryWriter(), sources, 60)

    on_stage(tmp_path, play, virtual=True)
    assert owed
    assert max((idle[0].asked + idle[1].asked).values()) == 1


def test_once_a_source_fails_no_other_waits_for_its_turn(tmp_path: Path) -> None:
    async def declines(stream: FrameStream) -> None:
        while await stream.receive_frame() is not None:
            await stream.send_frame(encode_refused(Refusal.UNKNOWN))

    async def play(scene: Scene) -> None:
        empty = [scene.bulk.add(f"empty {n}", declines) for n in range(30)]
        await scene.fetch_into(MemoryWriter(), [*empty, scene.bulk.add("a", scripted(truth))], 60)

    assert on_stage(tmp_path, play, virtual=True) < 2 * STAGGER_S


def test_where_all_are_busy_few_are_asked_at_once(tmp_path: Path) -> None:
    """Each question costs a member work before it is answered, wanted or not by then."""
    busy_s, searches = 0.8 * PATIENCE_S, 0

    async def busy(stream: FrameStream) -> None:
        nonlocal searches
        while (frame := await stream.receive_frame()) is not None:
            request = decode_request(frame)
            searches += isinstance(request, FindRequest)
            await trio.sleep(busy_s)
            if isinstance(request, FindRequest):
                await stream.send_frame(encode_found(Found(None, MANIFEST.encode())))
            elif isinstance(request, ChunksRequest):
                await stream.send_frame(await truth(request))

    async def play(scene: Scene) -> None:
        sources = [scene.bulk.add(f"busy {n}", busy) for n in range(20)]
        asked = []
        for _ in range(2):
            before = searches
            await scene.fetch_into(MemoryWriter(), sources, 60)
            asked.append(searches - before)
        # Who has just come asks one more a second, and then one while four answer.
        assert asked[0] <= len(sources) / 2
        assert asked[1] <= len(sources) / 4

    on_stage(tmp_path, play, virtual=True)


def test_one_that_lets_us_wait_delays_nobody_else(tmp_path: Path) -> None:
    async def late(stream: FrameStream) -> None:
        await stream.receive_frame()
        await trio.sleep(10 * PATIENCE_S)

    async def play(scene: Scene) -> None:
        for name in "abc":
            await scene.fetch_into(MemoryWriter(), [scene.bulk.add(name, scripted(truth))], 60)
        began_s = trio.current_time()
        sources = [scene.bulk.add("late", late), scene.bulk.add("d", scripted(truth))]
        await scene.fetch_into(MemoryWriter(), sources, 60)
        assert trio.current_time() - began_s < 2 * STAGGER_S

    on_stage(tmp_path, play, virtual=True)


def test_a_source_that_hangs_up_each_time_is_tried_so_often_and_no_more(tmp_path: Path) -> None:
    async def hangs_up(stream: FrameStream) -> None:
        await stream.receive_frame()

    async def play(scene: Scene) -> None:
        sources = [scene.bulk.add("breaks", hangs_up)]
        sources.append(scene.bulk.add("slow", scripted(Paced(8 * PATIENCE_S).reply)))
        await scene.fetch_into(MemoryWriter(), sources, 200)
        assert scene.bulk.opened.count(sources[0].peer_id) == blob_source.ATTEMPTS_MAX

    assert on_stage(tmp_path, play, virtual=True) > 10 * blob_source.RETRY_WAIT_S


def test_a_manifest_too_long_for_one_frame_comes_in_several(tmp_path: Path) -> None:
    payload = os.urandom(3_000)
    manifest = manifest_of(payload, [1] * len(payload))
    assert len(manifest.encode()) > 2 * MANIFEST_BEGINNING_BYTES_MAX

    async def play(scene: Scene) -> None:
        store = DiskBlobStore(tmp_path / "far")
        writer = await store.begin_blob(KIND, manifest)
        await writer.write_chunks([(index, bytes([byte])) for index, byte in enumerate(payload)])
        await writer.commit()
        far = scene.bulk.add("far", BlobServer({KIND: store}, None, bool).serve)
        want = Want(KIND, manifest.root, len(payload))
        assert await scene.fetcher.fetch_blob(want, [far], scene.store, 60) == manifest

    on_stage(tmp_path, play)


def test_an_empty_part_of_a_manifest_is_a_fault(tmp_path: Path) -> None:
    """It costs its sender nothing, and we would read such parts until the deadline."""

    async def nothing(stream: FrameStream) -> None:
        assert isinstance(decode_request(await stream.receive_frame() or b""), FindRequest)
        await stream.send_frame(encode_found(Found(None, b"", len(MANIFEST.encode()))))
        for _ in range(100):
            await stream.send_frame(b"")
        await trio.sleep_forever()

    async def play(scene: Scene) -> None:
        liar = scene.bulk.add("liar", nothing)
        await scene.fetch_into(MemoryWriter(), [liar, scene.bulk.add("a", scripted(truth))], 60)
        assert scene.faults == [(liar.node_id, "malformed")]

    on_stage(tmp_path, play, virtual=True)


def test_no_session_with_who_was_banned_is_kept(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        liar, alice = scene.bulk.add("liar", scripted(poison)), scene.bulk.add("a", scripted(truth))
        await scene.fetch_into(MemoryWriter(), [liar, alice], 60)
        assert [node_id for node_id, *_ in scene.fetcher._pool._idle.values()] == [alice.node_id]

    on_stage(tmp_path, play, virtual=True)


def test_where_chunks_take_longer_whoever_may_hold_it_has_as_much_longer_to_say_so(
    tmp_path: Path,
) -> None:
    """Its answer may wait behind one chunk: others' word that the blob is gone counts later."""
    slowness = 10.0

    async def play(scene: Scene) -> None:
        fetcher = BlobFetcher(LOCAL, scene.bulk, lambda _node, _fault: None, slowness=slowness)
        gone = scene.bulk.add("gone", without)
        busy = scene.bulk.add("busy", mute)
        with pytest.raises(NotHeld):
            await fetcher.fetch(
                Want(KIND, MANIFEST.root, len(PAYLOAD)),
                [gone, busy],
                MemoryWriter().begin,
                1000,
                are_enough=lambda declined: gone.node_id in declined,
            )

    async def without(stream: FrameStream) -> None:
        while await stream.receive_frame() is not None:
            await stream.send_frame(encode_refused(Refusal.UNKNOWN))

    async def mute(_stream: FrameStream) -> None:
        await trio.sleep_forever()

    taken_s = on_stage(tmp_path, play, virtual=True)
    assert LAST_CALL_S * slowness <= taken_s < LAST_CALL_S * slowness + slowness


@pytest.mark.parametrize(
    ("payloads", "teaches"), [((None, None), False), ((None, b"chunk"), True), ((b"chunk",), True)]
)
async def test_only_answers_that_bring_something_teach_how_long_answers_take(
    payloads: tuple[bytes | None, ...], teaches: bool
) -> None:
    """Who lacks all that it is asked for says so at once, or draws it out at no cost."""
    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        alice, pool = bulk.add("alice", scripted(truth)), SessionPool(bulk)
        post, _inbox = trio.open_memory_channel[blob_source.News](1)
        download = blob_source.Download(KIND, MANIFEST.root, pool, lambda _id, _fault: None, post)
        talk = blob_source.BlobSource(alice, download)
        before_s = download.patience.limit_s
        since_s = trio.current_time() - 2 * before_s
        due = blob_source._Due(tuple(range(len(payloads))), since_s)
        async with pool.lease(alice) as lease:
            brought = tuple(None if one is None else memoryview(one) for one in payloads)
            await talk._take(lease, due, Chunks(brought))
        assert (download.patience.limit_s > before_s) is teaches
        await pool.aclose()
