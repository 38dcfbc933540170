"""Runs side by side: two that were kept, or all of a comparison."""

import json
import re
from pathlib import Path

import pytest

from daa_node.errors import UserError
from simnet.checks.outcome import OUTCOME_FILE, SCHEMA_VERSION, Outcome
from simnet.checks.training_books import Stage
from simnet.results.compare import FIGURES, LOSS_THEN
from simnet.results.kept_comparison import (
    COMPARISON_FILE,
    KeptComparison,
    KeptRuns,
    open_comparison,
    run_folder,
    write_comparison,
)
from simnet.results.run_files import outcome_of
from simnet.results.sides import POINTS_MAX, SIDES_MAX, first_run, sides_of, sides_of_two
from tests.simnet.results.kept_run import keep

PAGE_WORDS = Path(__file__).parents[3] / "dashboard/src/report/sides.ts"


def comparison(folder: Path) -> KeptComparison:
    """Adaptive and naive, two seeds each, as `simnet compare --out` leaves them."""
    columns = []
    for place, value in enumerate(("true", "false"), 1):
        folders = tuple(run_folder(place, value, seed) for seed in (3, 4))
        for seed, name in zip((3, 4), folders, strict=True):
            keep(folder / name, adaptive=value == "true", seed=seed)
        columns.append(KeptRuns(value=value, seeds=(3, 4), folders=folders))
    kept = KeptComparison(factor="work.adaptive", columns=tuple(columns))
    write_comparison(folder, kept)
    return kept


def test_two_runs_of_which_one_adapts_are_adaptive_and_naive(tmp_path: Path) -> None:
    one, other = keep(tmp_path / "one"), keep(tmp_path / "other", adaptive=False)
    sides = sides_of_two(one, other)
    assert (sides["factor"], sides["names"]) == ("work.adaptive", ["adaptive", "naive"])
    assert sides_of_two(other, one)["names"] == ["naive", "adaptive"]
    figures = {figure["name"]: figure for figure in sides["figures"]}
    assert figures["tokens_per_s"]["sides"] == [[103, 103, 103], [80, 80, 80]]
    assert figures["tokens_per_s"]["over"] == [1, 80 / 103]
    assert figures["participation"]["isShare"]
    assert figures[LOSS_THEN]["sides"] == [[2.5, 2.5, 2.5], [2.75, 2.75, 2.75]]
    assert sides["losses"][1] == {"atMs": [1000, 7000], "nats": [3.0, 2.75]}
    shares = {"training": 0.5, "waiting": 0.5}
    assert sides["times"] == [{"group": "node", "sides": [shares, shares]}]
    assert sides["broken"][0] == ["progress (seed 3): nothing final for 9 s"]


def test_other_runs_are_named_by_their_folders(tmp_path: Path) -> None:
    one, other = keep(tmp_path / "one"), keep(tmp_path / "other", view=8)
    assert sides_of_two(one, other)["names"] == [str(one), str(other)]


def test_a_comparison_that_was_kept_is_told_over_its_seeds(tmp_path: Path) -> None:
    assert open_comparison(tmp_path) is None
    made = comparison(tmp_path)
    kept = open_comparison(tmp_path)
    assert kept == made
    assert first_run(tmp_path, made) == tmp_path / "1-true/seed-3"
    sides = sides_of(tmp_path, made)
    assert sides["names"] == ["adaptive", "naive"]
    assert sides["seeds"] == [[3, 4], [3, 4]]
    figures = {figure["name"]: figure for figure in sides["figures"]}
    assert figures["tokens_per_s"]["sides"] == [[103.5, 103, 104], [80, 80, 80]]


def test_an_outcome_that_was_kept_reads_back_as_it_was(tmp_path: Path) -> None:
    told = outcome_of(keep(tmp_path / "run"))
    assert json.loads(json.dumps(Outcome.of_json(told).as_json())) == told


def test_of_many_values_as_many_are_told_as_can_be_told_apart(tmp_path: Path) -> None:
    made = comparison(tmp_path)
    sides = sides_of(tmp_path, made.model_copy(update={"columns": 3 * made.columns}))
    for told in (sides["names"], sides["seeds"], sides["losses"], sides["broken"]):
        assert len(told) == SIDES_MAX


def test_a_class_that_one_side_does_not_have_is_told_of_the_other(tmp_path: Path) -> None:
    one, other = keep(tmp_path / "one"), keep(tmp_path / "other", adaptive=False)
    told = outcome_of(other)
    told["facts"]["classes"] = {"far": {}}
    (other / OUTCOME_FILE).write_text(json.dumps(told))
    shares = {"training": 0.5, "waiting": 0.5}
    assert sides_of_two(one, other)["times"] == [{"group": "node", "sides": [shares, None]}]


def test_the_page_has_words_for_each_figure_and_each_part_of_the_time() -> None:
    words = PAGE_WORDS.read_text(encoding="utf-8")
    keys = set(re.findall(r'[{ ]"?([a-z_]+(?:, same time)?)"?: ["0-9]', words))
    assert {*FIGURES, LOSS_THEN, *(str(stage) for stage in Stage)} - keys == set()


def test_values_of_another_factor_are_named_by_it(tmp_path: Path) -> None:
    made = comparison(tmp_path)
    other = made.model_copy(update={"factor": "work.rounds"})
    assert sides_of(tmp_path, other)["names"] == ["work.rounds=true", "work.rounds=false"]


def test_what_is_no_comparison_or_of_another_version_is_told_in_one_line(tmp_path: Path) -> None:
    made = comparison(tmp_path)
    path = tmp_path / "1-true/seed-3" / OUTCOME_FILE
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | {"schema_version": SCHEMA_VERSION + 1}))
    with pytest.raises(UserError, match="of another version of simnet"):
        sides_of(tmp_path, made)
    for text in ('{"factor": "x", "columns": []}', "", "[]", "{"):
        (tmp_path / COMPARISON_FILE).write_text(text)
        with pytest.raises(UserError, match="this is no comparison of runs") as fault:
            open_comparison(tmp_path)
        assert "\n" not in str(fault.value)
    assert open_comparison(tmp_path / COMPARISON_FILE) is None  # a file, where a folder should be


def test_runs_of_a_comparison_that_was_ended_are_found(tmp_path: Path) -> None:
    comparison(tmp_path)
    (tmp_path / COMPARISON_FILE).unlink()
    with pytest.raises(UserError, match=r"did not end: .* like .*/1-true/seed-3$"):
        open_comparison(tmp_path)
    assert open_comparison(tmp_path / "1-true/seed-3") is None


def test_a_value_of_any_kind_has_a_folder() -> None:
    assert run_folder(2, "[1, ../2]", 7) == "2-_1_.._2_/seed-7"
    assert len(run_folder(1, "x" * 300, 7)) < 60


def test_a_long_curve_is_thinned_and_keeps_its_newest_point(tmp_path: Path) -> None:
    one, other = keep(tmp_path / "one"), keep(tmp_path / "other", adaptive=False)
    told = json.loads((one / OUTCOME_FILE).read_text())
    told["facts"]["loss_over_time"] = [[float(at), 1.0] for at in range(3 * POINTS_MAX - 1)]
    (one / OUTCOME_FILE).write_text(json.dumps(told))
    at_ms = sides_of_two(one, other)["losses"][0]["atMs"]
    assert len(at_ms) <= POINTS_MAX
    assert at_ms[-1] == 1000 * (3 * POINTS_MAX - 2)
