"""A real daemon serves the page while strangers do their worst, and its rounds go on."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from daa_node.adapters.http_door import SOCKETS_MAX
from daa_node.rounds.config import EndConfig
from tests.daa_node.adapters.certificates import make_certificate
from tests.daa_node.cli.test_daemon import TINY, daa_node, network, running, until

pytestmark = pytest.mark.usefixtures("warm_programs")

ENDLESS = TINY.model_copy(update={"end": EndConfig(rounds=100_000)})
HERE, ELSEWHERE = "127.0.0.2", "127.0.0.3"  # addresses of an honest visitor and of the other one
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ATTACK_S = 6.0
RUN = """
import sys
from pathlib import Path
from daa_node.cli.compose import Simulated, run_daemon
run_daemon(Path(sys.argv[1]), None, (), True, Simulated(site=Path(sys.argv[2])))
"""


def page_in(directory: Path) -> Path:
    site = directory / "site"
    (site / "assets").mkdir(parents=True)
    (site / "index.html").write_text("<!doctype html><script src='assets/it-AbCd_f-1.js'>")
    (site / "assets" / "it-AbCd_f-1.js").write_text("let us = 'begin'")
    (site / "large.wasm").write_bytes(os.urandom(3_000_000))
    (directory / "secret.txt").write_text("nobody may read this")
    (site / "out").symlink_to(directory / "secret.txt")
    return site


def with_gateway(node: Path, listen: str = "127.0.0.1:0") -> None:
    with (node / "config.yaml").open("a") as settings:
        settings.write(f"gateway:\n  enabled: true\n  listen: {listen}\n")


def serving(node: Path, site: Path) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """The daemon in `node`, which has its page from `site`."""
    return running(node, "-c", RUN, str(node), str(site))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a network of one that goes on and on, and serves a little page."""
    root = tmp_path_factory.mktemp("gateway")
    (node,) = network(root, 1, ENDLESS)
    with_gateway(node)
    with (node / "config.yaml").open("a") as settings:
        settings.write("api:\n  listen: 127.0.0.1:0\n")
    site = page_in(root)
    with serving(node, site):
        until(node, "gateway open", lambda said: said["gateway"]["url"] and said["height"] > 0)
        yield node


def standing(node: Path) -> dict[str, Any]:
    return until(node, "answer", lambda said: True)


def port_of(node: Path) -> int:
    return int(standing(node)["gateway"]["listens"].rpartition(":")[2])


