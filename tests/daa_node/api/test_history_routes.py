"""The history over HTTP: pages that go on, sums with our own marked, and a word where it is off."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.api.history_routes import READERS_MAX, history_routes
from daa_node.chronicle.rows import Batch, Decided
from daa_node.wire.http_messages import Reply, Visit
from tests.daa_node.api.operator_desks import TOKENS, operator_desk
from tests.daa_node.chronicle.rows_at_hand import ALICE, BOB, a_round, left_out
from tests.daa_node.inline import Inline

T = TypeVar("T")
PATHS = ("/v1/history/rounds", "/v1/history/decisions", "/v1/history/spans", "/v1/contributions")


@pytest.fixture
def store(tmp_path: Path) -> SqliteHistory:
    history = SqliteHistory(tmp_path / "rounds.sqlite")
    history.open()
    rounds = tuple(a_round(n, left_out=(left_out(n, BOB),)) for n in range(1, 6))
    history.write(Batch(rounds, decisions=tuple(Decided(n, "train", "time") for n in range(5))))
    return history


async def asked(store: SqliteHistory | None, target: str, token: str = TOKENS.read) -> Reply:
    desk = operator_desk(more=history_routes(store, Inline(), ALICE))
    header = f"Bearer {token}" if token else ""
    return await desk.answer(Visit("GET", target, "127.0.0.1:9180", authorization=header))


async def told(store: SqliteHistory, target: str) -> Any:
    reply = await asked(store, target)
    assert reply.status == 200
    return json.loads(reply.body)


async def test_rounds_and_decisions_come_by_pages_that_say_where_to_go_on(
    store: SqliteHistory,
) -> None:
    first = await told(store, "/v1/history/rounds?limit=2")
    assert [row["height"] for row in first["rounds"]] == [1, 2]
    second = await told(store, f"/v1/history/rounds?after={first['next_after']}")
    assert [row["height"] for row in second["rounds"]] == [3, 4, 5]
    assert second["rounds"][0]["left_out"] == [{"node_id": BOB.hex(), "why": "late"}]
    end = await told(store, "/v1/history/rounds?after=5")
    assert (end["rounds"], end["next_after"]) == ([], 5)
    page = await told(store, "/v1/history/decisions?after=3&limit=9")
    assert [row["number"] for row in page["decisions"]] == [4, 5]


async def test_a_crowd_of_readers_leaves_threads_to_the_rounds(store: SqliteHistory) -> None:
    reading, goes_on = list[int](), trio.Event()

    class Slow:
        async def run(self, work: Callable[[], T]) -> T:
            reading.append(1)
            await goes_on.wait()
            return work()

    desk = operator_desk(more=history_routes(store, Slow(), ALICE))
    header = f"Bearer {TOKENS.read}"
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            visit = Visit("GET", PATHS[0], "127.0.0.1:9180", authorization=header)
            nursery.start_soon(desk.answer, visit)
        await trio.testing.wait_all_tasks_blocked()
        assert len(reading) == READERS_MAX
        goes_on.set()
    assert len(reading) == 20


async def test_contributions_say_which_is_ours(store: SqliteHistory) -> None:
    answer = await told(store, "/v1/contributions")
    mine = {row["node_id"]: row["mine"] for row in answer["contributions"]}
    assert mine == {ALICE.hex(): True, BOB.hex(): False}
    assert (answer["rounds"], answer["tokens"], answer["node_id"]) == (5, 10_000, ALICE.hex())
    assert answer["contributions"][0]["share"] == 0.5
    assert await told(store, "/v1/history/spans") == {"schema_version": 1, "spans": []}


@pytest.mark.parametrize("path", PATHS)
async def test_each_takes_a_token_and_says_so_where_there_is_no_history(path: str) -> None:
    assert (await asked(None, path, token="")).status == 401
    reply = await asked(None, path)
    assert reply.status == 404
    assert b"keeps no history" in reply.body


async def test_a_limit_that_is_too_high_and_a_file_that_is_gone_are_told(
    store: SqliteHistory, tmp_path: Path
) -> None:
    assert (await asked(store, "/v1/history/rounds?limit=1001")).status == 400
    gone = await asked(SqliteHistory(tmp_path / "gone.sqlite"), "/v1/contributions")
    assert gone.status == 503
