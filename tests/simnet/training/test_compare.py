"""One factor at a time, the same seeds for each value, classes beside means."""

from pathlib import Path

import pytest

from daa_node.errors import UserError
from simnet.compare import as_json, compare, parse_factor, table

SCENARIO = """
name: pair
duration_s: 10000
nodes: [{name: fast, count: 4}, {name: slow, count: 2, speed: 0.25}]
work:
  {kind: training, model: virtual, parameters: 100000, rounds: 4, step_s: 0.5, window_s: 100}
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
    adaptive, naive = columns = compare(str(file), factor, seeds=2)
    assert adaptive.seeds == naive.seeds == (0, 1)
    # Together they have the speed of 4.5; else the fast wait for three quarters of the time.
    assert adaptive.figures["tokens_per_s"].least > 2 * naive.figures["tokens_per_s"].greatest
    assert naive.figures["fast: compute_utilisation"].mean < 0.3
    assert adaptive.figures["fast: compute_utilisation"].mean > 0.65
    assert naive.figures["participation"].mean == 1.0
    said = table(factor, columns)
    for word in ("work.adaptive=false", "slow: participation", "least and greatest"):
        assert word in said
    figures = as_json(factor, columns)["columns"][0]["figures"]
    assert figures["slow: participation"]["mean"] <= 1


def test_a_key_that_does_not_exist_is_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(SCENARIO)
    with pytest.raises(UserError, match="work.adaptve"):
        compare(str(file), parse_factor(["work.adaptve=true,false"]), seeds=1)
