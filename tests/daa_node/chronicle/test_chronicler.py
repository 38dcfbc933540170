"""What keeps the history: nothing is lost, nothing is counted twice, and no round waits for it."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from daa_dag.checkpoint import Contributor, Vertex
from daa_dag.ids import (
    BlobRoot,
    BlockId,
    ContributionRoot,
    NodeId,
    ValidatorSetRoot,
    VertexId,
)
from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.checkpoints.chain import ChainStore
from daa_node.chronicle.chronicler import (
    RETRY_S,
    ROUNDS_AT_ONCE,
    TRIM_EVERY_S,
    WRITE_EVERY_S,
    Chronicler,
)
from daa_node.chronicle.config import HistoryConfig
from daa_node.chronicle.rows import Batch
from daa_node.chronicle.store import HistoryParts, Opened
from daa_node.errors import StorageFailed
from daa_node.observability import events as names
from daa_node.observability.events import Event, EventLog
from tests.daa_node.chronicle.rows_at_hand import ALICE, BOB
from tests.daa_node.inline import Inline

ZERO = bytes(32)


def vertex(height: int, authors: tuple[NodeId, ...] = (ALICE, BOB)) -> Vertex:
    facts = [
        Contributor(author, ContributionRoot(ZERO), 1, 8, 500, 9, 9, 2_000_000 + height)
        for author in authors
    ]
    return Vertex(
        parents=(VertexId(ZERO),),
        height=height,
        training_round=height,
        decided_block=BlockId(ZERO),
        contributors=tuple(facts),
        rule="mean",
        f_agg=0,
        delta_root=BlobRoot(ZERO),
        model_root=BlobRoot(ZERO),
        outer_state_root=BlobRoot(ZERO),
        ledger_root=ZERO,
        validator_set_root=ValidatorSetRoot(ZERO),
        tokens_total=0,
    )


class LittleChain:
    """So many certified vertices; a chain's own files are elsewhere tested."""

    def __init__(self, heights: int) -> None:
        self.count = heights
        self.damaged: set[int] = set()
        self.heights = SimpleNamespace(at=self.at)

    async def at(self, height: int) -> VertexId | None:
        return VertexId(height.to_bytes(32)) if height <= self.count else None

    async def vertex(self, vertex_id: VertexId) -> Vertex:
        height = int.from_bytes(vertex_id)
        if height in self.damaged:
            raise StorageFailed("vertices/... is damaged")
        return vertex(height)

    async def newest(self) -> Vertex:
        return vertex(self.count)

    async def exec_certificate(self, _: VertexId) -> None:
        return None

    async def block(self, _: BlockId) -> None:
        return None


class Failing:
    """A store on a disk that refuses, for as long as it does."""

    def __init__(self, store: SqliteHistory) -> None:
        self._store = store
        self.refuses = False
        self.opened = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self) -> Opened:
        self.opened += 1
        return self._store.open()

    def write(self, batch: Batch) -> None:
        if self.refuses:
            raise StorageFailed("the disk is full")
        self._store.write(batch)


class World:
    """A chronicler with all that is around it."""

    def __init__(self, path: Path, heights: int, *logged: Event) -> None:
        self.chain = LittleChain(heights)
        self.now_s = 1000.0
        self.log = EventLog(lambda: int(self.now_s * 1e9))
        self.history = SqliteHistory(path)
        self.store = Failing(SqliteHistory(path))
        self.asked_since: list[float] = []

        def past(since_s: float) -> Iterator[Event]:
            self.asked_since.append(since_s)
            return (one for one in logged if one["ts"] > since_s)

        parts = HistoryParts(cast(Any, self.store), HistoryConfig(enabled=True), past)
        clock = SimpleNamespace(wall_ns=lambda: int(self.now_s * 1e9))
        chain = cast(ChainStore, self.chain)
        self.chronicler = Chronicler(parts, chain, Inline(), clock, self.log, ALICE)

    def publish(self) -> None:
        """One round more."""
        self.chain.count += 1
        height = self.chain.count
        self.log.emit(
            names.ROUND_FINALIZED,
            round=height,
            height=height,
            loss_nats=1.5,
            wall_s=2.0,
            bytes_sent=7,
        )

    def heights(self) -> list[int]:
        return [row.height for row in self.history.rounds(0, 1000)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rounds.sqlite"


async def test_rounds_of_before_come_from_the_chain_and_new_ones_from_both(
    path: Path, autojump_clock: MockClock
) -> None:
    world = World(path, 2 * ROUNDS_AT_ONCE + 3)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.chronicler.run)
        await trio.sleep(WRITE_EVERY_S / 2)
        assert world.heights() == list(range(1, world.chain.count + 1))
        world.publish()
        await trio.sleep(WRITE_EVERY_S)
        nursery.cancel_scope.cancel()
    last, newest = world.history.rounds(world.chain.count - 2, 10)
    assert (last.ended_s, last.wall_s, last.loss_nats) == (None, None, 2.000132)  # as its set says
    assert (newest.ended_s, newest.wall_s, newest.loss_nats) == (1000.0, 2.0, 1.5)
    assert [(host.rounds, host.tokens) for host in world.history.sums().hosts] == [
        (132, 66_000)
    ] * 2


