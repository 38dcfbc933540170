"""An operator's desk over a node that stands still, which answers as it is described."""

from collections.abc import Callable, Mapping
from typing import Any

from daa_node.api.audit import Deed
from daa_node.api.command_routes import Commands, command_routes
from daa_node.api.metrics import Facts
from daa_node.api.operator_desk import OperatorDesk, Transport
from daa_node.api.reading_routes import Sources, reading_routes
from daa_node.api.routes import Route
from daa_node.api.tokens import Tokens
from daa_node.wire.http_messages import Reply, Visit
from tests.daa_node.api.as_described import described_by

TOKENS = Tokens(read="1a" * 32, admin="2b" * 32)
STATUS: Mapping[str, Any] = {
    "schema_version": 1,
    "node_id": "aa" * 32,
    "peer_id": "12D3KooWAlice",
    "chain_id": "cc" * 32,
    "pid": 5,
    "trainer_pid": 7,
    "addresses": [],
    "reachability": {"reach": "direct"},
    "gateway": None,
    "api": None,
    "calibration": None,
    "part": "validator",
    "phase": "training",
    "paused": False,
    "retired": False,
    "never_trains": False,
    "protocol": {"in_use": 1, "next_from_round": None, "speaks_next": False},
    "round": 5,
    "height": 4,
    "vertex_id": "dd" * 32,
    "model_root": "ee" * 32,
    "loss_nats": 2.25,
    "alarm": None,
    "storage": {"chain_bytes": 1000, "work_bytes": 200, "bytes_max": None, "level": "room"},
    "copies": {"wanted": 3, "states": []},
    "damaged": [],
    "repaired": [],
    "validators": {"reachable": 3, "total": 4, "quorum": 3, "stake": 4},
    "trainers": {"reachable": 0, "total": 0},
    "waiting": None,
    "decisions": [{"decision": "train", "reason": "round 5 is open"}],
    "bytes_sent": 123,
    "bytes_received": 456,
    "link": None,
    "done": False,
    "ended_because": None,
    "anon_rss_bytes": 9_000_000,
}


LISTS: Mapping[str, Any] = {"validators": [], "waiting": [], "asked": [], "dropped": []}


def facts(**more: Any) -> Facts:
    told: dict[str, Any] = {
        "status": STATUS,
        "is_ready": True,
        "peers_connected": 3,
        "round_s": 1.5,
        "connections": 1,
        "events": {"round_finalized": 4},
        "answers": {200: 2},
    }
    return Facts(**{**told, **more})


class CheckedDesk(OperatorDesk):
    """One whose every answer is held against the document that describes its routes."""

    def __init__(self, tokens: Tokens, routes: tuple[Route, ...], *more: Any) -> None:
        super().__init__(tokens, routes, *more)
        self._described = described_by(routes)

    async def answer(self, visit: Visit) -> Reply:
        reply = await super().answer(visit)
        path, kind = visit.target.partition("?")[0], dict(reply.headers).get("Content-Type", "")
        self._described.check(visit.method, path, reply.status, kind, reply.body)
        return reply


async def _status() -> Mapping[str, Any]:
    return STATUS


async def no_peers() -> Mapping[str, Any]:
    return {"schema_version": 1, "peers": []}


async def _rounds() -> Mapping[str, Any]:
    return {"schema_version": 1, "rounds": []}


async def _validators() -> Mapping[str, Any]:
    return {"schema_version": 1, "epoch": 0, "epoch_rounds": 7, "quorum": 3, "stake": 4, **LISTS}


async def _facts() -> Facts:
    return facts()


DONE: Mapping[str, Any] = {"draining": True, "paused": False, "id": "ab" * 32}


class Done:
    """Commands that do nothing, and what they were told to do."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def commands(self) -> Commands:
        def doing(name: str) -> Any:
            async def command(request: Mapping[str, Any]) -> Mapping[str, Any]:
                self.asked.append((name, request))
                return {"schema_version": 1, "done": name, **DONE}

            return command

        return Commands(**{name: doing(name) for name in ("drain", "pause", "resume", "approve")})


def operator_desk(
    port: Callable[[], int] = lambda: 9180,
    why_not_ready: Callable[[], str | None] = lambda: None,
    hosts: tuple[str, ...] = (),
    peers: Any = no_peers,
    more: tuple[Route, ...] = (),
    audit: Callable[[Deed], None] = lambda _: None,
    done: Done | None = None,
    transport: Transport = Transport.PLAIN,
) -> OperatorDesk:
    """`more`: rows beside those of every node."""
    return CheckedDesk(
        TOKENS, rows(peers, why_not_ready, done, more), port, audit, hosts, transport
    )


def rows(
    peers: Any = no_peers,
    why_not_ready: Callable[[], str | None] = lambda: None,
    done: Done | None = None,
    more: tuple[Route, ...] = (),
) -> tuple[Route, ...]:
    """Those of every node, and `more`."""
    return (
        *reading_routes(Sources(_status, peers, _rounds, _validators, why_not_ready, _facts)),
        *command_routes((done or Done()).commands()),
        *more,
    )
