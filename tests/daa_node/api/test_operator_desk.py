"""Who is told what over HTTP, and that nobody else's page asks in an operator's name."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from daa_node.api.metrics import Facts
from daa_node.api.operator_desk import ANSWER_TIMEOUT_S, OperatorDesk, Transport
from daa_node.api.readiness import Condition
from daa_node.api.reading_routes import Sources, reading_routes
from daa_node.api.replies import POLICY, told
from daa_node.api.routes import Asked, Parameter, Route
from daa_node.api.tokens import Right
from daa_node.wire.http_messages import Reply, Visit
from tests.daa_node.api.operator_desks import TOKENS, facts, no_peers, operator_desk
from tests.daa_node.api.strict_json import strict_json

READ, ADMIN = f"Bearer {TOKENS.read}", f"Bearer {TOKENS.admin}"
PATHS = ("/readyz", "/metrics", "/v1/status", "/v1/peers", "/v1/rounds", "/v1/validators")


async def ask(target: str, desk: OperatorDesk | None = None, **more: str) -> Reply:
    words: dict[str, Any] = {"method": "GET", "host": "localhost:9180", "authorization": READ}
    return await (desk or operator_desk()).answer(Visit(target=target, **{**words, **more}))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", [READ, ADMIN, f"bearer {TOKENS.read}"])
async def test_either_token_reads_everything(path: str, token: str) -> None:
    reply = await ask(path, authorization=token)
    assert reply.status == 200
    assert set(POLICY) <= set(reply.headers)


@pytest.mark.parametrize("path", [*PATHS, "/", "/v1", "/livez/", "/LIVEZ", "//livez"])
@pytest.mark.parametrize(
    "token",
    [
        "",
        "Bearer",
        "Bearer ",
        TOKENS.read,
        f"Basic {TOKENS.read}",
        f"Bearer  {TOKENS.read}",
        f"Bearer {TOKENS.read[:-1]}",
        f"Bearer {TOKENS.read}0",
        f"Bearer {TOKENS.read}, Bearer {TOKENS.read}",
        "Bearer \xff\xfe",
    ],
)
async def test_who_has_no_token_learns_nothing_not_even_which_paths_there_are(
    path: str, token: str
) -> None:
    reply = await ask(path, authorization=token)
    assert reply.status == 401
    assert ("WWW-Authenticate", 'Bearer realm="daa-node"') in reply.headers
    assert TOKENS.read.encode() not in reply.body


async def test_a_number_that_is_none_is_told_as_one_that_is_not_known() -> None:
    async def peers() -> Mapping[str, Any]:
        inf, nan = float("inf"), float("nan")
        rows = [{"b": -inf, "c": (1.5, inf)}]
        return {**await no_peers(), "a": nan, "rows": rows, "d": True, "e": "NaN"}

    body = (await ask("/v1/peers", operator_desk(peers=peers))).body
    expected = {"a": None, "rows": [{"b": None, "c": [1.5, None]}], "d": True, "e": "NaN"}
    assert strict_json(body) == {**await no_peers(), **expected}


@pytest.mark.parametrize("target", ["/livez", "/v1/status", "/none", "/livez?a"])
async def test_an_answer_is_kept_nowhere_and_runs_nothing_where_a_browser_shows_it(
    target: str,
) -> None:
    headers = dict((await ask(target)).headers)
    assert headers["Cache-Control"] == "no-store"
    content = headers["Content-Security-Policy"]
    assert content == "default-src 'none'; frame-ancestors 'none'; sandbox"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_the_rounds_are_made_into_an_answer_once_for_all_until_there_is_another() -> None:
    newest, made = [1], []

    async def rounds() -> Mapping[str, Any]:
        made.append(newest[0])
        return {"rounds": list(range(newest[0]))}

    async def nothing() -> Mapping[str, Any]:
        return {}

    async def no_facts() -> Facts:
        return facts()

    sources = Sources(nothing, nothing, rounds, nothing, lambda: None, no_facts, lambda: newest[0])
    (row,) = (row for row in reading_routes(sources) if row.path == "/v1/rounds")
    desk = operator_desk(more=(replace(row, path="/some", tells=None),))
    first = await ask("/some", desk)
    assert (await ask("/some", desk)).body is first.body
    newest[0] = 2
    assert strict_json((await ask("/some", desk)).body) == {"rounds": [0, 1]}
    assert made == [1, 2]


async def test_whether_it_lives_is_told_to_all_of_this_host() -> None:
    assert (await ask("/livez", authorization="")).status == 200
    assert (await ask("/livez", authorization="", host="evil.example:9180")).status == 421
    assert (await ask("/livez", authorization="", sec_fetch_site="cross-site")).status == 403


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost", "localhost:1", "localhost:9180.", "a.localhost:9180", "[::]"]
    + ["127.0.0.1:9180@evil.example", "localhost:9180, localhost:9180", "127.0.0.2:9180"],
)
@pytest.mark.parametrize("path", ["/livez", "/metrics", "/nowhere"])
async def test_a_host_that_is_not_exactly_ours_is_refused_on_every_path(
    path: str, host: str
) -> None:
    assert (await ask(path, host=host)).status == 421


async def test_hosts_of_the_operator_count_as_they_are_written() -> None:
    desk = operator_desk(hosts=("localhost:9000",))
    assert (await ask("/readyz", desk, host="localhost:9000")).status == 200
    assert (await ask("/readyz", desk, host="LOCALHOST:9000")).status == 200
    assert (await ask("/readyz", desk, host="localhost:9001")).status == 421
    assert (await ask("/readyz", operator_desk(lambda: 80), host="localhost")).status == 200


@pytest.mark.parametrize(
    "more",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://localhost:9180"},
        {"origin": "http://localhost:9180, http://localhost:9180"},
        {"origin": "http://localhost:8080"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none, cross-site"},
    ],
)
async def test_a_page_of_another_site_is_refused_though_it_has_the_token(
    more: Mapping[str, Any],
) -> None:
    assert (await ask("/v1/status", **more)).status == 403


async def test_a_page_of_our_own_and_a_typed_address_are_not() -> None:
    assert (await ask("/v1/status", origin="http://localhost:9180")).status == 200
    assert (await ask("/v1/status", sec_fetch_site="none")).status == 200
    assert (await ask("/v1/status", sec_fetch_site="same-origin")).status == 200


@pytest.mark.parametrize(
    ("transport", "origin", "status"),
    [
        (Transport.TLS, "https://node.example", 200),
        (Transport.TLS, "https://localhost:9180", 200),
        (Transport.TLS, "http://node.example", 403),
        (Transport.PROXY, "https://node.example", 200),
        (Transport.PROXY, "http://node.example", 403),
        (Transport.PROXY, "http://localhost:9180", 200),
        (Transport.PLAIN, "https://node.example", 403),
    ],
)
async def test_a_page_of_our_own_came_as_everything_of_ours_comes(
    transport: Transport, origin: str, status: int
) -> None:
    desk = operator_desk(hosts=("node.example",), transport=transport)
    assert (await ask("/v1/status", desk, host="node.example", origin=origin)).status == status


async def test_a_token_in_the_address_opens_nothing() -> None:
    for target in (f"/v1/status?token={TOKENS.read}", f"/livez?access_token={TOKENS.admin}"):
        reply = await ask(target, authorization="")
        assert reply.status == 400
        assert TOKENS.read.encode() not in reply.body
    assert (await ask("/v1/status?")).status == 400
    assert (await ask("/livez#x")).status == 400


async def test_other_methods_and_unknown_paths_are_told_what_there_is() -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get"):
        reply = await ask("/v1/status", method=method)
        assert reply.status == 405
        assert ("Allow", "GET, HEAD") in reply.headers
    for target in ("/nowhere", "http://localhost:9180/metrics", "*", "/v1/../metrics"):
        reply = await ask(target)
        assert reply.status == 404
        assert b"/v1/status" in reply.body


async def _echo(asked: Asked) -> Reply:
    return told({"path": asked.path, **asked.query})


ROWS = (
    Route("GET", "/open/*", Right.NOTHING, _echo),
    Route("GET", "/some", Right.READ, _echo, (Parameter("after", "", 7, most=99),)),
    Route("GET", "/some/none", Right.READ, _echo),
    Route("PUT", "/some", Right.ADMIN, _echo),
)


async def test_a_row_gets_its_query_and_no_other() -> None:
    desk = operator_desk(more=ROWS)
    assert (await ask("/some", desk)).body == b'{"path":"/some","after":7}\n'
    assert (await ask("/some?after=0", desk)).body == b'{"path":"/some","after":0}\n'
    for query in ("after=100", "after=-1", "after=1&after=2", "limit=1", "after=%31", "after", "&"):
        assert (await ask(f"/some?{query}", desk)).status == 400, query
    for token in (TOKENS.read, TOKENS.admin):
        reply = await ask(f"/some?after={token}", desk)
        assert (reply.status, token.encode() in reply.body) == (400, False)
    assert (await ask("/some?after=1", desk, authorization="")).status == 401
    assert (await ask("/some/none?after=1", desk)).status == 400


async def test_a_row_asks_for_the_right_that_it_names() -> None:
    desk = operator_desk(more=ROWS)
    for path in ("/open/", "/open/a/b.js"):
        assert (await ask(path, desk, authorization="")).status == 200
        assert (await ask(path, desk, authorization="", host="evil.example")).status == 421
    assert (await ask("/open", desk, authorization="")).status == 401
    assert (await ask("/some", desk, method="PUT")).status == 403
    assert (await ask("/some", desk, method="PUT", authorization=ADMIN)).status == 200
    refused = await ask("/some", desk, method="DELETE")
    assert (refused.status, ("Allow", "GET, HEAD, PUT") in refused.headers) == (405, True)


async def test_who_asks_peers_that_never_answer_is_told_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def never() -> Mapping[str, Any]:
        await trio.sleep_forever()
        return {}

    reply = await ask("/v1/peers", operator_desk(peers=never))
    assert reply.status == 503
    assert trio.current_time() == pytest.approx(ANSWER_TIMEOUT_S)


async def test_why_it_is_not_ready_is_said() -> None:
    reply = await ask("/readyz", operator_desk(why_not_ready=lambda: "draining"))
    assert (reply.status, reply.body) == (503, b"draining\n")


READY = Condition("training", False, None, None, True)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        (READY, None),
        (Condition("done", False, None, None, True), None),
        (Condition("training", True, None, None, True), "draining"),
        (Condition("training", False, "the log is lost", None, True), "quarantine: the log"),
        (Condition("starting", False, None, "starting", True), "first state"),
        (Condition("restoring", False, None, None, True), "restoring"),
        (Condition("catching_up", False, None, None, True), "catching up"),
        (Condition("training", False, None, "2 of 4 reachable", True), "waiting: 2 of 4"),
        (Condition("training", False, None, None, False), "worker process"),
    ],
)
def test_a_node_is_ready_or_names_what_is_in_its_way(condition: Condition, why: str | None) -> None:
    told = condition.why_not_ready()
    assert told is None if why is None else told is not None and why in told


@pytest.mark.parametrize("target", ["/v1/status", "/livez", "/nowhere", "/v1/pause"])
async def test_whoever_has_shown_a_token_is_trusted_and_nobody_else(target: str) -> None:
    for token, is_trusted in ((TOKENS.read, True), (TOKENS.admin, True), ("0" * 64, False)):
        reply = await ask(target, authorization=f"Bearer {token}")
        assert reply.is_trusted is is_trusted
    assert not (await ask(target, authorization=f"Bearer {TOKENS.read}", host="evil")).is_trusted
