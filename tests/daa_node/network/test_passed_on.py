"""What a member has of a blob so far is passed on checked, bounded, and within the day's data."""

from collections.abc import Sequence

import pytest
import trio

from daa_dag.ids import BlobRoot, digest_of
from daa_node.errors import StorageFailed
from daa_node.network import spreading
from daa_node.network.link_limits import GB_BYTES
from daa_node.network.spreading import SHARES_AT_ONCE, SHARES_PER_S, Part, UnderWay
from daa_node.wire.blob_messages import (
    Chunks,
    ChunksRequest,
    Refusal,
    Refused,
    Shared,
    ShareRequest,
    encode_request,
)
from tests.daa_node.network.bulk_stage import MemoryWriter
from tests.daa_node.network.limited_link import Link
from tests.daa_node.network.swarm_stage import (
    CHUNK_COUNT,
    KIND,
    MANIFEST,
    Member,
    World,
    chunk,
    in_swarm,
)
from tests.daa_node.network.test_upload_once import asked, share

NAME = KIND, MANIFEST.root


def wish(*indices: int) -> bytes:
    return encode_request(ChunksRequest(KIND, MANIFEST.root, indices))


def begins(member: Member, writer: MemoryWriter) -> Part:
    """It is fetching the blob, and has come as far as its writer."""
    part = Part(MANIFEST, writer, set(writer.chunks))
    member.spreading.under_way.begin(NAME, part)
    return part


def test_a_chunk_that_a_disk_has_spoilt_meanwhile_is_not_passed_on() -> None:
    """Each is looked at: that another one was good says nothing of it."""

    async def play(world: World) -> None:
        half = world.receivers[1]
        half.shelf.writer.chunks = {0: chunk(0), 1: b"?" * len(chunk(1)), 2: chunk(2)}
        begins(half, half.shelf.writer)
        for indices, good in (((0,), [chunk(0)]), ((1,), [None]), ((1, 2), [None, chunk(2)])):
            answer = await asked(half, world, wish(*indices))
            assert isinstance(answer, Chunks)
            assert [None if p is None else bytes(p) for p in answer.payloads] == good
        assert half.server.damaged_chunks == 2

    in_swarm(play)


def test_of_a_part_no_more_is_given_at_once_than_of_the_whole() -> None:
    async def play(world: World) -> None:
        half = world.receivers[1]
        half.shelf.writer.chunks = {index: chunk(index) for index in range(8)}
        begins(half, half.shelf.writer)
        assert isinstance(await asked(half, world, wish(0, 1, 2, 3)), Chunks)
        assert await asked(half, world, wish(0, 1, 2, 3, 4)) == Refused(Refusal.TOO_MUCH)

    in_swarm(play)


class Gone(MemoryWriter):
    """The file of a part that became the whole blob a moment ago, under another name."""

    async def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        raise StorageFailed("no such file")


def test_a_part_that_became_whole_while_it_was_asked_for_is_given_from_there() -> None:
    async def play(world: World) -> None:
        whole = Gone()
        whole.chunks = {0: chunk(0)}
        begins(world.author, whole)
        answer = await asked(world.author, world, wish(0))
        assert isinstance(answer, Chunks)
        assert [bytes(payload or b"") for payload in answer.payloads] == [chunk(0)]

    in_swarm(play)


def test_who_goes_on_after_a_restart_passes_on_what_it_had_before() -> None:
    async def play(world: World) -> None:
        again = world.receivers[1]
        again.shelf.writer.chunks = {index: chunk(index) for index in range(CHUNK_COUNT // 2)}
        world.author.chunk_s = 20.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(again.fetch, [world.author.source])
            await trio.sleep(5.0)  # it knows the manifest by now, and no chunk has come
            answer = await asked(again, world, wish(0, 1))
            assert isinstance(answer, Chunks)
            assert None not in answer.payloads
            nursery.cancel_scope.cancel()

    in_swarm(play)


def test_with_the_day_s_data_spent_nothing_is_offered() -> None:
    """Else all would wait for what this node is not going to send."""

    async def play(world: World) -> None:
        link = Link(data_gb_a_day=1.0)
        world.author.server.limits = link.limits
        assert isinstance(await asked(world.author, world, share(0)), Shared)
        link.limits.count(GB_BYTES)
        assert await asked(world.author, world, share(0)) == Refused(Refusal.SPENT)

    in_swarm(play)


def test_a_blob_that_is_asked_for_is_forgotten_after_those_that_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spreading, "BLOBS_SPREAD_MAX", 2)

    async def play(world: World) -> None:
        answer = world.author.spreading.answer
        first, second = (member.source.node_id for member in world.receivers[:2])
        update = ShareRequest(KIND, MANIFEST.root, 0, (), 0)
        offered = (await answer(first, update, MANIFEST)).offered
        for number in range(4):
            other = ShareRequest(KIND, BlobRoot(digest_of(b"%d" % number)), 0, (), 0)
            await answer(second, other, MANIFEST)
            await answer(first, update, MANIFEST)
        assert offered
        assert not (await answer(second, update, MANIFEST)).offered & offered

    in_swarm(play, receivers=3)


def test_who_asks_too_often_waits_however_many_others_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "PACES_KEPT", 1)

    async def play(world: World) -> None:
        answer = world.author.spreading.answer
        first, second = (member.source.node_id for member in world.receivers[:2])
        update = ShareRequest(KIND, MANIFEST.root, 0, (), 0)
        for _ in range(int(SHARES_AT_ONCE)):
            await answer(first, update, MANIFEST)
        await answer(second, update, MANIFEST)
        began_s = trio.current_time()
        await answer(first, update, MANIFEST)
        assert trio.current_time() - began_s == pytest.approx(1 / SHARES_PER_S)

    in_swarm(play)


def test_a_fetch_that_ends_takes_nothing_from_another_of_the_same_blob() -> None:
    under_way, parts = UnderWay(), [Part(MANIFEST, MemoryWriter(), set()) for _ in range(2)]
    for part in parts:
        under_way.begin(NAME, part)
    under_way.end(NAME, parts[0])
    assert under_way.part(NAME) is parts[1]
    under_way.end(NAME, parts[1])
    assert under_way.part(NAME) is None
