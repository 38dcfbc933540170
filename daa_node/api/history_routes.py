"""The history over HTTP: rounds and decisions by pages, and what each host has contributed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from daa_dag.ids import NodeId
from daa_node.api.answers import Contributions, PastDecisions, PastRounds, PastSpans
from daa_node.api.replies import said, told
from daa_node.api.routes import Asked, Parameter, Route
from daa_node.api.tokens import Right
from daa_node.chronicle.store import ROWS_MAX, HistoryStore
from daa_node.errors import StorageFailed
from daa_node.seams import Offload
from daa_node.wire.http_messages import Reply

SCHEMA_VERSION = 1
ROWS = 100  # of a page, if nothing is said
READERS_MAX = 2  # at once: rounds write to the disk on the same few threads
OFF = "this node keeps no history: set `history: {enabled: true}` in config.yaml, and restart it"
_LIMIT = Parameter("limit", "rows at most", ROWS, ROWS_MAX)
ROUNDS = (Parameter("after", "rounds above this height", 0), _LIMIT)
DECISIONS = (Parameter("after", "decisions above this number", 0), _LIMIT)


def history_routes(store: HistoryStore | None, offload: Offload, me: NodeId) -> tuple[Route, ...]:
    """None: it is off, and each of them says so."""
    turn = trio.Semaphore(READERS_MAX)

    async def read(make: Callable[[HistoryStore], dict[str, Any]]) -> Reply:
        if store is None:
            return said(404, OFF)
        try:  # many rows are much text: the event loop has no time for that either
            async with turn:
                return await offload.run(partial(_answer, make, store))
        except StorageFailed as failure:
            return said(503, f"{failure}; it is read again when you ask again")

    async def rounds(asked: Asked) -> Reply:
        after, limit = asked.number("after"), asked.number("limit")

        def page(kept: HistoryStore) -> dict[str, Any]:
            rows = kept.rounds(after, limit)
            following = rows[-1].height if rows else after
            return {"rounds": [row.as_told() for row in rows], "next_after": following}

        return await read(page)

    async def decisions(asked: Asked) -> Reply:
        after, limit = asked.number("after"), asked.number("limit")

        def page(kept: HistoryStore) -> dict[str, Any]:
            rows = kept.decisions(after, limit)
            following = rows[-1].number if rows else after
            return {"decisions": [row.as_told() for row in rows], "next_after": following}

        return await read(page)

    async def spans(_: Asked) -> Reply:
        return await read(lambda kept: {"spans": [span.as_told() for span in kept.spans()]})

    async def contributions(_: Asked) -> Reply:
        return await read(lambda kept: {**kept.sums().as_told(me), "node_id": me.hex()})

    rows = (
        ("/v1/history/rounds", rounds, ROUNDS, PastRounds, "Past rounds, by pages."),
        ("/v1/history/decisions", decisions, DECISIONS, PastDecisions, "Past decisions, by pages."),
        ("/v1/history/spans", spans, (), PastSpans, "What is told by the hour or the day."),
        ("/v1/contributions", contributions, (), Contributions, "What each host has contributed."),
    )
    return tuple(
        Route("GET", path, Right.READ, answer, params, tells=tells, may_lack=True, meaning=meaning)
        for path, answer, params, tells, meaning in rows
    )


def _answer(make: Callable[[HistoryStore], dict[str, Any]], store: HistoryStore) -> Reply:
    return told({"schema_version": SCHEMA_VERSION, **make(store)})
