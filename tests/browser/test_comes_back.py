"""The built page at a real gateway that is killed, and one whose tab is closed."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from daa_node.cli.free_ports import free_ports
from tests.browser.chromium import chromium
from tests.daa_node.cli.test_daemon import network, running, until
from tests.daa_node.cli.test_gateway import with_gateway
from tests.daa_node.cli.test_volunteers import JOB

pytestmark = pytest.mark.usefixtures("warm")

ROOT = Path(__file__).parents[2]
AWAY = ("away: The connection is lost", "away: The gateway cannot be reached")
LEFT_S_MAX = 15  # half of the time after which a gateway misses who has left without a word


@contextmanager
def visiting(address: str, when: str) -> Iterator["subprocess.Popen[str]"]:
    """See wasm_worker/test/comes_back.js."""
    script = str(ROOT / "wasm_worker/test/comes_back.js")
    visit = subprocess.Popen(
        ["node", script, address, chromium(), when],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield visit
    finally:
        assert visit.stdin is not None
        visit.stdin.close()
        try:
            visit.wait(60)
        finally:
            visit.kill()


def next_word(visit: "subprocess.Popen[str]") -> str:
    assert visit.stdout is not None
    return visit.stdout.readline().strip()


def go_on(visit: "subprocess.Popen[str]") -> None:
    assert visit.stdin is not None
    visit.stdin.write("go on\n")
    visit.stdin.flush()


@pytest.mark.parametrize("when", ["working", "loading"])
def test_a_page_comes_back_to_its_gateway_and_is_gone_with_its_tab(
    tmp_path: Path, when: str
) -> None:
    (node,) = network(tmp_path, 1, JOB)
    [port] = free_ports(1)
    with_gateway(node, f"127.0.0.1:{port}")
    with ExitStack() as stack:
        with running(node):
            said = until(node, "gateway open", lambda said: said["gateway"]["url"])
            visit = stack.enter_context(visiting(said["gateway"]["url"], when))
            assert next_word(visit) == when
        if when == "loading":
            go_on(visit)  # and ask for what is still to be loaded
        assert next_word(visit) in AWAY  # the daemon was killed
        with running(node):
            assert next_word(visit) == "back"
            assert next_word(visit) == "closed"
            closed_s = time.monotonic()
            until(node, "left", lambda said: said["gateway"]["volunteers"]["sessions"] == 0)
            assert time.monotonic() - closed_s < LEFT_S_MAX
            go_on(visit)
            closed, opened = json.loads(next_word(visit))
            assert opened["name"] == closed["name"]
            assert opened["all"] >= closed["all"] > 0
            told = until(node, "answer", lambda said: True)
            assert told["gateway"]["volunteers"]["refused"] == {}
