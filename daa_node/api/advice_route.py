"""What events mean and what to do, over HTTP: the table of advice, as the dashboard reads it."""

from collections.abc import Iterable, Mapping

from daa_node.advice.of_events import EVENTS
from daa_node.advice.of_reasons import REFUSALS, VOLUNTEERS
from daa_node.advice.row import Row
from daa_node.api.drawn_answers import AdviceTable
from daa_node.api.replies import told
from daa_node.api.routes import Asked, Route
from daa_node.api.tokens import Right
from daa_node.wire.http_messages import Reply


def advice_route() -> Route:
    """It is the same for as long as the program is."""
    reply = told(
        {
            "schema_version": 1,
            "events": _by_key(EVENTS),
            "refusals": _by_key(REFUSALS),
            "volunteers": _by_key(VOLUNTEERS),
        }
    )

    async def answer(_: Asked) -> Reply:
        return reply

    return Route(
        "GET",
        "/v1/advice",
        Right.READ,
        answer,
        tells=AdviceTable,
        meaning="What each event and each reason means, and what to do; empty: nothing.",
    )


def _by_key(rows: Iterable[Row]) -> Mapping[str, Mapping[str, str]]:
    return {row.key: {"means": row.means, "do": row.do} for row in rows}
