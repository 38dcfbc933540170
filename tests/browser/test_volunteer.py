"""The built page as a volunteer of a real network: it joins, works, signs, and is found right."""

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from daa_dag.ids import node_id_of
from daa_node.wire.volunteer_messages import TaskKind
from tests.browser.chromium import chromium
from tests.daa_node.cli.test_daemon import daa_node, network, running, until
from tests.daa_node.cli.test_gateway import with_gateway
from tests.daa_node.cli.test_volunteers import CHECKED

pytestmark = pytest.mark.usefixtures("warm")

ROOT = Path(__file__).parents[2]
SITE = ROOT / "wasm_worker/daa_compute_page/site"
PAYLOAD_BYTES_MAX = 20_000_000
VISIT_S_MAX = 400


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was seen of one visit (wasm_worker/test/volunteer.js), and what the gateway noted."""
    assert (SITE / "index.html").exists(), "the page is not built: make page"
    root = tmp_path_factory.mktemp("network")
    node, other = network(root, 2, CHECKED)
    with_gateway(node)
    with running(node), running(other):
        said = until(node, "work", lambda said: said["gateway"]["url"] and said["height"] > 2)
        script = str(ROOT / "wasm_worker/test/volunteer.js")
        visited = subprocess.run(
            ["node", script, said["gateway"]["url"], chromium(), str(root)],
            capture_output=True,
            text=True,
            timeout=VISIT_S_MAX,
        )
        assert visited.returncode == 0, visited.stderr
        logged = json.loads(daa_node("logs", "-n", "2000", "--json", "--dir", node).stdout)
        told = until(node, "answer", lambda said: True)
    seen: dict[str, Any] = json.loads(visited.stdout)
    return seen | {"events": logged["events"], "said": told, "address": said["gateway"]["url"]}


def noted(visit: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [event for event in visit["events"] if event["name"] == name]


def test_results_of_every_kind_are_found_right_and_none_wrong(visit: dict[str, Any]) -> None:
    assert set(visit["marks"]) == set(TaskKind)
    for kind, words in visit["marks"].items():
        assert "right" in words, kind
        assert "another result" not in words, kind
    assert visit["tiles"]["Right"] == "100 %"
    assert visit["now"].startswith("Finished. You checked ")
    assert visit["said"]["gateway"]["volunteers"]["refused"] == {}


def test_it_comes_by_a_websocket_to_the_gateway_that_served_it_and_leaves(
    visit: dict[str, Any],
) -> None:
    connection, said = visit["connection"], visit["said"]
    assert connection["Transport"] == "ws"
    assert connection["Address"] in said["addresses"]
    assert connection["Gateway"].startswith("connected to " + said["node_id"][:8])
    assert said["gateway"]["volunteers"]["sessions"] == 0


def test_what_is_saved_is_the_key_that_signed(visit: dict[str, Any]) -> None:
    file = Path(visit["file"])
    key = load_pem_private_key(file.read_bytes(), None)
    assert isinstance(key, MLDSA65PrivateKey)
    name = node_id_of(key.public_key().public_bytes_raw()).hex()
    assert {event["volunteer"] for event in noted(visit, "volunteer_came")} == {name}
    assert file.name == f"daa-volunteer-{name[:16]}.pem"


def test_who_comes_back_is_known_by_its_key(visit: dict[str, Any]) -> None:
    assert visit["again"]["connection"]["This browser"] == visit["connection"]["This browser"]
    assert visit["again"]["tiles"]["This visit"] == "0"
    assert int(visit["again"]["tiles"]["In all"]) >= int(visit["tiles"]["In all"])


def test_nothing_is_asked_elsewhere_and_nothing_complained_of(visit: dict[str, Any]) -> None:
    asked = [urlsplit(url) for url in visit["requests"]]
    assert any(url.path.endswith(".whl") for url in asked)
    assert any(url.path == "/gateway.json" for url in asked)
    hosts = {urlsplit(visit["address"]).netloc}
    hosts |= {":".join(address.split("/")[2:5:2]) for address in visit["said"]["addresses"]}
    assert {url.netloc for url in asked if url.scheme != "blob"} <= hosts
    assert visit["complaints"] == []


def test_what_comes_over_the_wire_is_light(visit: dict[str, Any]) -> None:
    paths = {urlsplit(url).path.lstrip("/") or "index.html" for url in visit["requests"]}
    files = [SITE / path for path in paths if (SITE / path).is_file()]
    plain_bytes = sum(file.stat().st_size for file in files)
    wire_bytes = sum(
        min(twin.stat().st_size for twin in file.parent.glob(f"{file.name}*")) for file in files
    )
    assert wire_bytes < plain_bytes <= PAYLOAD_BYTES_MAX
