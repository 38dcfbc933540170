"""What the demo draws of losses that are missing, or no number: a model may be spoilt."""

import io
from math import inf, nan
from pathlib import Path

import pytest

from daa_node.cli.cluster import Cluster
from daa_node.cli.demo_view import put_loss_curve, round_line
from daa_node.cli.local import read_genesis

GENESIS = Path(__file__).parents[2] / "golden" / "genesis.json"


def curve(*losses: float | None) -> list[str]:
    told = io.StringIO()
    put_loss_curve(list(enumerate(losses)), told)
    return told.getvalue().splitlines()


def test_a_bar_is_as_long_as_the_loss_is_high() -> None:
    assert curve(4.0, 2.0, 0.01) == [
        "    0   4.0000  " + "#" * 50,
        "    1   2.0000  " + "#" * 25,
        "    2   0.0100  #",
    ]


@pytest.mark.parametrize("spoilt", [nan, inf, -inf])
def test_a_loss_that_is_no_number_is_told_in_words_and_scales_no_bar(spoilt: float) -> None:
    words = "  no number: the model is spoilt"
    assert curve(spoilt, 2.0, 1.0) == [
        "    0" + words,
        "    1   2.0000  " + "#" * 50,
        "    2   1.0000  " + "#" * 25,
    ]
    assert curve(spoilt) == ["    0" + words]


def test_a_height_without_a_loss_keeps_its_line() -> None:
    assert curve(2.0, None, 2.0)[1] == "    1  not measured"
    assert curve(None) == ["    0  not measured"]


def test_losses_of_no_height_at_all_have_a_bar() -> None:
    assert curve(0.0, -1.0) == ["    0   0.0000  #", "    1  -1.0000  #"]


@pytest.mark.parametrize(
    ("loss", "words"), [(2.5, "loss 2.5000"), (None, "loss -"), (nan, "loss no number")]
)
def test_the_line_of_a_round_tells_its_loss_in_the_same_words(
    loss: float | None, words: str, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, read_genesis(GENESIS), [])
    line = {"height": 0, "loss_nats": loss}
    assert f"  {words}  the genesis weights" in round_line(line, cluster)
