"""The dashboard of one of four daemons that train, in headless Chromium, while much happens.

`make test-browser` builds the page first. One visit, of dashboard/test/live.js: the loss moves, a
fifth node is let in by the page's button, one is killed, and the page's own one is drained. How
long the page took to tell of the kill is printed, and not judged: it is the machine's matter, too.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from daa_node.adapters import control_socket
from daa_node.adapters.site_directory import DASHBOARD
from daa_node.agreement.config import AgreementConfig
from daa_node.cli.free_ports import free_ports
from tests.browser.chromium import chromium
from tests.scenarios.little_cluster import TINY, LittleCluster, Node, height, until
from tests.scenarios.test_members_come_and_go import command, members, newcomer_of

SCRIPT = Path(__file__).parents[2] / "dashboard/test/live.js"
JOB = TINY.model_copy(
    update={"agreement": AgreementConfig(delta_ms=150, view_timeout_cap_ms=3_000, epoch_rounds=2)}
)
HELD_OUT = re.compile(r"([0-9.]+) at height ([0-9]+)(?=[,.] )")


class Browser:
    """The script, stage by stage."""

    def __init__(self, address: str, node: Node) -> None:
        tokens = [
            (node.directory / f"api-{right}.token").read_text().strip()
            for right in ("read", "admin")
        ]
        shots = os.environ.get("PAGE_SCREENSHOTS")
        self._process = subprocess.Popen(
            ["node", str(SCRIPT), address, *tokens, chromium(), *([shots] if shots else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._words, self._told = self._process.stdin, self._process.stdout

    def at(self, stage: str) -> dict[str, Any]:
        """What it saw up to there; it says itself when something hangs."""
        line = self._told.readline()
        assert line, f"the browser's script ended before {stage}: see above"
        seen: dict[str, Any] = json.loads(line)
        assert seen.pop("stage") == stage
        return seen

    def go_on(self, word: str = "") -> None:
        self._words.write(f"{word}\n")

    def close(self) -> None:
        self._words.close()  # at which the script ends, and its browser with it
        self._process.wait(60)
        self._told.close()


@dataclass(slots=True)
class Visit:
    """What the page showed at each stage, and what was so."""

    address: str
    watched: Node
    newcomer: str
    doomed: str
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    members_before: set[str] = field(default_factory=set)
    members_after: set[str] = field(default_factory=set)
    losses: dict[int, float] = field(default_factory=dict)
    killed_at_s: float = 0.0
    exit_code: int | None = None


def losses(node: Node) -> dict[int, float]:
    """By height, as the daemon tells them."""
    told = control_socket.ask(node.directory / "control.sock", "rounds")["rounds"]
    return {one["height"]: one["loss_nats"] for one in told}


@pytest.fixture(scope="module")
def visit(warm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    assert (DASHBOARD / "index.html").exists(), "the dashboard is not built: make dashboard"
    cluster = LittleCluster(tmp_path_factory.mktemp("live") / "cluster", JOB)
    watched, second, third, doomed = cluster.nodes
    [port] = free_ports(1)
    with (watched.directory / "config.yaml").open("a") as config:
        config.write(f"api: {{listen: '127.0.0.1:{port}'}}\n")
    try:
        cluster.start()
        newcomer = newcomer_of(cluster)
        newcomer.start()
        until("a round", lambda: height(watched) >= 1, cluster.nodes)
        made = Visit(
            f"http://127.0.0.1:{port}/", watched, newcomer.node_id.hex(), doomed.node_id.hex()
        )
        browser = Browser(made.address, watched)
        try:
            _act(made, browser, cluster, newcomer, (second, third))
        finally:
            browser.close()
        yield made
    finally:
        cluster.close()


def _act(
    visit: Visit,
    browser: Browser,
    cluster: LittleCluster,
    newcomer: Node,
    others: tuple[Node, Node],
) -> None:
    """The story, in the order of its stages."""
    seen, watched = visit.seen, visit.watched
    asked = until("it asks to join", lambda: command(newcomer, "propose", "join"), [newcomer])
    for other in others:  # the third approval is the page's
        until("it is heard", partial(command, other, "approve", asked["id"]), [other])
    seen["loss"] = browser.at("loss")
    visit.losses = losses(watched)
    browser.go_on()
    seen["request"] = browser.at("request")
    visit.members_before = members(watched)
    browser.go_on()
    seen["member"] = browser.at("member")
    visit.members_after = members(watched)
    browser.go_on(visit.doomed)
    browser.at("watching")
    visit.killed_at_s = time.time()
    cluster.nodes[3].kill()
    browser.go_on()
    seen["gone"] = browser.at("gone")
    browser.go_on()
    seen["drained"] = browser.at("drained")
    visit.exit_code = watched.gone()
    browser.go_on()


def looks(visit: Visit) -> Iterator[dict[str, list[str]]]:
    return (seen["found"] for seen in visit.seen.values() if "found" in seen)


def test_the_loss_moves_and_is_what_the_daemon_says(visit: Visit) -> None:
    shown = visit.seen["loss"]
    heights = {}
    for moment in ("before", "after"):
        _, last = HELD_OUT.findall(shown[moment])[:2]
        loss, at = last
        heights[moment] = int(at)
        assert loss == f"{visit.losses[int(at)]:.4f}"
    assert heights["after"] >= heights["before"] + 2
    assert shown["after"] != shown["before"]


def test_a_membership_request_is_approved_by_the_pages_button(visit: Visit) -> None:
    asked = visit.seen["request"]["asked"]
    # a sentence begins with a capital, also where that is a digit of a name
    assert asked.lower().startswith(f"{visit.newcomer[:16]} joins with stake 1.")
    assert "approvals weigh 2 of 3" in asked
    assert visit.newcomer not in visit.members_before
    assert visit.members_after == visit.members_before | {visit.newcomer}
    assert visit.seen["request"]["members"].startswith("4 validators")
    assert visit.seen["member"]["members"].startswith("5 validators")


def test_a_killed_node_turns_red_with_its_reason_and_rounds_go_on(visit: Visit) -> None:
    gone = visit.seen["gone"]
    assert gone["row"].startswith(visit.doomed[:8])
    assert gone["why"].startswith("connection ended")
    red, green, blue = map(int, re.findall(r"\d+", gone["colour"])[:3])
    assert red > 1.5 * max(green, blue)
    assert gone["others"] >= 1
    assert any("connection ended" in line for line in gone["logged"])
    left = [
        event["ts"]
        for event in visit.watched.events.since(0)
        if event["name"] == "peer_left" and event["node_id"] == visit.doomed
    ]
    shown_s = gone["atMs"] / 1e3
    assert visit.killed_at_s < left[0] < shown_s
    print(
        f"killed; {left[0] - visit.killed_at_s:.3f} s later the event, "
        f"{shown_s - left[0]:.3f} s after that red on the page"
    )


def test_drain_ends_the_daemon_and_the_page_says_so(visit: Visit) -> None:
    seen = visit.seen["drained"]
    assert visit.exit_code == 0
    assert seen["said"] == "The node has taken the order: drain and stop."
    assert seen["link"] == "No answer, trying again"
    assert seen["now"] == "The daemon does not answer"
    assert visit.watched.events.count("node_stopped") == 1


def test_axe_core_finds_nothing_while_the_cluster_lives(visit: Visit) -> None:
    found = {look: words for each in looks(visit) for look, words in each.items()}
    assert len(found) == 4
    assert {look: words for look, words in found.items() if words} == {}


def test_each_control_has_a_name_for_who_does_not_see_it(visit: Visit) -> None:
    request, member, drained = (visit.seen[stage] for stage in ("request", "member", "drained"))
    for controls in (request["controls"], member["inDialog"], drained["controls"]):
        assert len(controls) >= 3
        assert [role for role, name in controls if not name] == []
    names = {name for _, name in request["controls"]}
    assert {"Pause", "Drain", "To the content", "Show"} <= names
    assert any(name.startswith("Approve the request ") for name in names)
    assert ["textbox", "Admin token"] in member["inDialog"]


def test_nothing_comes_from_elsewhere_and_nothing_is_complained_of(visit: Visit) -> None:
    seen = visit.seen["drained"]
    assert {urlsplit(url).netloc for url in seen["requests"]} == {urlsplit(visit.address).netloc}
    assert seen["complaints"] == []