def fetch(node: Path, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(
        "127.0.0.1", port_of(node), timeout=60, source_address=(HERE, 0)
    )
    try:
        connection.request("GET", path, headers={"Host": "localhost", **headers})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_the_page_is_fetched_with_its_policy_and_its_types(gateway: Path) -> None:
    answer, body = fetch(gateway, "/")
    assert (answer.status, body[:15]) == (200, b"<!doctype html>")
    assert "ws://127.0.0.1:" in (answer.getheader("Content-Security-Policy") or "")
    asset, body = fetch(gateway, "/assets/it-AbCd_f-1.js")
    assert body == b"let us = 'begin'"
    assert "immutable" in (asset.getheader("Cache-Control") or "")
    large, body = fetch(gateway, "/large.wasm")
    assert (large.getheader("Content-Type"), len(body)) == ("application/wasm", 3_000_000)
    again, body = fetch(gateway, "/large.wasm", **{"If-None-Match": large.getheader("ETag") or ""})
    assert (again.status, body) == (304, b"")


@pytest.mark.parametrize(
    "path",
    ["/../secret.txt", "/..%2fsecret.txt", "/out", "/assets/", "/assets", "/../config.yaml", "//"],
)
def test_nothing_outside_of_the_page_is_served(gateway: Path, path: str) -> None:
    answer, body = fetch(gateway, path)
    assert answer.status == 404
    assert b"nobody" not in body


def test_a_rebound_name_is_told_nothing(gateway: Path) -> None:
    for path in ("/", "/gateway.json"):
        answer, body = fetch(gateway, path, Host="evil.example")
        assert answer.status == 421
        assert b"chain" not in body


def test_the_page_learns_where_to_dial_and_status_tells_where_it_is(gateway: Path) -> None:
    said = standing(gateway)
    told = json.loads(fetch(gateway, "/gateway.json")[1])
    assert (told["chain_id"], told["node_id"]) == (said["chain_id"], said["node_id"])
    assert told["dial"] == [address for address in said["addresses"] if "/ws/" in address]
    assert told["dial"]
    assert 0 < told["height"] <= standing(gateway)["height"]
    shown = daa_node("status", "--dir", gateway).stdout
    assert f"gateway     {said['gateway']['url']}" in shown
    assert f"api         {said['api']['url']}; `daa-node dashboard`" in shown
    host, _, port = told["dial"][0].split("/")[2:5]
    with socket.create_connection((host, int(port)), 10) as libp2p:  # a WebSocket is there
        libp2p.sendall(UPGRADE)
        assert libp2p.recv(100).startswith(b"HTTP/1.1 101")


def api_listens(node: Path) -> str:
    """Where the operator's API is, as the event log tells."""
    events = [json.loads(line) for line in (node / "events.jsonl").read_text().splitlines()]
    opened = [event for event in events if event["name"] == "api_opened"]
    return str(opened[-1]["listens"])


def test_the_operators_api_is_another_door_with_tokens_of_its_own(gateway: Path) -> None:
    host, _, port = api_listens(gateway).rpartition(":")
    token = (gateway / "api-read.token").read_text().strip()
    answers = {}
    for path in ("/livez", "/readyz", "/metrics", "/v1/status"):
        for headers in ({}, {"Authorization": f"Bearer {token}"}):
            connection = http.client.HTTPConnection(host, int(port), timeout=60)
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answers[path, bool(headers)] = (answer.status, answer.read())
            connection.close()
    assert [answers[path, False][0] for path in ("/livez", "/readyz", "/metrics")] == [
        200,
        401,
        401,
    ]
    assert answers["/readyz", True] == (200, b"ready\n")
    assert b"\ndaa_height " in answers["/metrics", True][1]
    told = json.loads(answers["/v1/status", True][1])
    assert told.keys() == standing(gateway).keys()
    assert fetch(gateway, "/metrics")[0].status == 404  # the page's door knows nothing of it


def test_the_operators_api_pauses_a_node_and_keeps_a_record_of_it(gateway: Path) -> None:
    host, _, port = api_listens(gateway).rpartition(":")
    admin = (gateway / "api-admin.token").read_text().strip()

    def post(path: str, **body: object) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        headers = {"Authorization": f"Bearer {admin}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        return answer.status, json.loads(said) if answer.status == 200 else {"said": said}

    assert post("/v1/pause") == (200, {"schema_version": 1, "paused": True})
    assert standing(gateway)["paused"] is True
    assert post("/v1/resume") == (200, {"schema_version": 1, "paused": False})
    assert standing(gateway)["paused"] is False
    assert post("/v1/membership/approve", id="ab" * 32)[0] == 409
    changes = {"log.files_max": 5}
    assert b"has changed since" in post("/v1/settings", changes=changes, digest="0" * 64)[1]["said"]
    audit = gateway / "api-audit.jsonl"
    deeds = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(deed["asked"], deed["status"]) for deed in deeds] == [
        ("POST /v1/pause", 200),
        ("POST /v1/resume", 200),
        ("POST /v1/membership/approve", 409),
        ("POST /v1/settings", 409),
    ]
    assert audit.stat().st_mode & 0o777 == 0o600
    assert admin not in audit.read_text()


def hostile(port: int, first: bytes) -> socket.socket:
    stranger = socket.socket()
    stranger.settimeout(5)
    stranger.bind((ELSEWHERE, 0))
    stranger.connect(("127.0.0.1", port))
    with suppress(OSError):  # it is shown out
        stranger.sendall(first)
    return stranger


def test_strangers_do_their_worst_and_the_rounds_go_on(gateway: Path) -> None:
    port, before = port_of(gateway), standing(gateway)
    strangers = [
        hostile(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nx: " + b"y" * 10_000_000),
        hostile(port, GET * 5_000),
        hostile(port, UPGRADE + b"\x00"),
        hostile(port, b"GET /large.wasm HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100),
    ]
    began_s, slowest_s = time.monotonic(), 0.0
    try:
        for count in range(1_000):
            strangers.append(hostile(port, b"GET / HT"))  # and never the rest
            if count % 100 == 0:
                asked_s = time.monotonic()
                assert fetch(gateway, "/")[0].status == 200
                slowest_s = max(slowest_s, time.monotonic() - asked_s)
                said = standing(gateway)["gateway"]
                assert said["connections"] <= SOCKETS_MAX
        time.sleep(max(0.0, began_s + ATTACK_S - time.monotonic()))
        until(gateway, "two rounds more", lambda said: said["height"] >= before["height"] + 2)
    finally:
        for stranger in strangers:
            stranger.close()
    after = standing(gateway)
    assert after["gateway"]["failure"] is None
    assert fetch(gateway, "/")[0].status == 200
    assert slowest_s < 20.0  # an honest visitor waits behind those who wait in the kernel
    events = json.loads(daa_node("logs", "-n", "2000", "--json", "--dir", gateway).stdout)["events"]
    names = {event["name"] for event in events}
    assert not names & {"visit_failed", "gateway_failed", "page_missing", "descriptors_short"}


def test_no_second_event_loop_runs_beside_trio(gateway: Path) -> None:
    pid = standing(gateway)["pid"]
    if not Path(f"/proc/{pid}/fd").is_dir():
        pytest.skip("no /proc here")
    opened = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed between the two looks
            opened.append(os.readlink(link))
    # trio's, and that of the API's anteroom; asyncio would have its own
    assert opened.count("anon_inode:[eventpoll]") == 2


def test_with_a_certificate_page_and_libp2p_are_reached_over_tls(tmp_path: Path) -> None:
    (node,) = network(tmp_path, 1)
    make_certificate(node)
    with_gateway(node)
    with (node / "config.yaml").open("a") as settings:
        settings.write("  hosts: [127.0.0.1]\n  tls_certificate: cert.pem\n  tls_key: key.pem\n")
    trusting = ssl.create_default_context(cafile=str(node / "cert.pem"))
    with running(node):
        said = until(node, "gateway open", lambda said: said["gateway"]["url"])
        page = said["gateway"]["url"]
        with urllib.request.urlopen(f"{page}gateway.json", context=trusting, timeout=60) as answer:
            (dialled,) = json.loads(answer.read())["dial"]
        assert page.startswith("https://127.0.0.1:")
        _, _, host, _, port, transport, *_ = dialled.split("/")
        assert transport == "wss"
        with (
            socket.create_connection((host, int(port)), 20) as plain,
            trusting.wrap_socket(plain, server_hostname=host) as libp2p,
        ):
            libp2p.sendall(UPGRADE)
            assert libp2p.recv(100).startswith(b"HTTP/1.1 101")


def test_a_taken_port_and_a_missing_page_cost_no_round(tmp_path: Path) -> None:
    (node,) = network(tmp_path, 1)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        with_gateway(node, f"127.0.0.1:{holder.getsockname()[1]}")
        with serving(node, tmp_path / "nothing"):
            said = until(node, "job done", lambda said: said["done"])
    assert said["height"] == 2
    assert "in use" in said["gateway"]["failure"]
    told = (node / "told").read_text()
    assert "gateway_failed" in told
    assert told.count("page_missing") == told.count("make page") == 1


def test_a_gateway_open_to_all_without_tls_is_refused_in_one_line(tmp_path: Path) -> None:
    (node,) = network(tmp_path, 1)
    with_gateway(node, "0.0.0.0:8080")
    done = daa_node("run", "--dir", node)
    assert done.returncode == 2
    assert "error: gateway: listen: 0.0.0.0:8080 is open to others" in done.stderr
    shown = daa_node("config", "show", "--origin", "--dir", node)
    assert shown.returncode == 2
