"""What stops a volunteer whose page is whole, in a real browser: told in words, and for good."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import trio

from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.site_directory import SITE
from daa_node.observability import events
from daa_node.observability.events import Event, EventLog
from daa_node.wire.protocols import PROTOCOL_VERSION
from tests.browser.chromium import chromium
from tests.browser.gateway_alone import gateway_alone
from tests.browser.site_server import serving

SCRIPT = Path(__file__).parents[2] / "wasm_worker/test/refused.js"
VISIT_S_MAX = 300
NO_STORAGE = """
IDBFactory.prototype.open = () => { throw new DOMException("denied by the user", "SecurityError") };
"""
AN_HOUR_AHEAD = "{ const now = Date.now; Date.now = () => now() + 3_600_000; }"


def site_with(folder: Path, before_net_worker: str = "") -> Path:
    """The built page, whose net worker finds the browser changed."""
    shutil.copytree(SITE, folder, dirs_exist_ok=True)
    (net_worker,) = (folder / "assets").glob("net_worker-*.js")
    net_worker.write_text(before_net_worker + net_worker.read_text())
    for twin in net_worker.parent.glob(f"{net_worker.name}.*"):
        twin.unlink()
    return folder


def refused_at(address: str) -> dict[str, Any]:
    """What a person sees: see wasm_worker/test/refused.js."""
    command = ["node", str(SCRIPT), address, chromium()]
    visited = subprocess.run(command, capture_output=True, text=True, timeout=VISIT_S_MAX)
    assert visited.returncode == 0, visited.stderr
    seen: dict[str, Any] = json.loads(visited.stdout)
    return seen


def test_a_browser_that_stores_nothing_is_told_what_to_allow(tmp_path: Path) -> None:
    with serving(site_with(tmp_path, NO_STORAGE)) as address:
        seen = refused_at(address)
    assert seen["now"] == "This browser refuses to store the key"
    assert seen["why"].endswith("(It said: denied by the user.)")
    assert seen["buttons"] == ["Start again"]


def test_a_page_older_than_its_gateway_is_told_to_reload(tmp_path: Path) -> None:
    site = site_with(tmp_path)
    told = {
        **{"chain_id": "c4" * 32, "node_id": "0d" * 32, "peer_id": "12D3KooW", "dial": []},
        **{"protocol_version": PROTOCOL_VERSION + 2, "volunteers": [0, 256]},
        **{"protocol_version_min": PROTOCOL_VERSION + 1, "wanted": [], "site": "ab"},
    }
    (site / "gateway.json").write_text(json.dumps(told))
    with serving(site) as address:
        seen = refused_at(address)
    assert seen["now"] == "This page is of another version than its gateway"
    assert seen["why"].startswith("Reload the page")
    assert seen["buttons"] == ["Start again"]


async def test_a_clock_that_is_an_hour_ahead_is_refused_by_the_gateway(tmp_path: Path) -> None:
    told, store = list[Event](), DiskBlobStore(tmp_path / "store")
    site = site_with(tmp_path / "site", AN_HOUR_AHEAD)
    log = EventLog(lambda: 0, told.append)
    async with gateway_alone(store, [], log, lambda evidence: None, site) as address:
        seen = await trio.to_thread.run_sync(refused_at, address)
    assert seen["now"] == "The clock of this computer is wrong"
    assert "Set date and time to automatic" in seen["why"]
    (refused,) = [event for event in told if event["name"] == events.VOLUNTEER_REFUSED]
    assert refused["reason"] == "clock"
