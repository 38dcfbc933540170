"""The dashboard without a network behind it: the API's own door and desk, and a node in a story.

The story is told by what is asked: the first answer to `/v1/events` tells of two rounds, the next
one of a node that goes. What the desk itself decides (tokens, hosts, other sites) is decided.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import trio

from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.operator_door import operator_door
from daa_node.adapters.site_directory import DASHBOARD, read_site
from daa_node.api.dashboard_routes import dashboard_routes
from daa_node.api.replies import replied, told
from daa_node.api.routes import Asked, Route
from daa_node.api.tokens import Right
from daa_node.observability.events import EventLog
from daa_node.wire.http_messages import Reply, Visit
from daa_node.wire.page_files import Site
from tests.daa_node.api.operator_desks import operator_desk

ME, ANNE, BERT, CLEO = (pair * 32 for pair in ("a1", "b2", "c3", "d4"))
OTHERS = (ANNE, BERT, CLEO)
BEHIND = "/story"  # where the rows of the story are, so that the desk's own stay as they are
HEALTH = {
    "level": "priority",
    "score": 0.91,
    "weakest": "network",
    "would_raise": "a faster uplink",
    "excluded_because": None,
    "since_round": 1,
    "components": {},
}
REQUEST = {
    "id": "5e" * 32,
    "what": f"join {'e5' * 8} with stake 1",
    "expires_epoch": 3,
    "approved_weight": 2,
    "in_chain": True,
}

SETTINGS = {
    "file": "/home/alice/node/config.yaml",
    "digest": "9f" * 32,
    "settings": [
        {"key": "log.files_max", "value": 5, "origin": "default", "reloads": True},
        {"key": "storage.bytes_max", "value": None, "origin": "default", "reloads": True},
        {
            "key": "network.listen",
            "value": ["/ip4/0.0.0.0/tcp/4001"],
            "origin": "config.yaml",
            "reloads": False,
        },
    ],
}


def contributions() -> dict[str, Any]:
    """In tokens, as a node has kept them."""
    hosts = zip((ANNE, BERT, ME, CLEO), (410_000, 380_000, 205_000, 190_000), strict=True)
    return {
        "rounds": 12,
        "tokens": 1_185_000,
        "contributions": [
            {
                "node_id": node,
                "mine": node == ME,
                "rounds": tokens // 40_000,
                "void": int(node == CLEO),
                "tokens": tokens,
                "share": round(tokens / 1_185_000, 6),
                "last_height": 12,
                "left_out": {"it came after the set was decided": 2} if node == CLEO else {},
            }
            for node, tokens in hosts
        ],
    }


def status(is_cleo_here: bool, height: int) -> dict[str, Any]:
    return {
        "node_id": ME,
        "peer_id": "12D3KooWStory",
        "chain_id": "c0" * 32,
        "pid": 4711,
        "trainer_pid": 4712,
        "addresses": ["/ip4/127.0.0.1/tcp/4001"],
        "reachability": {
            "reach": "relayed",
            "why": "nobody who dialled back got through",
            "seen_at": ["198.51.100.7:4001"],
            "relays": ["12D3KooWRelay"],
            "punched": [],
        },
        "part": "validator",
        "phase": "training",
        "round": height,
        "height": height,
        "vertex_id": "ee" * 32,
        "loss_nats": 2.4061,
        "alarm": None,
        "storage": {"chain_bytes": 8e8, "work_bytes": 1e8, "bytes_max": 1e9, "level": "near"},
        "copies": {"wanted": 3, "states": []},
        "damaged": [],
        "validators": {"reachable": 3 + is_cleo_here, "total": 4, "quorum": 3, "stake": 4},
        "trainers": {"reachable": 0, "total": 0},
        "waiting": None,
        "decisions": [
            {"decision": "train", "reason": "round 13 is open and a quorum is reachable"},
            {"decision": "steps 40", "reason": "the plan's 40 at 61.2 ms a step"},
            {"decision": "codec int8", "reason": "the plan's; upload forecast 0.31 s"},
        ],
        "bytes_sent": 12_000_000,
        "bytes_received": 34_000_000,
        "done": False,
        "ended_because": None,
        "anon_rss_bytes": 180_000_000,
    }


def peer(node_id: str, is_here: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "peer_id": f"12D3KooW{node_id[:8]}",
        "connected": is_here,
        "relayed": False,
        "punched": False,
        "reach": "direct",
        "role": "cloud",
        "part": "validator",
        "faults": {},
        "height": 12,
        "rtt_ms": 12.4,
        "health": HEALTH,
        "sees_us": {
            "level": "normal",
            "score": 0.62,
            "weakest": "uptime",
            "would_raise": "staying for more rounds in a row",
        },
        "shunned_until_round": None,
        "last_seen_s": 0.4 if is_here else 7.0,
        **more,
    }


def rounds() -> list[dict[str, Any]]:
    return [
        {
            "height": height,
            "training_round": height,
            "vertex_id": f"{height:02x}" * 32,
            "loss_nats": round(2.1 + 3.4 / (1 + height / 2), 4),
            "certified_by": [ME, *OTHERS][: 3 + height % 2] if height else [],
            "contributors": [ME, *OTHERS][height % 2 :] if height else [],
            "voided": [CLEO] if height == 7 else [],
            "bytes_sent": 1_240_000 if height else 0,
            "wall_s": 6.1 if height else 0.0,
        }
        for height in range(13)
    ]


def one_round(number: int, began_s: float, is_whole: bool) -> list[dict[str, Any]]:
    steps: list[tuple[float, str, dict[str, Any]]] = [
        (0.0, "round_started", {"base": "ee" * 32, "steps": 40}),
        (2.6, "update_sealed", {"steps": 40, "tokens": 81_920, "loss_nats": 2.3817}),
        (2.9, "offer_eligible", {"author": ME}),
        (3.4, "offer_eligible", {"author": ANNE}),
        (4.1, "set_decided", {"contributors": 3, "left_out": 1, "ours": True}),
        (4.6, "set_executed", {"wall_s": 0.5}),
        (5.2, "exec_certified", {"vertex_id": "ee" * 32, "signers": 3}),
        (
            6.1,
            "round_finalized",
            {"height": number, "contributors": 3, "wall_s": 6.1, "loss_nats": 2.4061},
        ),
    ]
    kept = steps if is_whole else steps[:4]
    return [
        {"ts": began_s + at_s, "name": name, "round": number, **fields}
        for at_s, name, fields in kept
    ]


class Story:
    """What a node tells that has lost sight of one other."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        began_s = now_s() - 21.0
        decision = {"decision": "train", "reason": "round 13 is open and a quorum is reachable"}
        gone = {"node_id": CLEO, "peer_id": f"12D3KooW{CLEO[:8]}", "reason": "connection ended"}
        self._first = [
            *one_round(11, began_s, True),
            *one_round(12, began_s + 7, True),
            {"ts": began_s + 14, "name": "decision", **decision},
            *one_round(13, began_s + 14, False),
        ]
        self._then = [{"ts": began_s + 18, "name": "peer_left", **gone}]
        self._is_cleo_here = True

    def rows(self) -> tuple[Route, ...]:
        answers: Mapping[str, Callable[[], Mapping[str, Any]]] = {
            "/v1/status": lambda: status(self._is_cleo_here, 12),
            "/v1/peers": lambda: {
                "peers": [
                    peer(ANNE),
                    peer(BERT, rtt_ms=148.0, relayed=True, reach="relayed"),
                    peer(CLEO, self._is_cleo_here, faults={"late": 2}, rtt_ms=31.0),
                ]
            },
            "/v1/settings": lambda: SETTINGS,
            "/v1/contributions": contributions,
            "/v1/rounds": lambda: {"rounds": rounds()},
            "/v1/validators": lambda: {
                "epoch": 1,
                "epoch_rounds": 8,
                "quorum": 3,
                "stake": 4,
                "validators": [{"node_id": n, "stake": 1, "peer_id": None} for n in (ME, *OTHERS)],
                "waiting": [REQUEST],
                "asked": [],
                "dropped": [],
            },
        }
        return (
            *(
                Route("GET", f"{BEHIND}{path}", Right.READ, _telling(answer))
                for path, answer in answers.items()
            ),
            Route("GET", f"{BEHIND}/v1/events", Right.READ, self._events),
            *dashboard_routes(Site(read_site(DASHBOARD))),
        )

    async def _events(self, asked: Asked) -> Reply:
        told_now, self._then = (self._first, self._then) if self._first else (self._then, [])
        if not self._first:
            self._is_cleo_here = False
        number, self._first = (1 if self._first else 100), []
        body = "".join(
            f"id: s-{number + at}\nevent: {event['name']}\ndata: {json.dumps(event)}\n\n"
            for at, event in enumerate(told_now)
        )
        return replied(200, f": {asked.path}\n\n{body}".encode(), "text/event-stream")


def _telling(answer: Callable[[], Mapping[str, Any]]) -> Callable[[Asked], Any]:
    async def tell(_: Asked) -> Reply:
        return told(answer())

    return tell


@asynccontextmanager
async def dashboard_alone(now_s: Callable[[], float]) -> AsyncIterator[str]:
    """The address of the page, without a token, while it is open."""
    events = EventLog(lambda: 0)
    door = operator_door("127.0.0.1:0", events, Shortage(), Random(1))

    def port() -> int:
        return int(str(door.standing()["listens"]).rpartition(":")[2])

    desk = operator_desk(port, more=Story(now_s).rows())

    async def answer(visit: Visit) -> Reply:
        of_story = visit.target.startswith("/v1/")
        return await desk.answer(
            replace(visit, target=f"{BEHIND}{visit.target.partition('?')[0]}")
            if of_story
            else visit
        )

    door.set_asking_desk(answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door.run)
        with trio.fail_after(60):
            while door.standing()["url"] is None:
                await trio.sleep(0.05)
        yield str(door.standing()["url"])
        nursery.cancel_scope.cancel()
