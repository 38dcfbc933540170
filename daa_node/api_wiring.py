"""What the operator's HTTP API is given of the node, where it has one.

Each part of the API has its routes in a module of its own; here they become one table.
"""

from collections.abc import Callable

from daa_node.api.dashboard_routes import dashboard_routes
from daa_node.api.handlers import Handlers
from daa_node.api.metrics import Facts
from daa_node.api.operator_desk import OperatorDesk
from daa_node.api.readiness import Condition
from daa_node.api.reading_routes import Sources, reading_routes
from daa_node.node_parts import NodeParts
from daa_node.rounds.job_runner import JobRunner


def set_operator_desk(
    parts: NodeParts, handlers: Handlers, runner: JobRunner, condition: Callable[[], Condition]
) -> None:
    """The API's door answers from now on, once it is opened."""
    api = parts.api
    if api is None:
        return
    door = api.door

    def port() -> int:
        return int(str(door.standing()["listens"]).rpartition(":")[2])

    def why_not_ready() -> str | None:
        return condition().why_not_ready()

    async def facts() -> Facts:
        records = runner.history.records
        return Facts(
            status=await handlers.status({}),
            is_ready=why_not_ready() is None,
            peers_connected=len(parts.transport.connected()),
            round_s=records[-1].wall_s if records else None,
            connections=int(door.standing()["connections"]),
            events=parts.events.counts,
            answers=desk.answers,
        )

    sources = Sources(
        status=lambda: handlers.status({}),
        peers=lambda: handlers.peers({}),
        why_not_ready=why_not_ready,
        facts=facts,
    )
    routes = (
        *reading_routes(sources),
        *dashboard_routes(api.dashboard),
    )
    desk = OperatorDesk(api.tokens, routes, port, parts.config.api.hosts)
    door.set_asking_desk(desk.answer)
