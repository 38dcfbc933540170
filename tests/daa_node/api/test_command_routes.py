"""What changes a node takes the admin token and JSON of the right kind, and is audited."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing

from daa_node.api.audit import READ_DEED_EVERY_S, READ_DEEDS_AT_ONCE, Deed
from daa_node.api.bodies import BODY_BYTES_MAX
from daa_node.api.operator_desk import ANSWER_TIMEOUT_S, OperatorDesk
from daa_node.api.replies import told
from daa_node.api.routes import Asked, Route
from daa_node.api.tokens import Right
from daa_node.errors import NodeError, Refused, Unavailable, UserError
from daa_node.wire.http_messages import Reply, Visit
from tests.daa_node.api.operator_desks import TOKENS, Done, operator_desk

READ, ADMIN = f"Bearer {TOKENS.read}", f"Bearer {TOKENS.admin}"
REQUEST_ID = "ab" * 32
APPROVE = "/v1/membership/approve"


def visit(path: str, body: bytes = b"{}", **more: Any) -> Visit:
    async def read_body(bytes_max: int) -> bytes | None:
        return body if len(body) <= bytes_max else None

    words: dict[str, Any] = {
        "method": "POST",
        "host": "localhost:9180",
        "authorization": ADMIN,
        "content_type": "application/json",
        "visitor": "127.0.0.1",
        "has_body": True,
        "read_body": read_body,
    }
    return Visit(target=path, **{**words, **more})


async def post(
    path: str, body: bytes = b"{}", desk: OperatorDesk | None = None, **more: Any
) -> Reply:
    return await (desk or operator_desk()).answer(visit(path, body, **more))


async def test_the_admin_token_drains_pauses_resumes_and_approves() -> None:
    done = Done()
    desk = operator_desk(done=done)
    for name in ("drain", "pause", "resume"):
        reply = await post(f"/v1/{name}", desk=desk)
        assert (reply.status, json.loads(reply.body)["done"]) == (200, name)
    body = json.dumps({"id": REQUEST_ID}).encode()
    assert (await post(APPROVE, body, desk, content_type="Application/JSON; charset=UTF-8")).body
    assert done.asked == [
        ("drain", {}),
        ("pause", {}),
        ("resume", {}),
        ("approve", {"id": REQUEST_ID}),
    ]


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"authorization": READ}, 403),
        ({"authorization": ""}, 401),
        ({"authorization": f"Bearer {'0' * 64}"}, 401),
        ({"host": "evil.example:9180"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"content_type": ""}, 415),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": "multipart/form-data; boundary=x"}, 415),
        ({"content_type": "text/plain; application/json"}, 415),
        ({"content_type": "application/json, text/plain"}, 415),
        ({"content_type": "application/json; charset=latin-1"}, 415),
        ({"content_type": "application/jsonp"}, 415),
        ({"method": "GET"}, 405),
        ({"method": "PUT"}, 405),
        ({"method": "post"}, 405),
        ({"body": b""}, 400),
        ({"body": b"null"}, 400),
        ({"body": b"[]"}, 400),
        ({"body": b'"{}"'}, 400),
        ({"body": b"{}{}"}, 400),
        ({"body": b"\xef\xbb\xbf{}"}, 400),
        ({"body": b'{"a":"\xff"}'}, 400),
        ({"body": b'{"a":1}'}, 400),
        ({"body": b'{"a":NaN}'}, 400),
        ({"body": b'{"a":1e999}'}, 400),
        ({"body": b"[" * 60_000}, 400),
        ({"body": b"9" * 60_000}, 400),
        ({"body": b" " * (BODY_BYTES_MAX + 1)}, 413),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_whatever_is_not_asked_in_full_is_not_done(
    more: Mapping[str, Any], status: int
) -> None:
    done = Done()
    reply = await post("/v1/drain", desk=operator_desk(done=done), **more)
    assert (reply.status, done.asked) == (status, [])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "ab"},
        {"id": REQUEST_ID.upper()},
        {"id": 7},
        {"id": None},
        {"id": REQUEST_ID + "\n"},
    ]
    + [{"id": REQUEST_ID, "stake": 1}, {"ID": REQUEST_ID}, {"id": [REQUEST_ID]}],
)
async def test_a_body_of_another_kind_is_refused_at_its_place(body: Mapping[str, Any]) -> None:
    done = Done()
    reply = await post(APPROVE, json.dumps(body).encode(), operator_desk(done=done))
    assert (reply.status, done.asked) == (400, [])
    assert reply.body.startswith((b"id: ", b"a key that is not known: "))
    twice = b'{"id":"%s","id":"%s"}' % (REQUEST_ID.encode(), b"cd" * 32)
    assert (await post(APPROVE, twice)).status == 400


async def test_a_path_that_takes_no_body_gets_none() -> None:
    assert (await post("/v1/status", method="GET")).status == 413
    assert (await post("/livez", method="GET", authorization="")).status == 413
    assert (await post("/v1/status", method="GET", has_body=False)).status == 200


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (UserError("no request waits"), 409),
        (Refused("quarantined", "its log is lost"), 409),
        (Unavailable("nobody is there"), 503),
    ],
    ids=str,
)
async def test_what_a_command_fails_of_is_told_in_its_words(
    failure: NodeError, status: int
) -> None:
    async def fail(_: Asked) -> Reply:
        raise failure

    deeds: list[Deed] = []
    desk = operator_desk(more=(Route("POST", "/x", Right.ADMIN, fail),), audit=deeds.append)
    reply = await post("/x", desk=desk, has_body=False)
    assert (reply.status, reply.body) == (status, f"{failure}\n".encode())
    assert (deeds[0].status, deeds[0].outcome) == (status, str(failure))


async def test_each_deed_is_audited_with_who_and_what_and_its_outcome() -> None:
    deeds: list[Deed] = []
    desk = operator_desk(audit=deeds.append)
    body = json.dumps({"id": REQUEST_ID}).encode()
    await post(APPROVE, body, desk)
    await post("/v1/drain", desk=desk, authorization=READ)
    await post("/v1/drain", b"[]", desk)
    await post("/" + "x" * 9_000, desk=desk, visitor="y" * 9_000)
    await post("/v1/drain", desk=desk, authorization="")
    await post("/v1/drain", desk=desk, host="evil.example")
    await post("/v1/drain", desk=desk, method="GET")
    assert [(d.token, d.status) for d in deeds] == [
        ("admin", 200), ("read", 403), ("admin", 400), ("admin", 404),
    ]  # fmt: skip
    first = json.loads(deeds[0].line(12.5))
    assert first == {
        "ts": 12.5,
        "token": "admin",
        "visitor": "127.0.0.1",
        "asked": f"POST {APPROVE}",
        "body": {"id": REQUEST_ID},
        "status": 200,
        "outcome": "",
    }
    assert "api-admin.token" in deeds[1].outcome
    assert all(len(deed.line(0.0)) < 1_000 for deed in deeds)
    for deed in deeds:
        assert TOKENS.admin not in deed.line(0.0)


async def test_the_token_that_reads_pushes_nothing_out_of_the_audit_log(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deeds: list[Deed] = []
    desk = operator_desk(audit=deeds.append)
    for _ in range(READ_DEEDS_AT_ONCE + 500):
        assert (await post("/v1/drain", desk=desk, authorization=READ)).status == 403
    assert len(deeds) == READ_DEEDS_AT_ONCE
    for _ in range(30):
        await post("/v1/pause", desk=desk)
    assert [deed.token for deed in deeds[READ_DEEDS_AT_ONCE:]] == ["admin"] * 30
    await trio.sleep(READ_DEED_EVERY_S)
    for _ in range(3):
        await post("/v1/drain", desk=desk, authorization=READ)
    assert len(deeds) == READ_DEEDS_AT_ONCE + 31
    assert deeds[-1].outcome.endswith("; 500 before it are not told")


async def test_a_command_is_not_cut_off_when_its_visitor_leaves_and_ends_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ended: list[str] = []

    async def slow(_: Asked) -> Reply:
        await trio.sleep(3.0)
        ended.append("slow")
        return told({})

    async def never(_: Asked) -> Reply:
        await trio.sleep_forever()
        return told({})

    rows = (Route("POST", "/slow", Right.ADMIN, slow), Route("POST", "/never", Right.ADMIN, never))
    desk = operator_desk(more=rows)
    with trio.move_on_after(1.0):
        await post("/slow", desk=desk, has_body=False)
    assert ended == ["slow"]
    assert trio.current_time() == pytest.approx(3.0)
    assert (await post("/never", desk=desk, has_body=False)).status == 503
    assert trio.current_time() == pytest.approx(3.0 + ANSWER_TIMEOUT_S)
