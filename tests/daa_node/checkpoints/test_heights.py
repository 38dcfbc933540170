"""Heights and final blocks are found, whichever part of the list has gone to the disk."""

import random
from typing import cast

import pytest
import trio

from daa_consensus.bft.messages import Block, EmptyPayload, ResultPayload
from daa_dag.ids import BlockId, ChainId, Digest, VertexId, digest_of
from daa_node.checkpoints import final_path, rows
from daa_node.checkpoints.final_path import Descent, EpochEnds, FinalPath, Furthest
from daa_node.checkpoints.heights import Heights
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.checkpoints.replay import ReplayedState
from daa_node.checkpoints.rows import HISTORY, Rows
from daa_node.errors import StorageFailed
from daa_node.seams import BlobStore
from tests.daa_node.agreement.memory_disk import Disk, work_store
from tests.daa_node.checkpoints.little_chain import COMMITTEE, RULES


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PART_ROWS", 4)
    monkeypatch.setattr(final_path, "PART_ROWS", 4)


async def test_heights_are_found_in_whatever_order_they_come() -> None:
    ids = [VertexId(digest_of(b"vertex %d" % height)) for height in range(9)]

    async def height_of(vertex_id: VertexId) -> int | None:
        return ids.index(vertex_id) if vertex_id in ids else None

    for seed in range(20):
        heights = Heights(work_store(), height_of)
        order = list(enumerate(ids))
        random.Random(seed).shuffle(order)
        for count, pair in enumerate(order, 1):
            await heights.take([pair])
            await heights.take([pair])
            await heights.close()
            here = dict(order[:count])
            assert len(heights) == count
            assert [await heights.at(h) for h in range(10)] == [here.get(h) for h in range(10)]
            found = [vertex_id async for vertex_id in heights.ids()]
            assert found == [here[height] for height in sorted(here)]
            assert heights.newest == here[max(here)]
            for vertex_id in ids:
                assert await heights.has(vertex_id) == (vertex_id in here.values())
        assert heights.rows.closed == 8
        assert not await heights.has(VertexId(digest_of(b"another")))


async def test_two_vertices_of_one_height_are_no_chain() -> None:
    async def height_of(vertex_id: VertexId) -> int | None:
        return 0

    heights = Heights(work_store(), height_of)
    made = ReplayedState(RULES)
    one = genesis_vertex(made.ref(), COMMITTEE.root)
    made.start()
    other = genesis_vertex(made.ref(), COMMITTEE.root)
    await heights.add(one)
    await heights.add(one)
    with pytest.raises(StorageFailed, match="both of height 0"):
        await heights.add(other)


