"""What is drawn over HTTP: with the token that reads, and made once a round."""

import json
from typing import Any

from daa_node.api.drawing_routes import DrawingSources, drawing_routes
from daa_node.wire.http_messages import Reply, Visit
from tests.daa_node.api.operator_desks import TOKENS, operator_desk


class Rounds:
    """A source that counts how often it is asked."""

    def __init__(self) -> None:
        self.newest, self.asked = 1, 0

    def tell(self) -> dict[str, Any]:
        self.asked += 1
        return {"vertices": [{"height": self.newest}]}


async def asked(rounds: Rounds, *targets: str, token: str = TOKENS.read) -> list[Reply]:
    sources = DrawingSources(rounds.tell, rounds.tell, rounds.tell, lambda: rounds.newest)
    desk = operator_desk(more=drawing_routes(sources))
    header = f"Bearer {token}" if token else ""
    return [
        await desk.answer(Visit("GET", target, "127.0.0.1:9180", authorization=header))
        for target in targets
    ]


async def test_checkpoints_and_losses_are_told_to_who_may_read() -> None:
    replies = await asked(Rounds(), "/v1/checkpoints", "/v1/losses")
    assert [reply.status for reply in replies] == [200, 200]
    assert json.loads(replies[0].body) == {"schema_version": 1, "vertices": [{"height": 1}]}
    refused = await asked(Rounds(), "/v1/checkpoints", "/v1/losses", token="")
    assert [reply.status for reply in refused] == [401, 401]


async def test_many_who_ask_in_one_round_get_one_answer() -> None:
    rounds = Rounds()
    await asked(rounds, *["/v1/losses"] * 5)
    assert rounds.asked == 1
