"""An operator's desk over a node that stands still."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from daa_node.api.audit import Deed
from daa_node.api.command_routes import Commands, command_routes
from daa_node.api.metrics import Facts
from daa_node.api.operator_desk import OperatorDesk, Transport
from daa_node.api.reading_routes import Sources, reading_routes
from daa_node.api.routes import Route
from daa_node.api.tokens import Tokens

TOKENS = Tokens(read="1a" * 32, admin="2b" * 32)
STATUS: Mapping[str, Any] = {
    "node_id": "aa" * 32,
    "chain_id": "cc" * 32,
    "trainer_pid": 7,
    "phase": "training",
    "paused": False,
    "round": 5,
    "height": 4,
    "loss_nats": 2.25,
    "alarm": None,
    "storage": {"chain_bytes": 1000, "work_bytes": 200, "bytes_max": None, "level": "room"},
    "damaged": [],
    "validators": {"reachable": 3, "total": 4, "quorum": 3, "stake": 4},
    "trainers": {"reachable": 0, "total": 0},
    "bytes_sent": 123,
    "bytes_received": 456,
    "done": False,
    "anon_rss_bytes": 9_000_000,
}


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


def strict_json(body: bytes) -> Any:
    """As a browser reads it: NaN and infinities are no JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(body, parse_constant=refuse)


async def _status() -> Mapping[str, Any]:
    return STATUS


async def _peers() -> Mapping[str, Any]:
    return {"schema_version": 1, "peers": []}


async def _rounds() -> Mapping[str, Any]:
    return {"schema_version": 1, "rounds": []}


async def _validators() -> Mapping[str, Any]:
    return {"schema_version": 1, "epoch": 0, "validators": [], "waiting": [], "asked": []}


async def _facts() -> Facts:
    return facts()


class Done:
    """Commands that do nothing, and what they were told to do."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def commands(self) -> Commands:
        def doing(name: str) -> Any:
            async def command(request: Mapping[str, Any]) -> Mapping[str, Any]:
                self.asked.append((name, request))
                return {"schema_version": 1, "done": name}

            return command

        return Commands(**{name: doing(name) for name in ("drain", "pause", "resume", "approve")})


def operator_desk(
    port: Callable[[], int] = lambda: 9180,
    why_not_ready: Callable[[], str | None] = lambda: None,
    hosts: tuple[str, ...] = (),
    peers: Any = _peers,
    more: tuple[Route, ...] = (),
    audit: Callable[[Deed], None] = lambda _: None,
    done: Done | None = None,
    transport: Transport = Transport.PLAIN,
) -> OperatorDesk:
    """`more`: rows beside those of every node."""
    return OperatorDesk(
        TOKENS, rows(peers, why_not_ready, done, more), port, audit, hosts, transport
    )


def rows(
    peers: Any = _peers,
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
