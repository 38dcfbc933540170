"""The page in every state that it can show, with workers that are led to bring them about."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import chromium
from tests.browser.site_server import serving
from tests.wasm_worker.known_answers import known_answers

ROOT = Path(__file__).parents[2]
SITE = ROOT / "wasm_worker/daa_compute_page/site"
FAKES = ROOT / "wasm_worker/test/fakes"
VISIT_S_MAX = 600


def led_site(folder: Path) -> Path:
    """The built page with workers that are led in place of its own."""
    assert (SITE / "index.html").exists(), "the page is not built: make page"
    shutil.copytree(SITE, folder, dirs_exist_ok=True)
    for fake in FAKES.glob("*.js"):
        text = fake.read_text()
        if fake.stem == "compute_worker":
            digests = json.dumps([answer["digest"] for answer in known_answers()])
            assert '"ANSWERS"' in text
            text = text.replace('"ANSWERS"', digests)
        (built,) = (folder / "assets").glob(f"{fake.stem}-*.js")
        built.write_text(text)
    return folder


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was seen: see wasm_worker/test/led.js."""
    screenshots = os.environ.get("PAGE_SCREENSHOTS")
    with serving(led_site(tmp_path_factory.mktemp("site"))) as address:
        script = str(ROOT / "wasm_worker/test/led.js")
        command = ["node", script, address, chromium()]
        visited = subprocess.run(
            [*command, screenshots] if screenshots else command,
            capture_output=True,
            text=True,
            timeout=VISIT_S_MAX,
        )
    assert visited.returncode == 0, visited.stderr
    found: dict[str, Any] = json.loads(visited.stdout)
    return found


@pytest.fixture(scope="module")
def seen(told: dict[str, Any]) -> dict[str, Any]:
    states: dict[str, Any] = told["seen"]
    return states


def messages(seen: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [message for message in seen if message["type"] == kind]


def test_each_state_is_named_and_has_its_buttons(seen: dict[str, Any]) -> None:
    buttons = {name: state["buttons"] for name, state in seen.items() if "buttons" in state}
    running = ["Pause", "Finish"]
    assert buttons == {
        "idle": ["Start"],
        "loading": ["Cancel"],
        "early": running,
        "joining": running,
        "waiting": running,
        "working": running,
        "paused": ["Resume", "Finish"],
        "resting": running,
        "battery": running,
        "busy": running,
        "hidden": running,
        "worker-died": ["Cancel"],
        "net-died": ["Try now", "Finish"],
        "finished": ["Start again"],
        "practised": ["Try again"],
        "broken": ["Try again"],
        "elsewhere": ["Work here instead"],
    }


def test_what_is_done_is_told_with_what_it_is_good_for(seen: dict[str, Any]) -> None:
    assert seen["working"]["now"] == "Repeating some steps of somebody's training"
    assert "pretends to train" in seen["working"]["why"]
    marks = [*(4 * ["agreed"]), "computing", "differed", "sent"]
    assert sorted(seen["working"]["marks"]) == marks
    assert seen["working"]["tiles"] == ["6", "1,205", "99 %"]


def test_what_needs_no_python_is_proved_while_it_loads(seen: dict[str, Any]) -> None:
    assert seen["askedEarly"] == {
        "type": "ready",
        "count": 1,
        "kinds": ["certificate", "chunks", "dag"],
    }
    assert (seen["toldEarly"]["task"], seen["toldEarly"]["result"]) == ("e1", [1])
    assert seen["early"]["phase"] == "loading"
    assert seen["early"]["notes"][0].startswith("Joined.")
    assert "segment" in seen["askedLater"]["kinds"]


def test_a_pause_finishes_what_is_in_hand_and_asks_for_nothing(seen: dict[str, Any]) -> None:
    assert "finished first" in seen["paused"]["why"]
    pause, verdict = seen["toldInPause"][-2:]
    assert (pause["type"], pause["count"]) == ("ready", 0)
    assert (verdict["type"], verdict["task"]) == ("verdict", "long")


def test_it_spares_the_battery_and_a_busy_computer_and_goes_on_afterwards(
    seen: dict[str, Any],
) -> None:
    assert seen["toldOnBattery"]["count"] == seen["toldWhenBusy"]["count"] == 0
    assert seen["toldAtTheMains"]["count"] == 1
    assert "battery" in seen["battery"]["now"]
    assert "busy" in seen["busy"]["now"]


def test_a_hidden_tab_works_half_of_the_time_at_most(seen: dict[str, Any]) -> None:
    assert seen["hidden"]["why"] == "A tab that nobody looks at works half of the time at most."


def test_data_saver_asks_for_small_kinds_only(seen: dict[str, Any]) -> None:
    assert seen["toldToSaver"] == {
        "type": "ready",
        "count": 1,
        "kinds": ["certificate", "dag", "slice"],
    }


def test_a_worker_that_dies_is_replaced_and_its_task_given_back(seen: dict[str, Any]) -> None:
    assert messages(seen["toldOfDeath"], "drop") == [{"type": "drop", "task": "d1"}]
    assert seen["worker-died"]["notes"][0].endswith("anew: Out of memory.")
    assert seen["net-died"]["now"].startswith("The part of this page that talks to the gateway")


def test_a_refusal_is_told_with_what_to_do_and_a_loss_passes_by_itself(
    seen: dict[str, Any],
) -> None:
    phases = {reason: state["phase"] for reason, state in seen["reasons"].items()}
    refused = dict.fromkeys(("clock", "standing", "storage"), "refused")
    assert phases == {"lost": "away", **refused}
    assert "Next try in" in seen["reasons"]["lost"]["why"]
    assert "Set date and time to automatic" in seen["reasons"]["clock"]["why"]


def test_without_a_gateway_the_page_practises(seen: dict[str, Any]) -> None:
    assert seen["practised"]["now"] == (
        f"All {len(known_answers())} practice pieces are the same, bit for bit"
    )
    assert "numpy could not be loaded" in seen["broken"]["why"].lower()


def test_of_two_tabs_one_works_and_the_other_takes_over_when_told(seen: dict[str, Any]) -> None:
    assert messages(seen["toldOfRobbery"], "leave") == [{"type": "leave"}]
    assert messages(seen["toldOfRobbery"], "join")


def test_the_key_is_saved_and_erased_by_the_page(seen: dict[str, Any]) -> None:
    assert seen["saved"] == "daa-volunteer-5e5e.pem"


def test_choices_are_kept_for_the_next_visit(seen: dict[str, Any]) -> None:
    assert seen["keptDuty"] == "40"


def test_every_control_has_a_name(seen: dict[str, Any]) -> None:
    roles = {role for role, _ in seen["controls"]}
    assert {"button", "slider", "checkbox", "combobox"} <= roles
    nameless = [role for role, name in seen["controls"] if not name and role != "status"]
    assert nameless == []


def test_nothing_is_complained_of_but_the_deaths(told: dict[str, Any]) -> None:
    assert told["complaints"] == []
