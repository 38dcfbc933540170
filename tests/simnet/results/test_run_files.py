"""Files of a run that are missing or wrong are told of; a diff finds where two runs part."""

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

from daa_node import collector
from daa_node.errors import UserError
from simnet.checks.outcome import OUTCOME_FILE, SCENARIO_FILE, TRACE_FILE, Outcome
from simnet.results import run as running
from simnet.results.run_files import events_of, first_difference, outcome_of
from simnet.world.scenario_file import open_scenario
from tests.simnet.results.kept_run import SCENARIO, keep

MANY_EVENTS = """
name: news
fidelity: heap
duration_s: 45
nodes: [{count: 20}]
work: {kind: gossip, messages: 400}
checks: {heal_s: 10}
"""


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_collects_as_usual_though_imports_were_spared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what it drops piles up: 611 MiB in place of 184, of a thousand trainers."""
    found = []
    monkeypatch.setattr(running, "_run", lambda *_given: found.append(gc.get_threshold()))
    (tmp_path / "news.yaml").write_text(MANY_EVENTS)
    collector.spare_imports()
    try:
        running.run(open_scenario(str(tmp_path / "news.yaml")))
    finally:
        collector.as_usual()
    assert found == [collector.USUAL]


def test_a_diff_names_the_first_event_that_differs(tmp_path: Path) -> None:
    one, same = keep(tmp_path / "one"), keep(tmp_path / "same")
    assert first_difference(one, same) is None
    other = first_difference(one, keep(tmp_path / "other", view=8))
    assert other is not None
    assert "\n- 2: " in other
    with (same / TRACE_FILE).open("a") as file:
        file.write("{}\n")
    told = first_difference(one, same)
    assert told is not None
    assert f"only {same} goes on" in told


def test_a_diff_tells_of_messages_that_differ_between_equal_events(tmp_path: Path) -> None:
    one, other = keep(tmp_path / "one"), keep(tmp_path / "other")
    outcome = json.loads((other / OUTCOME_FILE).read_text())
    (other / OUTCOME_FILE).write_text(json.dumps({**outcome, "trace_hash": "of other messages"}))
    told = first_difference(one, other)
    assert told is not None
    assert "events are equal, messages are not" in told
    assert "of other messages" in told


def test_a_folder_without_a_run_is_told_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="make it with `simnet run SCENARIO --out"):
        outcome_of(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"no JSON", "this is no outcome of a run"),
        (b"", "this is no outcome of a run"),
        (b"[]", "this is no outcome of a run"),
        (b"[" * 100_000, "this is no outcome of a run"),
        (b"\xff\xfe", "this is no outcome of a run"),
        (b"{}", "of another version of simnet"),
        (b'{"schema_version": 99}', "of another version of simnet"),
    ],
)
def test_an_outcome_of_something_else_is_told_in_one_line(
    text: bytes, why: str, tmp_path: Path
) -> None:
    folder = keep(tmp_path / "run")
    (folder / OUTCOME_FILE).write_bytes(text)
    with pytest.raises(UserError, match=why) as fault:
        outcome_of(folder)
    assert f"make it anew with `simnet run SCENARIO --out {folder}`" in str(fault.value)


@pytest.mark.parametrize(
    "text", [b'{"t_ns":1,"what":"vi', b"7\n", b"\xff\n", b"[" * 100_000, b"\n"]
)
def test_a_trace_of_something_else_is_told_in_one_line(text: bytes, tmp_path: Path) -> None:
    folder = keep(tmp_path / "run")
    (folder / TRACE_FILE).write_bytes(text)
    with pytest.raises(UserError, match="its trace is of no run that ended"):
        list(events_of(folder))


def ended(*_: object) -> Outcome:
    raise KeyboardInterrupt


def test_a_run_that_is_ended_leaves_the_run_before_it_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = keep(tmp_path / "run")
    before = files_of(folder)
    monkeypatch.setattr(running, "_run", ended)
    with pytest.raises(KeyboardInterrupt):
        running.run(SCENARIO, folder)
    assert before.items() <= files_of(folder).items()


def test_a_run_that_is_ended_leaves_none_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_run", ended)
    with pytest.raises(KeyboardInterrupt):
        running.run(SCENARIO, tmp_path)
    with pytest.raises(UserError, match="make it with `simnet run SCENARIO --out"):
        outcome_of(tmp_path)


def on_full_disk(folder: Path, name: str) -> None:
    """That file's writes meet ENOSPC, whatever room there is."""
    (folder / f"{name}{running.PART}").symlink_to("/dev/full")


@pytest.mark.parametrize("name", [TRACE_FILE, OUTCOME_FILE])
def test_a_run_that_fills_the_disk_says_what_it_came_to_and_which_file_it_could_not_write(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """More than a buffer is noted, so that a write fails amid the run, and the last one, too."""
    scenario, folder = tmp_path / "many.yaml", keep(tmp_path / "run")
    scenario.write_text(MANY_EVENTS)
    before = files_of(folder)
    on_full_disk(folder, name)
    order = [sys.executable, "-m", "simnet.cli", "run", str(scenario), "--json", "--out"]
    done = subprocess.run([*order, str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: cannot write {folder / name}: No space left on device: this run is not kept: make "
        "room, or name another --out, and repeat it\n"
    )
    assert json.loads(done.stdout)["ok"]
    assert files_of(folder) == before


def test_a_run_that_has_no_room_to_begin_says_so_and_leaves_what_was_there(tmp_path: Path) -> None:
    folder = keep(tmp_path / "run")
    before = files_of(folder)
    on_full_disk(folder, SCENARIO_FILE)
    words = f"cannot write {folder / SCENARIO_FILE}: No space left on device"
    with pytest.raises(UserError, match=words):
        running.run(SCENARIO, folder)
    assert files_of(folder) == before


def test_a_scenario_that_was_run_is_written_so_that_it_reads_back(tmp_path: Path) -> None:
    assert open_scenario(str(keep(tmp_path / "run") / "scenario.yaml")) == SCENARIO
