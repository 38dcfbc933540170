"""What is drawn of rounds is made once a round; how far others are is told as it is now."""

import pytest

from daa_node.api.drawing_routes import DrawingSources, drawing_routes
from daa_node.rounds.recent_vertices import RecentVertices
from daa_node.wire.http_messages import Visit
from tests.daa_node.api.operator_desks import TOKENS, operator_desk
from tests.daa_node.rounds.test_plan import ALICE, PARENT


@pytest.mark.parametrize(
    ("path", "made"), [("/v1/checkpoints", 2), ("/v1/losses", 2), ("/v1/round-trips", 6)]
)
async def test_another_round_has_another_answer(path: str, made: int) -> None:
    recent, newest, times = RecentVertices(), [1], [0]
    recent.add(PARENT)

    def told(answer: dict[str, object]) -> dict[str, object]:
        times[0] += 1
        return answer

    sources = DrawingSources(
        graph=lambda: told(recent.graph_told()),
        losses=lambda: told(recent.losses_told(ALICE)),
        round_trips=lambda: told({"minutes": 60, "peers": [], "peers_in_all": 0}),
        newest_round=lambda: newest[0],
    )
    desk = operator_desk(more=drawing_routes(sources))
    header = f"Bearer {TOKENS.read}"
    for newest[0] in (1, 2):
        for _ in range(3):
            visit = Visit("GET", path, "127.0.0.1:9180", authorization=header)
            assert (await desk.answer(visit)).status == 200
    assert times == [made]
