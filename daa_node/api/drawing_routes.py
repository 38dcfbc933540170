"""What the dashboard draws, over HTTP: the checkpoint graph, losses by node, and round trips.

Answers are bounded, whatever the swarm: some 40 kB where a thousand contribute.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from daa_node.api.drawn_answers import Checkpoints, HourOfRoundTrips, Losses
from daa_node.api.reading_routes import telling, telling_once
from daa_node.api.routes import Route
from daa_node.api.tokens import Right

SCHEMA_VERSION = 1

Tell = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class DrawingSources:
    """Where answers come from. While `newest_round` is the same, so are those of vertices."""

    graph: Tell
    losses: Tell
    round_trips: Tell
    newest_round: Callable[[], object]


def drawing_routes(sources: DrawingSources) -> tuple[Route, ...]:
    """Of one node."""
    mark = sources.newest_round
    round_trips = telling(_versioned(sources.round_trips))
    rows = (
        (
            "checkpoints",
            sources.graph,
            Checkpoints,
            "The newest checkpoints, and what each stands on.",
        ),
        (
            "losses",
            sources.losses,
            Losses,
            "What contributors say that they measured of each of the newest checkpoints.",
        ),
    )
    return (
        *(
            Route(
                *("GET", f"/v1/{name}", Right.READ, telling_once(_versioned(tell), mark)),
                tells=tells,
                meaning=meaning,
            )
            for name, tell, tells, meaning in rows
        ),
        Route(
            *("GET", "/v1/round-trips", Right.READ, round_trips),
            tells=HourOfRoundTrips,
            meaning="How long round trips to peers took, by the minute, as this node measured.",
        ),
    )


def _versioned(tell: Tell) -> Callable[[], Any]:
    async def answer() -> Mapping[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **tell()}

    return answer
