"""The dashboard's files are answered to everybody who asks at our own name, and nothing else is."""

import re
from typing import Any

import pytest

from daa_node.api.dashboard_routes import DASHBOARD_POLICY, dashboard_routes
from daa_node.api.operator_desk import OperatorDesk
from daa_node.wire.http_messages import Reply, Visit
from daa_node.wire.page_files import Site
from tests.daa_node.api.operator_desks import TOKENS, operator_desk

SCRIPT = "dashboard/index-BT5cQ_-x.js"
FILES = {
    "index.html": b"<!doctype html>",
    SCRIPT: b"let it = 'run'",
    f"{SCRIPT}.br": b"brotli",
    "secret.txt": b"beside the page",
}


def desk(files: dict[str, bytes] | None = None) -> OperatorDesk:
    return operator_desk(more=dashboard_routes(Site(FILES if files is None else files)))


async def ask(target: str, of: OperatorDesk | None = None, **more: str) -> Reply:
    words: dict[str, Any] = {"method": "GET", "host": "localhost:9180"}
    return await (of or desk()).answer(Visit(target=target, **{**words, **more}))


def header(reply: Reply, name: str) -> str:
    return dict(reply.headers).get(name, "")


async def test_the_page_and_its_parts_take_no_token() -> None:
    page, script = await ask("/"), await ask(f"/{SCRIPT}", accept_encoding="br")
    assert (page.status, page.body) == (200, FILES["index.html"])
    assert (script.status, script.body) == (200, b"brotli")
    assert header(script, "Content-Encoding") == "br"
    assert header(script, "Cache-Control") == "public, max-age=31536000, immutable"
    assert header(page, "Cache-Control") == "no-cache"
    again = await ask("/", if_none_match=header(page, "ETag"))
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("target", ["/", f"/{SCRIPT}"])
async def test_its_policy_lets_nothing_inline_and_nothing_of_others_in(target: str) -> None:
    reply = await ask(target)
    assert set(DASHBOARD_POLICY) <= set(reply.headers)
    content = header(reply, "Content-Security-Policy")
    assert "default-src 'none'" in content
    assert "unsafe" not in content
    assert set(re.findall(r"-src ([^;]*)", content)) == {"'none'", "'self'"}
    for closed in ("frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"):
        assert closed in content  # nobody frames it to have its buttons pressed
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in content
    assert header(reply, "Cross-Origin-Opener-Policy") == "same-origin"
    assert header(reply, "Referrer-Policy") == "no-referrer"
    assert header(reply, "X-Content-Type-Options") == "nosniff"


@pytest.mark.parametrize(
    "target", ["/dashboard/none.js", "/dashboard/../secret.txt", "/dashboard//secret.txt"]
)
async def test_what_is_no_part_of_it_is_not_found(target: str) -> None:
    assert (await ask(target)).status == 404


@pytest.mark.parametrize("target", ["/secret.txt", "/index.html", "/dashboard", "/v1/status"])
async def test_whatever_is_not_the_page_takes_a_token_as_before(target: str) -> None:
    assert (await ask(target)).status == 401


async def test_a_name_that_is_not_ours_gets_no_page() -> None:
    for target in ("/", f"/{SCRIPT}"):
        assert (await ask(target, host="evil.example")).status == 421


async def test_a_link_elsewhere_may_lead_to_the_page_and_nothing_else_is_asked_from_there() -> None:
    read = f"Bearer {TOKENS.read}"
    assert (await ask("/", sec_fetch_site="cross-site")).status == 200
    for target in (f"/{SCRIPT}", "/livez", "/v1/status", "/?a=1"):
        reply = await ask(target, sec_fetch_site="cross-site", authorization=read)
        assert reply.status == 403, target
    posted = await ask("/", sec_fetch_site="cross-site", authorization=read, method="POST")
    foreign = await ask("/", sec_fetch_site="cross-site", origin="http://evil.example")
    assert (posted.status, foreign.status) == (403, 403)


async def test_where_it_was_not_built_it_says_how_it_is() -> None:
    reply = await ask("/", desk({}))
    assert reply.status == 503
    assert b"make dashboard" in reply.body
