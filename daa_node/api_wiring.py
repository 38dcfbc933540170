"""What the operator's HTTP API is given of the node, where it has one.

Each part of the API has its routes in a module of its own; here they become one table.
"""

from collections.abc import Callable

from daa_node.api.audit import Deed
from daa_node.api.baseline_route import baseline_route
from daa_node.api.command_routes import Commands, command_routes
from daa_node.api.config import ApiConfig
from daa_node.api.dashboard_routes import dashboard_routes
from daa_node.api.description import description_route
from daa_node.api.drawing_routes import DrawingSources, drawing_routes
from daa_node.api.event_stream import EventStream
from daa_node.api.handlers import Handlers
from daa_node.api.history_routes import history_routes
from daa_node.api.metrics import Facts
from daa_node.api.operator_desk import OperatorDesk, Transport
from daa_node.api.public_desk import PublicDesk
from daa_node.api.readiness import Condition
from daa_node.api.reading_routes import Sources, reading_routes
from daa_node.api.settings_routes import settings_routes
from daa_node.node_parts import NodeParts, OperatorApi
from daa_node.observability.events import API_COMMANDED
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
        rounds=lambda: handlers.rounds({}),
        validators=lambda: handlers.validators({}),
        why_not_ready=why_not_ready,
        facts=facts,
        newest_round=lambda: _newest_round(runner),
    )
    commands = Commands(
        drain=handlers.drain,
        pause=handlers.pause,
        resume=handlers.resume,
        approve=handlers.approve,
    )
    kept = None if parts.history is None else parts.history.store
    routes = (
        *reading_routes(sources),
        *drawing_routes(_drawings(parts, handlers, runner)),
        *dashboard_routes(api.dashboard),
        *command_routes(commands),
        *settings_routes(api.settings),
        *EventStream(parts.events, parts.entropy.bytes(4).hex()).routes(),
        baseline_route(api.read_baseline, parts.offload),
        *history_routes(kept, parts.offload, parts.keys.node_id),
    )
    routes = (*routes, description_route(routes))
    config = parts.config.api
    desk = OperatorDesk(
        api.tokens, routes, port, _audit(parts, api), config.hosts, _transport(config)
    )
    door.set_asking_desk(desk.answer)
    if api.public is not None:
        name = parts.genesis.job.name
        public = PublicDesk(name, sources.status, lambda: why_not_ready() is None)
        api.public.set_asking_desk(public.answer)


def _newest_round(runner: JobRunner) -> object:
    return len(runner.history.records), runner.history.records[-1:]


def _drawings(parts: NodeParts, handlers: Handlers, runner: JobRunner) -> DrawingSources:
    recent = runner.history.recent
    return DrawingSources(
        graph=recent.graph_told,
        losses=lambda: recent.losses_told(parts.keys.node_id),
        round_trips=handlers.round_trips,
        newest_round=lambda: _newest_round(runner),
    )


def _transport(config: ApiConfig) -> Transport:
    if config.behind_proxy:
        return Transport.PROXY
    return Transport.PLAIN if config.certificate is None else Transport.TLS


def _audit(parts: NodeParts, api: OperatorApi) -> Callable[[Deed], None]:
    """Into its own file, which no flood of other events pushes out, and into the event log."""

    def audit(deed: Deed) -> None:
        api.write_audit(deed.line(round(parts.clock.wall_ns() / 1e9, 3)))
        parts.events.emit(
            API_COMMANDED,
            token=deed.token,
            visitor=deed.visitor,
            asked=f"{deed.method} {deed.path}",
            body=deed.asked,
            status=deed.status,
            outcome=deed.outcome,
        )

    return audit
