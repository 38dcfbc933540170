"""One factor at a time, the same seeds for each value, classes beside means."""

from pathlib import Path
from typing import Any

import pytest

from daa_node.errors import UserError
from simnet.checks.outcome import Outcome
from simnet.results import run as running
from simnet.results.compare import (
    LOSS_THEN,
    Factor,
    as_json,
    columns_of,
    compare,
    parse_factor,
    table,
)
from simnet.results.kept_comparison import (
    KeptComparison,
    KeptRuns,
    open_comparison,
    write_comparison,
)
from simnet.results.sides import sides_of

SCENARIO = """
name: pair
fidelity: light
duration_s: 10000
nodes: [{name: fast, count: 3}, {name: slow, count: 1, speed: 0.25}]
work:
  {kind: training, model: virtual, parameters: 100000, rounds: 3, step_s: 0.5, window_s: 100}
"""


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["work.adaptive=true,false", "seed=1,2"], "one at a time"),
        ([], "one at a time"),
        (["work.adaptive"], "write it like"),
        (["work.adaptive=true"], "two different values"),
        (["work.adaptive=true,true"], "two different values"),
        (["work.adaptive=true,,false"], "write it like"),
    ],
)
def test_anything_but_one_factor_with_several_values_is_refused(
    texts: list[str], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        parse_factor(texts)


def test_values_may_be_lists() -> None:
    assert parse_factor(["topology.latency_ms=[1, 2],[3, 4]"]).values == ("[1, 2]", "[3, 4]")


def test_the_loop_beats_taking_every_step_and_the_table_says_who_took_part(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(SCENARIO)
    factor = parse_factor(["work.adaptive=true,false"])
    adaptive, naive = columns = compare(str(file), factor, seeds=1, out=tmp_path / "kept")
    kept = open_comparison(tmp_path / "kept")
    assert kept is not None
    assert [column.folders for column in kept.columns] == [("1-true/seed-0",), ("2-false/seed-0",)]
    assert sides_of(tmp_path / "kept", kept)["names"] == ["adaptive", "naive"]
    assert adaptive.seeds == naive.seeds == (0,)
    # Nobody waits for who takes every step at a quarter of the speed: it comes too late each time.
    assert adaptive.figures["tokens_per_s"].mean > 1.05 * naive.figures["tokens_per_s"].mean
    assert adaptive.figures["slow: participation"].mean > 0.5
    assert naive.figures["slow: participation"].mean == 0
    assert adaptive.figures["slow: useful_utilisation"].mean > 0.5
    said = table(factor, columns)
    for word in (
        "work.adaptive=false",
        "slow: participation",
        "false / true",
    ):
        assert word in said
    assert said.startswith("pair: light fidelity, 4 nodes\n")
    assert "goodput" not in said  # of runs without faults it is one
    first, second = as_json(factor, columns)["columns"]
    assert first["figures"]["slow: participation"]["mean"] <= 1
    ratio = second["over_first"]["tokens_per_s"]
    assert ratio["count"] == 1
    assert ratio["least"] <= ratio["mean"] <= ratio["greatest"] < 0.95


def outcome(seed: int, virtual_s: float, **facts: Any) -> Outcome:
    return Outcome("pair", seed, "light", 4, virtual_s, 0.0, 0.0, "", (), (), (), facts)


def test_less_loss_after_more_time_is_not_shown_as_a_gain() -> None:
    losses = [(10.0, 2.0), (20.0, 1.0), (40.0, 0.5)]
    slow = outcome(0, 40.0, loss_nats=0.5, loss_over_time=losses)
    quick = outcome(0, 25.0, loss_nats=0.8, loss_over_time=[(25.0, 0.8)])
    columns = columns_of(("quick", "slow"), [[quick], [slow]])
    assert columns[1].figures["loss_nats"].mean == 0.5
    assert columns[1].figures[LOSS_THEN].mean == 1.0
    ratio = columns[1].over(columns[0], LOSS_THEN)
    assert ratio is not None
    assert ratio.mean == 1.25


def test_ratios_are_taken_seed_by_seed_and_what_some_seeds_lack_is_said() -> None:
    one = [outcome(0, 1.0, tokens_per_s=10.0), outcome(1, 1.0, tokens_per_s=1000.0)]
    other = [outcome(0, 1.0, tokens_per_s=20.0), outcome(1, 1.0, tokens_per_s=2000.0)]
    other.append(outcome(2, 1.0))
    columns = columns_of(("a", "b"), [[*one, outcome(2, 1.0, tokens_per_s=5.0)], other])
    ratio = columns[1].over(columns[0], "tokens_per_s")
    assert ratio is not None
    assert (ratio.mean, ratio.least, ratio.greatest, ratio.count) == (2.0, 2.0, 2.0, 2)
    (line,) = [x for x in table(Factor("k", ("a", "b")), columns).splitlines() if "tokens" in x]
    assert line.split("  ")[-1].strip() == "2 in 2 of 3"
    assert "1,010 (20 to 2,000) in 2 of 3" in line


def test_a_key_that_does_not_exist_is_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(SCENARIO)
    with pytest.raises(UserError, match="work.adaptve"):
        compare(str(file), parse_factor(["work.adaptve=true,false"]), seeds=1)


def test_a_wrong_value_is_told_before_anything_is_run(tmp_path: Path) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(SCENARIO)
    told: list[str] = []
    with pytest.raises(UserError, match="work.adaptive"):
        compare(str(file), parse_factor(["work.adaptive=true,flase"]), 1, told.append)
    assert told == []


def test_a_comparison_that_is_ended_is_not_taken_for_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "pair.yaml", tmp_path / "kept"
    file.write_text(SCENARIO)
    before = KeptRuns(value="1", seeds=(0,), folders=("1-1/seed-0",))
    out.mkdir()
    write_comparison(out, KeptComparison(factor="work.rounds", columns=(before, before)))

    def ended(*_: object) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run", ended)
    with pytest.raises(KeyboardInterrupt):
        compare(str(file), parse_factor(["work.rounds=1,2"]), 1, out=out)
    assert open_comparison(out) is None


def test_a_loss_that_is_no_number_has_its_cell() -> None:
    columns = columns_of(
        ("a", "b"),
        [[outcome(0, 1.0, loss_nats=2.0)], [outcome(0, 1.0, loss_nats=float("nan"))]],
    )
    (line,) = [x for x in table(Factor("k", ("a", "b")), columns).splitlines() if "loss_nats" in x]
    assert line.split() == ["loss_nats", "2", "nan", "nan"]
