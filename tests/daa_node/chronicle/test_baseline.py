"""Another run's figures: both answers are read, and what is neither is refused by its name."""

import json
from typing import Any

import pytest

from daa_node.chronicle.baseline import NAME_CHARACTERS_MAX, ROUNDS_TOLD_MAX, baseline_in
from daa_node.errors import UserError

FILE = "naive.json"


def text(**answer: Any) -> bytes:
    return json.dumps(answer).encode()


def row(height: int, wall_s: Any = 2.0, loss_nats: Any = 3.0) -> dict[str, Any]:
    return {"height": height, "wall_s": wall_s, "loss_nats": loss_nats, "certified_by": []}


def test_rounds_of_a_daemon_are_added_up_from_the_first_that_it_walked() -> None:
    rows = [row(0, 0.0, 5.5), row(1, 2.0, 4.5), row(2, 3.0, None), row(3, 1.5, 3.5)]
    found = baseline_in(text(schema_version=1, rounds=rows), FILE)
    assert (found.name, found.useful_share) == (FILE, None)
    assert [(one.height, one.at_s, one.loss_nats) for one in found.rounds] == [
        (1, 2.0, 4.5),
        (2, 5.0, None),
        (3, 6.5, 3.5),
    ]


def test_a_gap_of_unknown_times_begins_anew() -> None:
    rows = [row(1), row(2), row(3, 0.0), row(4), row(6), row(7)]
    found = baseline_in(text(rounds=rows), FILE)
    assert [(one.height, one.at_s) for one in found.rounds] == [(6, 2.0), (7, 4.0)]


def test_a_time_that_no_round_takes_is_not_known() -> None:
    found = baseline_in(text(rounds=[row(1, 1e308), row(2, 1e308), row(3)]), FILE)
    assert [(one.height, one.at_s) for one in found.rounds] == [(3, 2.0)]


def test_a_run_of_simnet_says_which_it_was_and_how_much_of_its_work_counted() -> None:
    facts = {"round_s": [3.0, 5.0], "losses": [1.2, 0.3], "useful_utilisation": 0.61}
    found = baseline_in(text(scenario="straggler", seed=7, facts=facts), FILE)
    assert (found.name, found.useful_share) == ("straggler, seed 7", 0.61)
    long = baseline_in(text(scenario="s" * 500, seed=7, facts=facts), FILE)
    assert long.as_told()["name"] == "s" * NAME_CHARACTERS_MAX
    assert found.as_told()["rounds"] == [
        {"height": 1, "at_s": 3.0, "wall_s": 3.0, "loss_nats": 1.2},
        {"height": 2, "at_s": 8.0, "wall_s": 5.0, "loss_nats": 0.3},
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"{}",
        text(rounds=7),
        text(rounds=[]),
        text(rounds=[1, None, {}]),
        text(rounds=[row(1, "2"), row(True), row(2, loss_nats=None)]),
        text(rounds=[row(1, True), row(2, loss_nats=True)]),
        b'{"rounds":[{"height":1,"wall_s":NaN,"loss_nats":1}]}',
        b'{"rounds":[{"height":1,"wall_s":1,"loss_nats":Infinity}]}',
        b'{"rounds":[{"height":1,"wall_s":1,"loss_nats":1' + b"0" * 400 + b"}]}",
        text(scenario="heap", seed=1, facts={"round_s": [1.0], "losses": [None]}),
        text(scenario="process", seed=1, facts={"losses_nats": [1.0]}),
    ],
)
def test_what_is_no_such_answer_is_refused_with_the_files_name(wrong: bytes) -> None:
    with pytest.raises(UserError, match=FILE):
        baseline_in(wrong, FILE)


def test_a_long_name_is_cut() -> None:
    facts = {"round_s": [3.0], "losses": [1.2]}
    found = baseline_in(text(scenario="<b>" * 1_000, seed=7, facts=facts), FILE)
    assert found.name == ("<b>" * 1_000)[:NAME_CHARACTERS_MAX]


def test_of_a_long_run_evenly_many_rounds_are_told_and_the_newest_is_one_of_them() -> None:
    found = baseline_in(text(rounds=[row(height) for height in range(1, 5_001)]), FILE)
    told = found.as_told()["rounds"]
    assert ROUNDS_TOLD_MAX / 2 < len(told) <= ROUNDS_TOLD_MAX
    assert told[-1]["height"] == 5_000
    assert len({b["height"] - a["height"] for a, b in zip(told, told[1:], strict=False)}) == 1
