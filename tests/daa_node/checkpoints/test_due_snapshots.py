"""A snapshot that a stop cut off is stored after the next start, and no other one is."""

from pathlib import Path

from daa_dag.retention import Retention
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.observability.events import SNAPSHOT_STORED, EventLog
from tests.daa_node.checkpoints.little_chain import SNAPSHOT_EVERY, ChainMaker, publish

NEVER = 1000


async def without_snapshots(directory: Path, rounds: int) -> ChainMaker:
    maker = ChainMaker(directory)
    await maker.open()
    for _ in range(rounds):
        made = await maker.make_round()
        await publish(maker.chain, made.headers, made.certified, snapshot_every=NEVER)
    return maker


async def test_what_a_stop_cut_off_is_stored_once_the_state_is_here(tmp_path: Path) -> None:
    maker = await without_snapshots(tmp_path, SNAPSHOT_EVERY)
    log = EventLog(lambda: 0)
    for _ in range(2):  # the second start finds it
        snapshots = Snapshots(maker.chain, SNAPSHOT_EVERY, Retention(), log)
        await snapshots.restored(maker.newest)
        await snapshots.store()
        assert await maker.chain.snapshot(maker.newest) is not None
    assert [event["name"] for event in log.tail()] == [SNAPSHOT_STORED]


async def test_nothing_is_due_between_two_snapshots_nor_at_the_genesis(tmp_path: Path) -> None:
    maker = await without_snapshots(tmp_path, SNAPSHOT_EVERY - 1)
    snapshots = Snapshots(maker.chain, SNAPSHOT_EVERY, Retention(), EventLog(lambda: 0))
    for vertex in (maker.first, maker.newest):
        await snapshots.restored(vertex)
        await snapshots.store()
        assert await maker.chain.snapshot(vertex) is None
