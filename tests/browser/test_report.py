"""The file that `simnet report` writes, opened from the disk in headless Chromium.

`make test-browser` builds what draws it first. One visit is made and looked at by all tests.
"""

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from simnet.results.report import PAGE, make_report
from tests.browser.chromium import chromium
from tests.simnet.results.kept_run import keep

SCRIPT = Path(__file__).parents[2] / "dashboard/test/report_look.js"
VISIT_S_MAX = 300
GZIP_BYTES_MAX = 150_000
NODES = 4


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was seen: see dashboard/test/report_look.js."""
    assert (PAGE / "report.js").exists(), "the page of a report is not built: make dashboard"
    folder = keep(tmp_path_factory.mktemp("report") / "run", nodes=NODES)
    file = folder / "report.html"
    naive = keep(folder.parent / "naive", nodes=NODES, adaptive=False)
    file.write_text(make_report(folder, naive), encoding="utf-8")
    screenshots = os.environ.get("PAGE_SCREENSHOTS")
    visited = subprocess.run(
        ["node", SCRIPT, file, chromium(), *([screenshots] if screenshots else [])],
        capture_output=True,
        text=True,
        timeout=VISIT_S_MAX,
    )
    assert visited.returncode == 0, visited.stderr
    seen: dict[str, Any] = json.loads(visited.stdout)
    return seen


def test_the_page_opens_from_a_file_and_asks_for_nothing_else(visit: dict[str, Any]) -> None:
    assert visit["title"] == "two-halves \u00b7 simnet"
    assert visit["heading"] == "two-halves: broken"
    assert visit["elsewhere"] == []
    assert visit["complaints"] == []


def test_all_that_there_is_to_tell_has_its_card(visit: dict[str, Any]) -> None:
    assert visit["cards"] == [
        "Adaptive against naive",
        "What had to hold",
        "Timeline",
        "What was done to it",
        "Held-out loss",
        "Rounds",
        "Behind routers",
        "Measured",
        "Scenario",
        "Again",
    ]


def test_axe_core_finds_nothing_and_nothing_sticks_out_at_either_width_and_scheme(
    visit: dict[str, Any],
) -> None:
    assert len(visit["found"]) == 5
    assert {look: words for look, words in visit["found"].items() if words} == {}


def test_the_timeline_is_painted_told_in_words_and_comes_closer_by_keyboard(
    visit: dict[str, Any],
) -> None:
    for in_fault, healed, away, back in visit["painted"].values():
        assert in_fault != healed == back != away != in_fault, visit["painted"]
    assert visit["pointed"] == "node 0, 3.500 s \u00b7 view 7 \u00b7 partition halves"
    assert visit["picture"] == (
        f"Timeline of {NODES} nodes over 7.000 s: 1 final block seen, 1 fault. "
        "progress broke at 6.500 s."
    )
    assert (visit["whole"], visit["closer"]) == ("0.000 s to 7.000 s", "1.750 s to 5.250 s")
    assert visit["figures"] == [f"node {node}" for node in range(NODES)]


def test_adaptive_and_naive_stand_side_by_side(visit: dict[str, Any]) -> None:
    assert "Certified tokens a second: adaptive 103, naive 80" in visit["sides"]
    assert visit["bars"] == {"Certified tokens a second": ["103", "80 \u00d7 0.777"]}


def test_what_draws_a_report_is_light() -> None:
    sizes = [len(gzip.compress(path.read_bytes(), 9)) for path in PAGE.iterdir()]
    assert 0 < sum(sizes) <= GZIP_BYTES_MAX
