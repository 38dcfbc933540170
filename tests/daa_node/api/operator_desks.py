"""An operator's desk over a node that stands still."""

from collections.abc import Callable, Mapping
from typing import Any

from daa_node.api.metrics import Facts
from daa_node.api.operator_desk import OperatorDesk
from daa_node.api.reading_routes import Sources, reading_routes
from daa_node.api.routes import Route
from daa_node.api.tokens import Tokens

TOKENS = Tokens(read="1a" * 32, admin="2b" * 32)
STATUS: Mapping[str, Any] = {
    "node_id": "aa" * 32,
    "chain_id": "cc" * 32,
    "trainer_pid": 7,
    "phase": "training",
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


async def _status() -> Mapping[str, Any]:
    return STATUS


async def _peers() -> Mapping[str, Any]:
    return {"schema_version": 1, "peers": []}


async def _facts() -> Facts:
    return facts()


def operator_desk(
    port: Callable[[], int] = lambda: 9180,
    why_not_ready: Callable[[], str | None] = lambda: None,
    hosts: tuple[str, ...] = (),
    peers: Any = _peers,
    more: tuple[Route, ...] = (),
) -> OperatorDesk:
    """`more`: rows beside those that read how a node stands."""
    routes = reading_routes(Sources(_status, peers, why_not_ready, _facts))
    return OperatorDesk(TOKENS, (*routes, *more), port, hosts)
