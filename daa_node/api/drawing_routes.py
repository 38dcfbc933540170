"""What the dashboard draws, over HTTP: the newest checkpoints as a graph, and losses by node.

Answers are bounded, whatever the swarm: some 40 kB where a thousand contribute.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from daa_node.api.reading_routes import telling_once
from daa_node.api.routes import Route
from daa_node.api.tokens import Right

SCHEMA_VERSION = 1

Tell = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class DrawingSources:
    """Where answers come from. While `newest_round` is the same, so are those of vertices."""

    graph: Tell
    losses: Tell
    newest_round: Callable[[], object]


def drawing_routes(sources: DrawingSources) -> tuple[Route, ...]:
    """Of one node."""
    mark = sources.newest_round
    rows = (
        ("checkpoints", sources.graph, "The newest checkpoints, and what each stands on."),
        (
            "losses",
            sources.losses,
            "What contributors say that they measured of each of the newest checkpoints.",
        ),
    )
    return tuple(
        Route(
            "GET", f"/v1/{name}", Right.READ, telling_once(_versioned(tell), mark), meaning=meaning
        )
        for name, tell, meaning in rows
    )


def _versioned(tell: Tell) -> Callable[[], Any]:
    async def answer() -> Mapping[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **tell()}

    return answer
