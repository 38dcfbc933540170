"""Every answer a browser may get, and that nothing outside of the page is ever one."""

import json
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from daa_node.gateway.config import GatewayConfig
from daa_node.gateway.front_desk import FRESH_S, FrontDesk
from daa_node.wire.http_messages import Reply, Visit
from daa_node.wire.page_files import Site
from tests.daa_node.gateway.front_desks import ADDRESSES, BIG, FILES, PEER, front_desk

SECURE = GatewayConfig(
    behind_proxy=True, hosts=("node.example",), dial=("/dns4/node.example/tcp/443/wss",)
)
NEVER_ANSWERED = set(FILES) - {"index.html"}


def get(target: str, desk: FrontDesk | None = None, **more: str) -> Reply:
    words: dict[str, Any] = {"method": "GET", "host": "localhost:8080", **more}
    return (desk or front_desk()).answer(Visit(target=target, **words))


def header(reply: Reply, name: str) -> str | None:
    found = [value for key, value in reply.headers if key == name]
    assert len(found) <= 1, name
    return found[0] if found else None


@pytest.mark.parametrize(
    ("target", "content_type", "cached"),
    [
        ("/", "text/html; charset=utf-8", "no-cache"),
        ("/index.html?v=1", "text/html; charset=utf-8", "no-cache"),
        (
            "/assets/page-BT5cQ_-x.js",
            "text/javascript; charset=utf-8",
            "public, max-age=31536000, immutable",
        ),
        ("/pyodide/big.wasm", "application/wasm", "no-cache"),
        ("/recompute.py", "text/x-python; charset=utf-8", "no-cache"),
        ("/numpy-2.0.2-cp312.whl", "application/zip", "no-cache"),
        ("/only.gz", "application/octet-stream", "no-cache"),
    ],
)
async def test_a_file_has_its_type_and_is_kept_as_long_as_its_name_holds(
    target: str, content_type: str, cached: str
) -> None:
    reply = get(target)
    assert reply.status == 200
    assert header(reply, "Content-Type") == content_type
    assert header(reply, "Cache-Control") == cached
    assert header(reply, "Content-Length") == str(len(reply.body))


async def test_every_answer_carries_the_strict_policy() -> None:
    desk = front_desk()
    etag = header(get("/", desk), "ETag") or ""
    replies = [
        get("/", desk),
        get("/gateway.json", desk),
        get("/nothing", desk),
        get("/", desk, host="evil.example"),
        get("/", desk, method="POST"),
        get("/", desk, if_none_match=etag),
        get("/", front_desk(files={})),
    ]
    assert [reply.status for reply in replies] == [200, 200, 404, 421, 405, 304, 503]
    for reply in replies:
        policy = dict(
            part.split(" ", 1)
            for part in (header(reply, "Content-Security-Policy") or "").split("; ")
        )
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"
        assert policy["worker-src"] == "'self'"
        assert policy["connect-src"] == "'self' ws://127.0.0.1:4001"
        assert header(reply, "Cross-Origin-Opener-Policy") == "same-origin"
        assert header(reply, "Cross-Origin-Embedder-Policy") == "require-corp"
        assert header(reply, "Cross-Origin-Resource-Policy") == "same-origin"
        assert header(reply, "X-Content-Type-Options") == "nosniff"
        assert header(reply, "Referrer-Policy") == "no-referrer"


@pytest.mark.parametrize(
    ("accepts", "body", "coding"),
    [
        ("gzip, deflate, br, zstd", b"brotli", "br"),
        ("gzip", b"gzip", "gzip"),
        ("br;q=0, gzip;q=0.5", b"gzip", "gzip"),
        ("br; q=0.000, gzip;q=0", FILES["assets/page-BT5cQ_-x.js"], None),
        ("", FILES["assets/page-BT5cQ_-x.js"], None),
    ],
)
async def test_a_browser_gets_the_best_coding_that_it_takes(
    accepts: str, body: bytes, coding: str | None
) -> None:
    reply = get("/assets/page-BT5cQ_-x.js", accept_encoding=accepts)
    assert (reply.body, header(reply, "Content-Encoding")) == (body, coding)
    assert header(reply, "Vary") == "Accept-Encoding"
    assert header(get("/"), "Vary") is None


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "*"])
async def test_what_a_browser_holds_is_not_sent_again(form: str) -> None:
    etag = header(get("/recompute.py"), "ETag") or ""
    reply = get("/recompute.py", if_none_match=form.format(etag))
    assert (reply.status, reply.body, header(reply, "ETag")) == (304, b"", etag)
    other = get("/recompute.py", if_none_match='"other"')
    assert (other.status, other.body) == (200, FILES["recompute.py"])


async def test_codings_of_one_file_have_tags_of_their_own() -> None:
    asset = "/assets/page-BT5cQ_-x.js"
    tags = {header(get(asset, accept_encoding=word), "ETag") for word in ("", "br", "gzip")}
    assert len(tags) == 3