async def test_what_the_log_says_of_earlier_runs_comes_once(
    path: Path, autojump_clock: MockClock
) -> None:
    told: list[Event] = [
        {"ts": 10.0, "name": "decision", "decision": "train", "reason": "time"},
        {"ts": 11.0, "name": "round_aborted", "round": 2},
        {"ts": 12.0, "name": "round_finalized", "round": 1, "height": 1, "wall_s": 4.0},
        {"ts": 2000.0, "name": "decision", "decision": "later", "reason": "it comes by itself"},
    ]
    for _ in range(2):  # a restart
        world = World(path, 1, *told)
        await world.chronicler.write()
        await world.chronicler.end()
    assert world.asked_since == [12.0]
    assert [one.decision for one in world.history.decisions(0, 10)] == ["train"]
    (row,) = world.history.rounds(0, 10)
    assert (row.ended_s, row.wall_s) == (12.0, 4.0)


async def test_a_disk_that_refuses_is_told_of_once_and_costs_no_round(
    path: Path, autojump_clock: MockClock
) -> None:
    world = World(path, 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.chronicler.run)
        await trio.sleep(1)
        world.store.refuses = True
        world.publish()
        world.log.emit(names.DECISION, decision="train", reason="time")
        await trio.sleep(3 * RETRY_S)
        assert world.log.counts[names.HISTORY_FAILED] == 1
        assert world.store.opened > 2  # it may be the file that is damaged
        await trio.sleep(3600)
        assert world.log.counts[names.HISTORY_FAILED] == 2  # an alert on the newest hour stays
        world.store.refuses = False
        world.publish()
        await trio.sleep(2 * RETRY_S)
        nursery.cancel_scope.cancel()
    assert world.heights() == [1, 2]
    assert world.history.rounds(0, 1)[0].wall_s == 2.0
    assert [one.decision for one in world.history.decisions(0, 9)] == ["train"]


async def test_a_log_that_is_read_while_the_disk_refuses_is_told_once(path: Path) -> None:
    told: list[Event] = [
        {"ts": 10.0, "name": "decision", "decision": "train", "reason": "time"},
        {"ts": 11.0, "name": "round_aborted", "round": 2},
        {"ts": 12.0, "name": "round_finalized", "round": 1, "height": 1, "wall_s": 4.0},
    ]
    world = World(path, 1, *told)
    world.store.refuses = True
    for _ in range(3):
        await world.chronicler.write()
    world.store.refuses = False
    await world.chronicler.write()
    assert [one.decision for one in world.history.decisions(0, 10)] == ["train"]
    assert world.history.rounds(0, 10)[0].ended_s == 12.0


async def test_a_file_that_is_damaged_while_the_node_runs_is_begun_anew_from_the_chain(
    path: Path, autojump_clock: MockClock
) -> None:
    world = World(path, 3)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.chronicler.run)
        await trio.sleep(1)
        await world.chronicler.end()
        path.write_bytes(b"rot " * 5000)
        world.publish()
        await trio.sleep(3 * WRITE_EVERY_S)
        nursery.cancel_scope.cancel()
    assert world.heights() == [1, 2, 3, 4]
    assert world.log.counts[names.HISTORY_SET_ASIDE] == 1


async def test_a_vertex_that_is_damaged_keeps_no_other_from_the_history(path: Path) -> None:
    world = World(path, 3)
    world.chain.damaged.add(2)
    await world.chronicler.write()
    assert world.heights() == [1, 3]


async def test_a_vertex_that_was_mended_comes_into_the_history_later(
    path: Path, autojump_clock: MockClock
) -> None:
    world = World(path, 5)
    world.chain.damaged |= {2, 3, 4}
    await world.chronicler.write()
    world.chain.damaged.discard(2)
    await trio.sleep(TRIM_EVERY_S + 1)
    await world.chronicler.write()
    assert world.heights() == [1, 2, 5]
    await world.chronicler.end()
    again = World(path, 5)  # a restart
    await again.chronicler.write()
    assert again.heights() == [1, 2, 3, 4, 5]
    assert again.history.sums().rounds == 5


async def test_the_last_rounds_are_written_when_the_node_stops(
    path: Path, mock_clock: MockClock
) -> None:
    world = World(path, 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.chronicler.run)
        await trio.testing.wait_all_tasks_blocked()
        world.publish()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert world.heights() == []
    await world.chronicler.end()
    assert world.heights() == [1]


async def test_a_node_that_stops_opens_no_history_that_its_disk_refuses(path: Path) -> None:
    world = World(path, 1)
    world.store.refuses = True
    await world.chronicler.write()
    await world.chronicler.end()
    assert world.store.opened == 1


async def test_old_rounds_are_folded_now_and_then(path: Path, autojump_clock: MockClock) -> None:
    world = World(path, 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.chronicler.run)
        world.publish()
        await trio.sleep(60)
        world.now_s += 40 * 86_400
        world.publish()
        await trio.sleep(3700)
        nursery.cancel_scope.cancel()
    assert world.heights() == [2]
    assert [span.rounds for span in world.history.spans()] == [1]
