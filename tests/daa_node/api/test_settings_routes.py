"""Settings over HTTP: who may read them, who may ask for a change, and in which words."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from daa_node.api.operator_desk import OperatorDesk
from daa_node.api.settings_routes import Settings, settings_routes
from tests.daa_node.api.operator_desks import TOKENS, operator_desk
from tests.daa_node.api.test_command_routes import post

DIGEST = "d" * 64


def desk_of(asked: list[Any]) -> OperatorDesk:
    async def told() -> Mapping[str, Any]:
        return {"file": "config.yaml", "digest": DIGEST, "settings": []}

    async def change(
        changes: Mapping[str, int | float | None], digest: str, confirm: bool
    ) -> Mapping[str, Any]:
        asked.append((changes, digest, confirm))
        return {"digest": DIGEST, "diff": [], "confirmed": confirm, "needs_restart": []}

    return operator_desk(more=settings_routes(Settings(told, change)))


async def test_the_read_token_reads_them_and_the_admin_one_changes_them() -> None:
    asked: list[Any] = []
    desk, read = desk_of(asked), f"Bearer {TOKENS.read}"
    body = json.dumps({"changes": {"log.files_max": 9}, "digest": DIGEST}).encode()
    read_reply = await post("/v1/settings", b"", desk, method="GET", has_body=False)
    assert json.loads(read_reply.body)["digest"] == DIGEST
    assert (await post("/v1/settings", body, desk, authorization=read)).status == 403
    assert asked == []
    assert (await post("/v1/settings", body, desk)).status == 200
    assert asked == [({"log.files_max": 9}, DIGEST, False)]


@pytest.mark.parametrize(
    "body",
    [
        {"changes": {}, "digest": DIGEST},
        {"changes": {"a": "9"}, "digest": DIGEST},
        {"changes": {"a": True}, "digest": DIGEST},
        {"changes": {"a" * 65: 1}, "digest": DIGEST},
        {"changes": {"a": [1]}, "digest": DIGEST},
        {"changes": {str(k): 1 for k in range(17)}, "digest": DIGEST},
        {"changes": [["a", 1]], "digest": DIGEST},
        {"changes": {"a": 1}},
        {"changes": {"a": 1}, "digest": DIGEST[1:]},
        {"changes": {"a": 1}, "digest": DIGEST, "confirm": "true"},
        {"changes": {"a": 1}, "digest": DIGEST, "confirm": 1},
        {"changes": {"a": 1}, "digest": DIGEST, "force": True},
    ],
)
async def test_a_change_that_is_none_is_refused(body: Mapping[str, Any]) -> None:
    asked: list[Any] = []
    assert (await post("/v1/settings", json.dumps(body).encode(), desk_of(asked))).status == 400
    assert asked == []


@pytest.mark.parametrize(
    "changes", ['{"log.files_max":1e999}', '{"hidden":"x"}', '{"\\ud800":1}', '{"a":1,"a":2}']
)
async def test_what_a_change_says_is_not_repeated_and_no_number_is_beyond_json(
    changes: str,
) -> None:
    asked: list[Any] = []
    body = f'{{"changes":{changes},"digest":"{DIGEST}"}}'.encode()
    reply = await post("/v1/settings", body, desk_of(asked))
    assert (reply.status, asked) == (400, [])
    assert reply.body.startswith((b"changes: ", b"the body is no JSON"))
    assert b"hidden" not in reply.body
