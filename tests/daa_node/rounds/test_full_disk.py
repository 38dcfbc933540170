"""A disk that fills up while a state is fetched: said once, nothing lost, and taken up again."""

import shutil
from pathlib import Path

import pytest
import trio

from daa_dag.retention import Retention
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import StorageFailed
from tests.daa_node.checkpoints.filling_disk import FillingDisk
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker, make_chain
from tests.daa_node.rounds.test_state_sync import sync_state

AWAY_SINCE = 3


@pytest.mark.parametrize("room", [3, 8, 30])  # while pages, a state, and proofs come
def test_a_disk_that_fills_up_halfway_is_said_once_and_the_next_try_goes_on(
    tmp_path: Path, room: int
) -> None:
    others = make_chain(tmp_path / "others", AWAY_SINCE)
    shutil.copytree(others.directory, tmp_path / "laggard")
    laggard = ChainMaker(tmp_path / "laggard")

    async def run() -> None:
        for _ in range(6):
            await others.publish(await others.make_round())
        assert await prune(others.chain, Retention(vertices_restorable=1)) > 0
        left = [room]
        full = [FillingDisk(store, left) for store in (laggard.store, laggard.work)]
        chain = ChainStore(full[0], full[1], FACTS.limits)
        await chain.open(laggard.first, laggard.genesis)
        with pytest.raises(StorageFailed, match="no space left on device"):
            await sync_state(others, laggard, chain)
        again = ChainMaker(laggard.directory)
        await again.open()
        assert (await again.chain.newest()).height == AWAY_SINCE
        assert (await sync_state(others, again, again.chain)).newest == others.newest

    trio.run(run)
    report = verify_chain(laggard.chain_directory, FACTS)
    assert report.ok, report.problems
    assert (report.heights, report.unfinished) == (others.newest.height, 0)
