"""How a node stands, over HTTP: whether it takes part, metrics, and what commands tell of it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from daa_node.api.answers import Peers, Rounds, Status, ValidatorSet
from daa_node.api.metrics import CONTENT_TYPE, Facts, Metrics
from daa_node.api.replies import TEXT, replied, said, told
from daa_node.api.routes import Asked, Route
from daa_node.api.tokens import Right
from daa_node.wire.http_messages import Reply

Source = Callable[[], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where answers come from."""

    status: Source
    peers: Source
    rounds: Source
    validators: Source
    why_not_ready: Callable[[], str | None]  # None: it is
    facts: Callable[[], Awaitable[Facts]]
    # While it is the same, so are the rounds. They may be megabytes: many programs get one answer.
    newest_round: Callable[[], object] = object


def reading_routes(sources: Sources) -> tuple[Route, ...]:
    """Of one node."""
    metrics = Metrics()

    async def livez(_: Asked) -> Reply:
        return said(200, "alive")

    async def readyz(_: Asked) -> Reply:
        why = sources.why_not_ready()
        return said(200, "ready") if why is None else said(503, why)

    async def scrape(_: Asked) -> Reply:
        return replied(200, metrics.text(await sources.facts()), CONTENT_TYPE)

    return (
        Route(
            "GET", "/livez", Right.NOTHING, livez, gives=TEXT, meaning="Whether the daemon lives."
        ),
        Route(
            "GET",
            "/readyz",
            Right.READ,
            readyz,
            gives=TEXT,
            meaning="Whether this node takes part; 503 says what is in its way.",
        ),
        Route(
            "GET",
            "/metrics",
            Right.READ,
            scrape,
            gives=CONTENT_TYPE,
            meaning="Metrics in Prometheus' text format.",
        ),
        *(
            Route("GET", f"/v1/{name}", Right.READ, answer, tells=tells, meaning=meaning)
            for name, answer, tells, meaning in (
                ("status", telling(sources.status), Status, "How this node stands."),
                (
                    "peers",
                    telling(sources.peers),
                    Peers,
                    "Whom it knows, and how they stand with it.",
                ),
                (
                    "rounds",
                    telling_once(sources.rounds, sources.newest_round),
                    Rounds,
                    "The newest rounds, as far as they are in memory.",
                ),
                (
                    "validators",
                    telling(sources.validators),
                    ValidatorSet,
                    "Who votes, and what is asked of the set.",
                ),
            )
        ),
    )


def telling(source: Source) -> Callable[[Asked], Awaitable[Reply]]:
    async def answer(_: Asked) -> Reply:
        return told(await source())

    return answer


def telling_once(source: Source, mark: Callable[[], object]) -> Callable[[Asked], Awaitable[Reply]]:
    """One answer as long as the mark is the same."""
    held: tuple[object, Reply] | None = None

    async def answer(_: Asked) -> Reply:
        nonlocal held
        now = mark()
        if held is None or held[0] != now:
            held = now, told(await source())
        return held[1]

    return answer
