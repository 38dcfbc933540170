"""The dashboard without a network behind it: the API's own door, desk and rows, a node in a story.

Two rounds are over and a third one is under way. A moment after somebody follows its events, one of
the others goes. Commands are obeyed, and settings change.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import trio

from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.operator_door import operator_door
from daa_node.adapters.site_directory import DASHBOARD, read_site
from daa_node.api.advice_route import advice_route
from daa_node.api.command_routes import Commands, command_routes
from daa_node.api.dashboard_routes import dashboard_routes
from daa_node.api.description import description_route
from daa_node.api.event_stream import EventStream
from daa_node.api.replies import told
from daa_node.api.routes import Asked, Route
from daa_node.api.settings_routes import Settings, settings_routes
from daa_node.api.tokens import Right
from daa_node.errors import UserError
from daa_node.observability import events
from daa_node.observability.events import EventLog, EventName
from daa_node.wire.http_messages import Reply, Visit
from daa_node.wire.page_files import Site
from tests.daa_node.api.operator_desks import operator_desk

ME, ANNE, BERT, CLEO = (pair * 32 for pair in ("a1", "b2", "c3", "d4"))
OTHERS = (ANNE, BERT, CLEO)
MARKUP = "<img src=/x onerror=alert(1)>"  # what a peer might say of itself
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


def status(is_cleo_here: bool, is_paused: bool) -> dict[str, Any]:
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
        "round": 12,
        "height": 12,
        "vertex_id": "ee" * 32,
        "loss_nats": 2.4061,
        "alarm": None,
        "storage": {"chain_bytes": 8e8, "work_bytes": 1e8, "bytes_max": 1e9, "level": "near"},
        "copies": {"wanted": 3, "states": []},
        "damaged": [],
        "validators": {"reachable": 3 + is_cleo_here, "total": 4, "quorum": 3, "stake": 4},
        "trainers": {"reachable": 0, "total": 0},
        "waiting": None,
        "paused": is_paused,
        "retired": False,
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
        "way": "direct",
        "why": None,
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


def checkpoints() -> list[dict[str, Any]]:
    """A chain, but for height 9: it merges two of height 8."""
    told = [
        {
            "vertex_id": f"{height:02x}" * 32,
            "height": height,
            "training_round": height,
            "parents": [f"{height - 1:02x}" * 32] if height else [],
            "rule": "trimmed_mean",
            "contributions": 4 - height % 2 if height else 0,
            "voided": int(height == 7),
            "newly_convicted": [CLEO] if height == 11 else [],
        }
        for height in range(13)
    ]
    beside = {**told[8], "vertex_id": "8b" * 32}
    told[9] = {**told[9], "parents": [told[8]["vertex_id"], beside["vertex_id"]]}
    return [*told[:9], beside, *told[9:]]


def losses() -> dict[str, Any]:
    """As each node measured; one of them has another model than the others."""
    said = [round(2.1 + 3.4 / (1 + height / 2), 4) for height in range(12)]
    away = {ME: 0.0, ANNE: 0.0004, BERT: -0.0002, CLEO: 0.3}
    return {
        "heights": list(range(12)),
        "contributors": [4] * 12,
        "measured": [4] * 12,
        "least_nats": [round(loss - 0.0002, 4) for loss in said],
        "median_nats": said,
        "greatest_nats": [round(loss + 0.3, 4) for loss in said],
        "nodes": [
            {
                "node_id": node,
                "mine": node == ME,
                "losses_nats": [
                    None if height == 4 and node == BERT else round(loss + by, 4)
                    for height, loss in enumerate(said)
                ],
            }
            for node, by in away.items()
        ],
        "nodes_in_all": 4,
    }


def round_trips() -> dict[str, Any]:
    """An hour of three nodes: one near, one behind a relay, and one that went ten minutes ago."""
    rows = ((ANNE, 12.4, 60), (BERT, 148.0, 60), (CLEO, 31.0, 50))
    return {
        "minutes": 60,
        "peers_in_all": 3,
        "peers": [
            {
                "node_id": node,
                "peer_id": peer(node)["peer_id"],
                "connected": until == 60,
                "rtts_ms": [
                    round(ms * (3 if 20 < minute < 25 else 1), 1) if minute < until else None
                    for minute in range(60)
                ],
            }
            for node, ms, until in rows
        ],
    }


def baseline() -> dict[str, Any]:
    """A run in which nobody adapts: its rounds take twice as long."""
    rounds = [
        {
            "height": height,
            "at_s": 12.2 * height,
            "wall_s": 12.2,
            "loss_nats": round(2.1 + 3.4 / (1 + height / 3), 4),
        }
        for height in range(1, 13)
    ]
    naive = {"name": "straggler, seed 7", "useful_share": 0.41, "rounds": rounds}
    return {"baseline": naive, "why_not": None}


def one_round(number: int) -> list[tuple[float, EventName, dict[str, Any]]]:
    """When it came after the beginning, what, and its fields."""
    return [
        (0.0, events.ROUND_STARTED, {"base": "ee" * 32, "steps": 40}),
        (2.6, events.UPDATE_SEALED, {"steps": 40, "tokens": 81_920, "loss_nats": 2.3817}),
        (2.9, events.OFFER_ELIGIBLE, {"author": ME}),
        (3.4, events.OFFER_ELIGIBLE, {"author": ANNE}),
        (4.1, events.SET_DECIDED, {"contributors": 3, "left_out": 1, "ours": True}),
        (4.6, events.SET_EXECUTED, {"wall_s": 0.5}),
        (5.2, events.EXEC_CERTIFIED, {"vertex_id": "ee" * 32, "signers": 3}),
        (6.1, events.ROUND_FINALIZED, {"height": number, "contributors": 3, "loss_nats": 2.4061}),
    ]


class Story:
    """What the node tells, and what it is told."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._at_s: float | None = None  # while it tells of what was
        self._log = EventLog(lambda: round(1e9 * (self._at_s or now_s())))
        self._stream = EventStream(self._log, "0a" * 4)
        self._is_cleo_here = True
        self._is_paused = False
        self._is_approved = False
        self._files_max = 5

    def begin(self) -> None:
        began_s = self._now_s() - 20.0
        for at, number in enumerate((11, 12, 13)):
            for after_s, name, fields in one_round(number)[: 4 if number == 13 else None]:
                self._at_s = began_s + 7 * at + after_s
                self._log.emit(name, round=number, **fields)
        reason = "round 13 is open and a quorum is reachable"
        self._log.emit(events.DECISION, decision="train", reason=reason)
        self._log.emit(events.NAME_UNKNOWN, host="dora.example", why="no such host")
        self._log.emit(
            events.LESSON,
            round=12,
            expected={"trained_s": 2.4},
            happened={"trained_s": 2.6, "spread_s": 0.5},
        )
        why = "nobody was late for 8 rounds: patience falls to 1.9 s"
        self._log.emit(events.POLICY_ADAPTED, round=12, reason=why)
        self._log.emit(events.PEER_FAULT, peer_id="12D3KooWEvil", reason="late", detail=MARKUP)
        self._at_s = None

    async def go_on(self) -> None:
        """Once somebody looks."""
        while self._stream.readers == 0:
            await trio.sleep(0.05)
        await trio.sleep(1.0)
        self._is_cleo_here = False
        peer_id = peer(CLEO)["peer_id"]
        self._log.emit(events.PEER_LEFT, node_id=CLEO, peer_id=peer_id, reason="connection ended")

    def rows(self) -> tuple[Route, ...]:
        answers: Mapping[str, Callable[[], Mapping[str, Any]]] = {
            "/v1/status": lambda: status(self._is_cleo_here, self._is_paused),
            "/v1/peers": self._peers,
            "/v1/rounds": lambda: {"rounds": rounds()},
            "/v1/checkpoints": lambda: {"vertices": checkpoints()},
            "/v1/losses": losses,
            "/v1/baseline": baseline,
            "/v1/round-trips": round_trips,
            "/v1/validators": self._members,
            "/v1/contributions": contributions,
        }
        commands = Commands(
            drain=self._drain, pause=self._pause, resume=self._resume, approve=self._approve
        )
        asked = (
            *(Route("GET", path, Right.READ, _telling(tell)) for path, tell in answers.items()),
            advice_route(),
            *command_routes(commands),
            *settings_routes(Settings(self._settings, self._change)),
            *self._stream.routes(),
        )
        return (
            *(replace(row, path=BEHIND + row.path) for row in asked),
            *dashboard_routes(Site(read_site(DASHBOARD))),
            description_route(asked),
        )

    def _peers(self) -> Mapping[str, Any]:
        near = peer(ANNE, dialled=True, websocket=True)
        ways: dict[str, Any] = {
            "relayed": True,
            "dialled": True,
            "websocket": False,
            "reach": "relayed",
        }
        far = peer(BERT, rtt_ms=148.0, **ways, way="relayed", why="no hole: no stream came about")
        gone = peer(CLEO, self._is_cleo_here, faults={"late": 2}, rtt_ms=31.0)
        return {"peers": [near, far, gone]}

    def _members(self) -> Mapping[str, Any]:
        return {
            "epoch": 1,
            "epoch_rounds": 8,
            "quorum": 3,
            "stake": 4,
            "validators": [{"node_id": n, "stake": 1, "peer_id": None} for n in (ME, *OTHERS)],
            "waiting": [] if self._is_approved else [REQUEST],
            "asked": [],
            "dropped": [],
        }

    async def _drain(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"schema_version": 1, "draining": True}

    async def _pause(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        self._is_paused = True
        return {"schema_version": 1, "paused": True}

    async def _resume(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        self._is_paused = False
        return {"schema_version": 1, "paused": False}

    async def _approve(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self._is_approved = request["id"] == REQUEST["id"]
        return {"schema_version": 1, "id": request["id"]}

    async def _settings(self) -> Mapping[str, Any]:
        listen = ["/ip4/0.0.0.0/tcp/4001"]
        rows = (
            ("log.files_max", self._files_max, "default", True),
            ("storage.bytes_max", None, "default", True),
            ("network.listen", listen, "config.yaml", False),
            ("history.enabled", True, "config.yaml", False),
        )
        names = ("key", "value", "origin", "reloads")
        return {
            "file": "/home/alice/node/config.yaml",
            "digest": self._digest(),
            "settings": [dict(zip(names, row, strict=True)) for row in rows],
        }

    async def _change(
        self, changes: Mapping[str, int | float | None], digest: str, confirm: bool
    ) -> Mapping[str, Any]:
        if digest != self._digest():
            raise UserError("config.yaml has changed since you read the settings: read them anew")
        before, after = self._files_max, changes["log.files_max"]
        assert isinstance(after, int)
        if confirm:
            self._files_max = after
            self._log.emit(events.CONFIG_RELOADED, changed=["log.files_max"], needs_restart=[])
        diff = [{"key": "log.files_max", "before": before, "after": after}]
        return {"confirmed": confirm, "digest": self._digest(), "diff": diff, "needs_restart": []}

    def _digest(self) -> str:
        return f"{self._files_max:064x}"


def _telling(answer: Callable[[], Mapping[str, Any]]) -> Callable[[Asked], Awaitable[Reply]]:
    async def tell(_: Asked) -> Reply:
        return told(answer())

    return tell


@asynccontextmanager
async def dashboard_alone(now_s: Callable[[], float]) -> AsyncIterator[str]:
    """The address of the page, without a token, while it is open."""
    door = operator_door("127.0.0.1:0", EventLog(lambda: 0), Shortage(), Random(1))

    def port() -> int:
        return int(str(door.standing()["listens"]).rpartition(":")[2])

    story = Story(now_s)
    story.begin()
    desk = operator_desk(port, more=story.rows())

    async def answer(visit: Visit) -> Reply:
        of_story = visit.target.startswith("/v1/")
        return await desk.answer(
            replace(visit, target=BEHIND + visit.target) if of_story else visit
        )

    door.set_asking_desk(answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door.run)
        nursery.start_soon(story.go_on)
        with trio.fail_after(60):
            while door.standing()["url"] is None:
                await trio.sleep(0.05)
        yield str(door.standing()["url"])
        nursery.cancel_scope.cancel()
