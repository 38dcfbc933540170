"""What is drawn over HTTP: with the token that reads, and made once a round."""

import json
from collections.abc import Mapping
from typing import Any

import trio

from daa_node.api.advice_route import advice_route
from daa_node.api.baseline_route import baseline_route
from daa_node.api.drawing_routes import DrawingSources, drawing_routes
from daa_node.api.round_trips import told_round_trips
from daa_node.network.directory import Directory
from daa_node.observability.events import EventLog
from daa_node.seams import PeerId
from daa_node.wire.http_messages import Reply, Visit
from tests.daa_node.api.operator_desks import TOKENS, operator_desk
from tests.daa_node.inline import Inline
from tests.daa_node.rounds.test_end import with_losses
from tests.daa_node.rounds.test_plan import ALICE
from tests.daa_node.rounds.test_recent_vertices import recent

VERTEX = with_losses(2_000_000, 0)
PEER = PeerId("12D3KooWPeer")


class Rounds:
    """A source that counts how often it is asked."""

    def __init__(self) -> None:
        self.newest, self.asked = 1, 0

    def graph(self) -> dict[str, Any]:
        return recent(*[VERTEX] * self.newest).graph_told()

    def losses(self) -> dict[str, Any]:
        self.asked += 1
        return recent(*[VERTEX] * self.newest).losses_told(ALICE)

    @staticmethod
    def round_trips() -> Mapping[str, Any]:
        directory = Directory(trio.current_time, {ALICE: PEER}, EventLog(lambda: 0))
        directory.saw(PEER, 1)
        directory.note_round_trip(PEER, 0.020)
        return told_round_trips(directory, {PEER}, {ALICE})


async def asked(rounds: Rounds, *targets: str, token: str = TOKENS.read) -> list[Reply]:
    sources = DrawingSources(rounds.graph, rounds.losses, rounds.round_trips, lambda: rounds.newest)
    desk = operator_desk(more=drawing_routes(sources))
    header = f"Bearer {token}" if token else ""
    return [
        await desk.answer(Visit("GET", target, "127.0.0.1:9180", authorization=header))
        for target in targets
    ]


async def test_what_is_drawn_is_told_to_who_may_read() -> None:
    paths = "/v1/checkpoints", "/v1/losses", "/v1/round-trips"
    replies = await asked(Rounds(), *paths)
    assert [reply.status for reply in replies] == [200] * 3
    graph, losses, round_trips = (json.loads(reply.body) for reply in replies)
    assert [row["height"] for row in graph["vertices"]] == [1]
    assert losses["median_nats"] == [2.0]
    assert round_trips["peers"][0]["rtts_ms"][-1] == 20.0
    refused = await asked(Rounds(), *paths, token="")
    assert [reply.status for reply in refused] == [401] * 3


def test_what_each_answer_holds_is_described() -> None:
    sources = DrawingSources(dict, dict, dict, int)
    rows = (*drawing_routes(sources), baseline_route(None, Inline()), advice_route())
    assert [row.path for row in rows if row.tells is None] == []


async def test_many_who_ask_in_one_round_get_one_answer() -> None:
    rounds = Rounds()
    await asked(rounds, *["/v1/losses"] * 5)
    assert rounds.asked == 1