def blocks_of(count: int) -> list[Block]:
    """One upon the other, two views apart; each third is empty."""
    made: list[Block] = []
    for number in range(count):
        parent = made[-1].id if made else BlockId(bytes(32))
        zero = Digest(bytes(32))
        payload = EmptyPayload() if number % 3 == 2 else ResultPayload(number, VertexId(zero), zero)
        view = 2 * number
        made.append(Block(ChainId(bytes(32)), number // 8, view, number, parent, view - 2, payload))
    return made


async def test_a_final_block_is_found_on_the_disk_and_in_memory() -> None:
    blocks = blocks_of(23)
    certified = {block.id for block in blocks[::4]}
    path = FinalPath(work_store())
    path.lead_on(None, Descent(blocks[:1], certified))
    for at in range(1, len(blocks), 2):
        path.lead_on(blocks[at - 1], Descent(blocks[at : at + 2][::-1], certified))
        await path.close()
    stranger = blocks_of(2)[1]
    assert (
        await path.place_of(Block(ChainId(b"?" * 32), 0, 2, 1, stranger.id, 0, EmptyPayload()))
        is None
    )
    assert len(path.kept().parts) == 5
    for at, block in enumerate(blocks):
        assert await path.place_of(block) == at
        assert await path.is_certified(block) == (block.id in certified)
        assert await path.above(block, 6) == [each.id for each in blocks[at + 1 : at + 7]]
        later = [each.id for each in blocks[at + 1 :] if each.id in certified]
        assert await path.lowest_certified_above(block) == (later[0] if later else None)


async def test_the_blocks_of_an_epoch_are_found_without_those_before_it() -> None:
    blocks = blocks_of(203)
    path = FinalPath(work_store())
    path.lead_on(None, Descent(blocks[:1], {blocks[3].id}))
    for at in range(1, len(blocks), 2):
        path.lead_on(blocks[at - 1], Descent(blocks[at : at + 2][::-1], ()))
        await path.close()
    looked_at = list[int]()
    row = path._rows.row

    async def watched(place: int) -> bytes:
        looked_at.append(place)
        return await row(place)

    path._rows.row = watched  # type: ignore[method-assign]
    for epoch in range(28):
        looked_at.clear()
        found = await path.of_epoch(epoch)
        assert [block_id for block_id, _ in found] == [b.id for b in blocks if b.epoch == epoch]
        assert len(looked_at) <= len(found) + 1


async def test_blocks_that_only_carry_a_proof_are_never_closed() -> None:
    blocks = blocks_of(8)
    path = FinalPath(work_store())
    path.lead_on(None, Descent(blocks[:2][::-1], ()))
    trailing, below = list[Block](), blocks[1]
    for view in range(100, 110):
        below = Block(ChainId(bytes(32)), 0, view, 1, below.id, view - 1, EmptyPayload())
        trailing.append(below)
    path.lead_on(blocks[1], Descent(trailing[::-1], ()))
    await path.close()
    assert path.kept().parts == ()
    path.lead_on(blocks[1], Descent(blocks[2:][::-1], ()))
    await path.close()
    assert await path.above(blocks[0], 20) == [block.id for block in blocks[1:]]


async def test_the_block_that_an_epoch_ends_with_stays_whatever_stands_above() -> None:
    blocks = blocks_of(8)
    assert isinstance(blocks[3].payload, ResultPayload)
    path = FinalPath(work_store())
    proof = Block(ChainId(bytes(32)), 0, 7, 3, blocks[3].id, 6, EmptyPayload())
    path.lead_on(None, Descent([proof, *blocks[3::-1]], ()))
    await path.close()  # four are settled, as many as fill a part
    path.lead_on(blocks[3], Descent(blocks[:3:-1], ()))
    await path.close()
    assert len(path.kept().parts) == 1
    assert await path.above(blocks[0], 20) == [block.id for block in blocks[1:]]


async def test_a_proof_that_comes_late_counts_if_it_is_further() -> None:
    ends = EpochEnds(work_store())
    ids = [BlockId(digest_of(b"%d" % number)) for number in range(200)]
    for epoch in range(0, 200, 2):
        ends.note(epoch, 10 * epoch, ids[epoch])
        await ends.close()
    ends.note(196, 1, ids[0])
    ends.note(197, 1, ids[1])
    ends.note(198, 5000, ids[2])
    assert len(ends.kept().parts) == 33
    assert await ends.get(196) == Furthest(1960, ids[196])
    assert await ends.get(197) == Furthest(1, ids[1])
    assert await ends.get(198) == Furthest(5000, ids[2])
    assert await ends.get(0) == Furthest(0, ids[0])
    assert await ends.get(1) is None
    assert await ends.get(1000) is None


async def test_a_part_that_is_damaged_is_named_and_not_believed() -> None:
    disk = Disk()
    listed = Rows(cast(BlobStore, disk.work), "heights", 32)
    for number in range(12):
        listed.append(digest_of(b"%d" % number))
    await listed.close(12)
    assert (listed.closed, len(listed)) == (8, 12)
    again = Rows(cast(BlobStore, disk.work), "heights", 32)
    assert await again.recall(listed.kept()) == [digest_of(b"0"), digest_of(b"4")]
    assert [await again.row(at) for at in range(12)] == [digest_of(b"%d" % n) for n in range(12)]
    kept = disk.work.records[HISTORY, "heights.1"]
    for damaged in (kept[:-1], kept[:-1] + b"?", kept + bytes(32)):
        disk.work.records[HISTORY, "heights.1"] = damaged
        again = Rows(cast(BlobStore, disk.work), "heights", 32)
        assert await again.recall(listed.kept()) is None
        with pytest.raises(StorageFailed, match=r"work/history/heights.1 is lost or damaged"):
            await listed.row(5)


def test_memory_does_not_grow_with_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PART_ROWS", 64)
    work = work_store()
    listed = Rows(work, "path", 49)

    async def run() -> None:
        for _ in range(10_000):
            listed.append(bytes(49))
            await listed.close(len(listed))

    trio.run(run)
    assert len(listed) == 10_000
    assert len(listed.rest) <= 65 * 49
