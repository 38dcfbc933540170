"""Files of a run that are missing or wrong are told of; a diff finds where two runs part."""

import json
from pathlib import Path

import pytest

from daa_node.errors import UserError
from simnet.checks.outcome import OUTCOME_FILE, TRACE_FILE, Outcome
from simnet.results import run as running
from simnet.results.run_files import events_of, first_difference, outcome_of
from simnet.world.scenario_file import open_scenario
from tests.simnet.results.kept_run import SCENARIO, keep


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


def test_a_run_that_is_ended_leaves_no_outcome_of_the_run_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = keep(tmp_path / "run")

    def ended(*_: object) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "_run", ended)
    with pytest.raises(KeyboardInterrupt):
        running.run(SCENARIO, folder)
    with pytest.raises(UserError, match="make it with `simnet run SCENARIO --out"):
        outcome_of(folder)


def test_a_scenario_that_was_run_is_written_so_that_it_reads_back(tmp_path: Path) -> None:
    assert open_scenario(str(keep(tmp_path / "run") / "scenario.yaml")) == SCENARIO
