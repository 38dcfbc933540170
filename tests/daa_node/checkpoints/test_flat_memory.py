"""What a daemon keeps of its chain in memory does not grow with the rounds behind it."""

import os
import sys
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import Block, ResultPayload
from daa_dag.checkpoint import ZERO_ID
from daa_dag.ids import BlockId, ChainId, VertexId, digest_of
from daa_dag.retention import Retention
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.open_packs import OpenPacks
from daa_node.checkpoints import final_path, rows
from daa_node.checkpoints.config import EPOCHS_WHOLE
from daa_node.checkpoints.final_path import Descent, EpochEnds, FinalPath
from daa_node.checkpoints.heights import Heights
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.observability.events import EventLog
from tests.daa_node.checkpoints.little_chain import ChainMaker
from tests.daa_node.checkpoints.proofs_alone import (
    NEVER,
    follow_members,
    play_round,
    without_states,
)
from tests.daa_node.inline import Inline
from tests.reachable import reachable

# Of a part of 4,096 rows of each of three lists: its digest, and of one of them where it begins.
BYTES_A_PART = 500
PACKS = (OpenPacks,)  # of which there are few (see merging)


def test_nothing_is_kept_of_each_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _file: None)  # or it takes half a minute
    maker = ChainMaker(tmp_path)
    without_states(maker)

    async def run() -> list[int]:
        await maker.open()
        members = await follow_members(maker.chain)
        log = EventLog(lambda: 0, lambda event: None)
        snapshots = Snapshots(maker.chain, NEVER, Retention(None, EPOCHS_WHOLE), log)
        counts = []
        for number in range(1, 201):
            await play_round(maker, snapshots, NEVER)
            if number % 100 == 0:
                counts.append(len(reachable([maker.chain, snapshots, members], PACKS)))
        assert maker.chain.path.light_below > 30, "old epochs were to be thinned"
        return counts

    early, late = trio.run(run)
    assert early > 300, "whatever a chain is made of was to be seen"
    assert late - early < 50  # of 100 rounds


def test_of_long_lists_a_few_bytes_a_part_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose rows are on the disk, and of which one or two parts are here at a time."""
    part = 64
    monkeypatch.setattr(rows, "PART_ROWS", part)
    monkeypatch.setattr(final_path, "PART_ROWS", part)
    work = DiskBlobStore(tmp_path, offload=Inline())

    async def height_of(_vertex_id: VertexId) -> int | None:
        return None

    async def run() -> list[int]:
        lists = heights, path, ends = Heights(work, height_of), FinalPath(work), EpochEnds(work)
        sizes, below = list[int](), None
        for number in range(40 * part):
            vertex_id = VertexId(digest_of(b"%d" % number))
            below_id = BlockId(ZERO_ID) if below is None else below.id
            payload = ResultPayload(number, vertex_id, digest_of(b""))
            block = Block(ChainId(ZERO_ID), number, 2, number, below_id, 1, payload)
            await heights.take([(number, vertex_id)])
            path.lead_on(below, Descent([block], {block.id}))
            ends.note(number, 2, block.id)
            below = block
            for each in lists:
                await each.close()
            if (number + 1) % (20 * part) == 0:  # as much is here as each time
                for at in (number // 2, number // 4, 3 * number // 4):
                    assert len(await path.of_epoch(at)) == 1
                    assert await heights.at(at) is not None
                    assert await ends.get(at) is not None
                sizes.append(sum(map(sys.getsizeof, reachable(lists))))
        return sizes

    early, late = trio.run(run)
    assert late - early <= 20 * BYTES_A_PART
