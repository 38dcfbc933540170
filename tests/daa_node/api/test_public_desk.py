"""What anybody is told: how the network stands, and nothing of the host that tells it."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from daa_node.api.public_desk import FRESH_S, PublicDesk
from daa_node.wire.http_messages import Reply, Visit
from tests.daa_node.api.operator_desks import STATUS
from tests.daa_node.api.strict_json import strict_json

SECRETS: Mapping[str, Any] = {
    "peer_id": "12D3KooWsecret",
    "addresses": ["/ip4/192.0.2.7/tcp/4001"],
    "pid": 424242,
    "waiting": "secret reason",
    "decisions": [{"decision": "train", "reason": "secret reason"}],
    "damaged": ["chunks/secret"],
    "link": {"secret": 1},
    "reachability": {"seen_at": "192.0.2.7"},
    "gateway": {"url": "https://secret.example/"},
}


class Asked:
    def __init__(self, name: str = "ours", **more: Any) -> None:
        self.times = 0
        self.status = {**STATUS, **SECRETS, **more}
        self.desk = PublicDesk(name, self._status, lambda: True)

    async def _status(self) -> Mapping[str, Any]:
        self.times += 1
        return self.status

    async def get(self, target: str, **more: Any) -> Reply:
        return await self.desk.answer(Visit(more.pop("method", "GET"), target, "any", **more))


async def test_anybody_is_told_how_the_network_stands() -> None:
    reply = await Asked().get("/status.json")
    assert reply.status == 200
    assert json.loads(reply.body) == {
        "schema_version": 1,
        "network": "ours",
        "chain_id": "cc" * 32,
        "takes_part": True,
        "phase": "training",
        "round": 5,
        "height": 4,
        "loss_nats": 2.25,
        "loss_jumped": False,
        "done": False,
        "validators": {"reachable": 3, "total": 4},
        "trainers": {"reachable": 0, "total": 0},
    }
    page = await Asked().get("/")
    assert b"2.2500 nats a token" in page.body
    assert b"3 of 4" in page.body


@pytest.mark.parametrize("target", ["/", "/status.json"])
async def test_nothing_of_the_host_or_of_other_nodes_is_in_it(target: str) -> None:
    body = (await Asked().get(target)).body.decode()
    for secret in ("secret", "192.0.2.7", "424242", "aa" * 32, "9000000", "1000", "12D3"):
        assert secret not in body
    assert not re.search(r"<script|https?://|src=|href=", body)


async def test_a_networks_name_is_text_and_no_markup() -> None:
    page = (await Asked("<script>alert(1)</script>").get("/")).body
    assert b"<script" not in page
    assert b"&lt;script&gt;" in page


async def test_a_phase_of_no_name_and_no_loss_are_told_as_such() -> None:
    asked = Asked(phase="<b>", loss_nats=None)
    assert json.loads((await asked.get("/status.json")).body)["phase"] == "other"
    assert b"not measured yet" in (await asked.get("/")).body


async def test_the_loss_of_a_spoilt_model_leaves_the_answer_json() -> None:
    asked = Asked(loss_nats=float("nan"))
    assert strict_json((await asked.get("/status.json")).body)["loss_nats"] is None
    assert b"nan nats" in (await asked.get("/")).body


@pytest.mark.parametrize(
    ("target", "more", "status"),
    [
        ("/", {"method": "POST"}, 405),
        ("/v1/pause", {"method": "POST"}, 405),
        ("/", {"has_body": True}, 413),
        ("/v1/status", {"authorization": "Bearer " + "1a" * 32}, 404),
        ("/metrics", {}, 404),
        ("/livez", {}, 404),
        ("/?token=x", {}, 404),
        ("/../keys", {}, 404),
    ],
)
async def test_there_is_nothing_else(target: str, more: dict[str, Any], status: int) -> None:
    assert (await Asked().get(target, **more)).status == status


async def test_however_many_ask_the_node_is_asked_once_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked = Asked()
    for _ in range(100):
        await asked.get("/status.json")
    assert asked.times == 1
    await trio.sleep(FRESH_S)
    await asked.get("/")
    assert asked.times == 2