@pytest.mark.parametrize(
    "target",
    [
        "/../config.yaml",
        "/assets/../../config.py",
        "/..%2f..%2fconfig.py",
        "/%2e%2e/config.py",
        "/assets/..\\..\\config.py",
        "//etc/passwd",
        "/./index.html",
        "/assets",
        "/assets/",
        "/index.html/",
        "/index.html%00",
        "/assets/page-BT5cQ_-x.js.br",
        "index.html",
        "*",
        "http://localhost/index.html",
        "",
    ],
)
async def test_nothing_but_a_file_of_the_page_is_found(target: str) -> None:
    assert get(target).status == 404


@given(st.text(max_size=60), st.text(max_size=30), st.text(max_size=30), st.text(max_size=8))
def test_whatever_a_visitor_writes_is_answered(
    target: str, accepts: str, tags: str, method: str
) -> None:
    async def ask() -> Reply:
        visit = Visit(method or "GET", "/" + target, "localhost", accepts, tags)
        return front_desk().answer(visit)

    assert trio.run(ask).status in {200, 304, 404, 405}


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("node.example", True),
        ("node.example:443", True),
        ("", False),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("evil.localhost", False),
        ("localhost.", False),
        ("localhost:8080:1", False),
        ("localhost:", False),
        ("localhost@evil.example", False),
        ("127.0.0.2", False),
        ("sub.node.example", False),
    ],
)
async def test_only_names_of_ours_are_answered(host: str, is_ours: bool) -> None:
    desk = front_desk(SECURE)
    for target in ("/", "/gateway.json"):
        assert get(target, desk, host=host).status == (200 if is_ours else 421)


async def test_the_page_is_told_where_to_dial_and_on_which_chain() -> None:
    told = json.loads(get("/gateway.json").body)
    assert told == {
        "schema_version": 1,
        "chain_id": (b"c" * 32).hex(),
        "node_id": (b"n" * 32).hex(),
        "peer_id": PEER,
        "dial": [ADDRESSES[1]],
        "protocol_version": 1,
        "protocol_version_min": 1,
        "site": Site(FILES).version,
        "height": 7,
        "wanted": ["certificate"],
        "volunteers": [3, 256],
    }


async def test_a_page_over_https_is_told_and_allowed_wss_alone() -> None:
    reply = get("/gateway.json", front_desk(SECURE), host="node.example")
    assert json.loads(reply.body)["dial"] == [f"/dns4/node.example/tcp/443/wss/p2p/{PEER}"]
    policy = header(reply, "Content-Security-Policy") or ""
    assert "connect-src 'self' wss://node.example:443;" in policy


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        (("node.example",), ["/dns4/node.example/tcp/4001/wss"]),
        (("192.0.2.7",), ["/ip4/192.0.2.7/tcp/4001/wss"]),
        (("[2001:db8::7]",), []),  # a policy cannot name it
    ],
)
async def test_with_a_certificate_of_ours_a_page_dials_our_own_port_over_tls(
    hosts: tuple[str, ...], told: list[str]
) -> None:
    config = GatewayConfig(tls_certificate="a.pem", tls_key="b.pem", hosts=hosts)
    reply = get("/gateway.json", front_desk(config), host=hosts[0])
    assert json.loads(reply.body)["dial"] == [f"{address}/p2p/{PEER}" for address in told]


async def test_without_the_page_its_visitor_is_told_how_to_build_it() -> None:
    desk = front_desk(files={"stray.js": b""})
    assert b"make page" in get("/", desk).body
    assert json.loads(get("/gateway.json", desk).body)["site"] is None


def test_the_version_follows_names_and_contents() -> None:
    versions = {
        Site(files).version
        for files in (
            FILES,
            {**FILES, "index.html": b"other"},
            {**FILES, "more.js": b""},
            {"index.html": b"a", "b": b"c"},
            {"index.html": b"", "ab": b"c"},
        )
    }
    assert len(versions) == 5
    assert Site({}).version is None


async def test_what_is_told_is_made_once_a_second(autojump_clock: trio.testing.MockClock) -> None:
    asked = []

    def height() -> int:
        asked.append(trio.current_time())
        return len(asked)

    facts = replace(front_desk()._facts, height=height)
    desk = FrontDesk(GatewayConfig(), Site(FILES), facts)
    heights = []
    for _ in range(8):
        heights.append(json.loads(get("/gateway.json", desk).body)["height"])
        await trio.sleep(FRESH_S / 4)
    assert heights == [1, 1, 1, 1, 2, 2, 2, 2]


async def test_a_large_file_is_handed_over_and_not_copied() -> None:
    desk = front_desk()
    assert get("/pyodide/big.wasm", desk).body is BIG
