"""The built dashboard in headless Chromium, over the API's own door and desk.

`make test-browser` builds the page first. One visit is made and looked at by all tests.
"""

import gzip
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from daa_node.adapters.site_directory import DASHBOARD, read_site
from tests.browser.chromium import chromium
from tests.browser.dashboard_alone import CLEO, MARKUP, dashboard_alone
from tests.daa_node.api.operator_desks import TOKENS

SCRIPT = Path(__file__).parents[2] / "dashboard/test/look.js"
VISIT_S_MAX = 300
GZIP_BYTES_MAX = 150_000


@pytest.fixture(scope="module")
def visit() -> dict[str, Any]:
    """What was seen: see dashboard/test/look.js."""
    assert (DASHBOARD / "index.html").exists(), "the dashboard is not built: make dashboard"
    screenshots = os.environ.get("PAGE_SCREENSHOTS")

    def look(address: str) -> dict[str, Any]:
        command = ["node", str(SCRIPT), address, TOKENS.read, TOKENS.admin, chromium()]
        visited = subprocess.run(
            [*command, screenshots] if screenshots else command,
            capture_output=True,
            text=True,
            timeout=VISIT_S_MAX,
        )
        assert visited.returncode == 0, visited.stderr
        seen: dict[str, Any] = json.loads(visited.stdout)
        return seen | {"address": address}

    async def visited() -> dict[str, Any]:
        async with dashboard_alone(time.time) as address:
            return await trio.to_thread.run_sync(look, address)

    return trio.run(visited)


def test_who_has_no_token_is_told_where_one_is(visit: dict[str, Any]) -> None:
    assert visit["asksFor"] == "A token opens this page"
    assert visit["misshapen"].startswith("A token has 64 characters")
    assert visit["refused"] == "This token opens nothing here"
    assert visit["refusedAgain"] == visit["refused"]


def test_the_token_leaves_the_address_is_sent_in_none_and_outlives_a_reload(
    visit: dict[str, Any],
) -> None:
    assert visit["seen"]["addressAfter"] == visit["address"]
    assert not [url for url in visit["requests"] if "token" in url or TOKENS.read in url]
    assert visit["nowAfterReload"].startswith("Round 13")


def test_the_page_tells_what_happens_and_why(visit: dict[str, Any]) -> None:
    seen = visit["seen"]
    assert seen["now"] == "Round 13: waiting for contributions"
    assert [words.split("checkpoint")[0] for words in seen["rounds"]][1:] == [
        "Round 12",
        "Round 11",
    ]
    assert "under way" in seen["rounds"][0]
    assert seen["curve"].startswith("Held-out loss: 5.5000 at height 0")
    assert any("Would raise it: Staying for more rounds" in words for words in seen["health"])
    assert any("Nine tenths of storage.bytes_max" in words for words in seen["health"])
    (lately,) = (words for words in seen["health"] if words.startswith("name unknown"))
    assert "What to do: Look at the spelling under network.bootstrap" in lately
    assert "join e5e5" in seen["request"].lower()
    assert {"decision", "peer left", "round finalized"} <= set(seen["log"])


def test_each_drawing_says_in_words_and_in_a_table_what_it_shows(visit: dict[str, Any]) -> None:
    drawings = visit["seen"]["drawings"]
    assert len(drawings) == 6
    told = {
        words.split(":")[0].split(",")[0].split(".")[0]: rows for words, rows in drawings.items()
    }
    assert [row[1] for row in told["3 nodes"]] == ["directly", "through a relay", "gone"]
    (of_cleo,) = [row for row in told["Of checkpoint 11"] if row[0] == CLEO[:8]]
    assert of_cleo[-1].endswith("(+0.3000)")
    graph = told["The newest 14 certified checkpoints"]
    assert [row[3] for row in graph if row[0] == "9"] == ["08080808, 8b8b8b8b"]
    assert [row[7] for row in graph if row[0] == "11"] == [f"{CLEO[:8]} is convicted, and excluded"]
    assert len(told["Round trips to 3 nodes in the last hour"]) == 3
    assert {row[1] for row in told["Loss over time"]} == {"this network", "straggler, seed 7"}


def test_each_node_is_reached_in_a_way_and_a_relayed_one_for_a_reason(
    visit: dict[str, Any],
) -> None:
    ways = visit["seen"]["ways"]
    assert ways == [
        "directly, WebSocket",
        "through a relayno hole: no stream came about",
        "last: direct",
    ]


def test_the_loops_log_tells_what_was_decided_learned_and_changed(visit: dict[str, Any]) -> None:
    newest, lesson, decision = visit["seen"]["decisions"]
    assert "patience falls to 1.9 s" in newest.lower()
    assert "Training took 2.6 s, 2.4 s were expected." in lesson
    assert "decided: train" in decision


def test_a_node_that_goes_is_shown_as_gone_with_its_reason(visit: dict[str, Any]) -> None:
    gone = visit["seen"]["gone"]
    assert gone.startswith(CLEO[:8])
    assert "gone" in gone
    assert "connection ended" in gone


def test_what_a_peer_says_is_shown_as_it_is_and_is_no_part_of_the_page(
    visit: dict[str, Any],
) -> None:
    assert f"detail {MARKUP}" in visit["seen"]["logged"]
    assert visit["seen"]["images"] == 0


def test_the_log_shows_one_kind_and_then_all_again(visit: dict[str, Any]) -> None:
    learned, lesson, decided = visit["decisions"]
    assert ("policy adapted" in learned, "lesson" in lesson) == (True, True)
    assert "a quorum is reachable" in decided
    assert len(visit["loggedBefore"]) > 20
    assert visit["loggedAfter"] == visit["loggedBefore"]


def test_axe_core_finds_nothing_and_nothing_sticks_out_at_either_width_and_scheme(
    visit: dict[str, Any],
) -> None:
    assert len(visit["found"]) == 10
    assert {look: words for look, words in visit["found"].items() if words} == {}


def test_the_keyboard_opens_a_dialog_is_held_in_it_and_comes_back(visit: dict[str, Any]) -> None:
    assert visit["inDialog"] == "admin-token"
    assert visit["dialogFault"].startswith("A token has 64 characters")
    assert visit["afterDialog"] == "Drain"


def test_orders_take_the_admin_token_and_are_seen_to_be_done(visit: dict[str, Any]) -> None:
    assert visit["readOnly"] == "This is not the admin token of this node: nothing was done."
    assert visit["focusedAfter"] == "controls"


def test_a_setting_is_compared_before_it_is_changed(visit: dict[str, Any]) -> None:
    assert visit["difference"] == "log.files_max56"
    assert visit["changed"].startswith("Changed")


def test_a_setting_that_others_have_changed_meanwhile_is_compared_anew(
    visit: dict[str, Any],
) -> None:
    assert visit["meanwhile"].startswith("config.yaml has changed since you read the settings")


def test_nothing_comes_from_elsewhere_and_nothing_is_complained_of(visit: dict[str, Any]) -> None:
    ours = urlsplit(visit["address"]).netloc
    assert {urlsplit(url).netloc for url in visit["requests"]} == {ours}
    assert visit["complaints"] == []


def test_the_dashboard_is_light() -> None:
    files = read_site(DASHBOARD)
    sizes = [
        len(gzip.compress(body, 9))
        for path, body in files.items()
        if not path.endswith((".br", ".gz"))
    ]
    assert 0 < sum(sizes) <= GZIP_BYTES_MAX
