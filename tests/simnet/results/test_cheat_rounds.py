"""A small table of cheats: found and out within what the lot predicts, or told otherwise."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from daa_node.agreement.reception import Reception
from daa_node.spot_checks import lot
from simnet.results.cheat_rounds import (
    OUT_WITHIN,
    Setting,
    chance_of_so_many,
    faults,
    judged,
    row_of,
    shown_share,
)
from simnet.world.determinism import UP
from simnet.world.scenario import Cheat

SMALL = Setting(rounds=20, share=Fraction(1))
# All is drawn, but who has to check several at once leaves some of it, for others wait.
LEFT_IN_A_ROW_MAX = 3


@pytest.mark.long
@pytest.mark.parametrize("cheat", ["skips_steps", "copies_update"])
def test_a_cheat_is_found_and_out_within_what_the_lot_predicts(cheat: Cheat) -> None:
    row = row_of(cheat, "light", [SMALL.run(cheat, "light", 1)])
    assert faults([row]) == []
    (first,), (out_after,) = row.first, row.out_after
    assert first is not None
    assert first <= row.sure_within + LEFT_IN_A_ROW_MAX
    assert out_after is not None
    assert row.convicted == 1
    assert row.honest_checked > 30
    assert row.void == (1.0 if cheat == "copies_update" else 0.0)


def nobody_is_drawn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lot, "_happens", lambda *_: False)


def verdicts_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reception, "accuse", lambda _self, _evidence: None)


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "cheat", "why"),
    [
        (nobody_is_drawn, "wrong_batches", "took longer"),
        (verdicts_are_forgotten, "stale_base", "found, and contributed"),
    ],
)
def test_a_cheat_that_gets_by_is_told(
    plant: Callable[[pytest.MonkeyPatch], None],
    cheat: Cheat,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    setting = Setting(rounds=OUT_WITHIN + 4, share=Fraction(1))
    row = row_of(cheat, "light", [setting.run(cheat, "light", 1)] * 3)
    assert any(why in fault for fault in faults([row]))


CHEAT, HONEST = "cc", "aa"


def told(what: str, **fields: Any) -> dict[str, Any]:
    return {"what": what, "node": 0, **fields}


def events(rounds: int, steps: int = 16) -> list[dict[str, Any]]:
    """All is acknowledged; nothing is checked yet."""
    found = [
        {"what": UP, "node": 0, "node_id": HONEST},
        {"what": UP, "node": 3, "node_id": CHEAT},
    ]
    for round_ in range(1, rounds + 1):
        found.append({"what": "update_sealed", "node": 3, "round": round_, "steps": steps})
        found += [told("offer_eligible", round=round_, author=each) for each in (CHEAT, HONEST)]
    return found


def check(round_: int, author: str, finding: str) -> dict[str, Any]:
    return told("segment_checked", round=round_, author=author, finding=finding, distance=0.5)


def test_rounds_are_counted_from_the_first_that_was_not_honest() -> None:
    log = [*events(9), check(5, CHEAT, "differs"), check(7, CHEAT, "differs")]
    one = judged("wrong_batches", 0.5, log, 3)
    assert (one.first, one.times, one.chances) == (4, 2, (0.5,) * 8)
    assert (one.out_after, one.convicted, one.honest_accused) == (None, False, 0)


def test_who_is_convicted_is_out_once_nobody_acknowledges_it() -> None:
    gone = [e for e in events(9) if e.get("author") != CHEAT or e["round"] <= 6]
    verdict = told("evidence_found", offender=CHEAT)
    assert judged("wrong_batches", 0.5, gone, 3).out_after is None
    one = judged("wrong_batches", 0.5, [*gone, verdict], 3)
    assert (one.out_after, one.convicted) == (5, True)
    assert judged("wrong_batches", 0.5, [*events(9), verdict], 3).out_after is None


def test_who_is_found_and_stays_is_told() -> None:
    log = [*events(OUT_WITHIN + 3), check(2, CHEAT, "differs")]
    one = judged("wrong_batches", 0.5, log, 3)
    assert one.stays
    assert any(
        "found, and contributed" in why for why in faults([row_of("wrong_batches", "light", [one])])
    )


@pytest.mark.parametrize(
    "wrong", [check(3, HONEST, "differs"), told("evidence_found", offender=HONEST)]
)
def test_an_honest_node_that_is_accused_is_told(wrong: dict[str, Any]) -> None:
    row = row_of("wrong_batches", "light", [judged("wrong_batches", 0.5, [*events(5), wrong], 3)])
    assert row.honest_accused == 1
    assert any("honest work was found false" in why for why in faults([row]))


def test_late_is_what_one_run_of_twenty_is_and_many_late_are_told() -> None:
    log = events(20)
    late = judged("wrong_batches", 0.5, log, 3)  # never drawn in nineteen rounds
    row = row_of("wrong_batches", "light", [late])
    assert (row.sure_within, row.late, row.told) == (5, 1, 1)
    assert faults([row]) == []  # of one run nobody can say
    assert any(
        "took longer" in why for why in faults([row_of("wrong_batches", "light", [late] * 3)])
    )
    assert chance_of_so_many(0, 7, 0.05) == pytest.approx(1)


def test_what_was_cut_short_before_the_cheat_is_honest() -> None:
    assert shown_share("skips_steps", 1) == shown_share("rounds_weights", 1) == 0
    assert shown_share("skips_steps", 16) == shown_share("rounds_weights", 16) == 1
    assert shown_share("skips_steps", 5) == shown_share("rounds_weights", 5) == 0.5
    assert shown_share("wrong_batches", 1) == shown_share("copies_update", 1) == 1
    assert shown_share("skips_one_step", 16) == 0.25
    none = judged("skips_steps", 0.5, events(5, steps=1), 3)
    assert none.chances == ()
    assert any("never cheated" in why for why in faults([row_of("skips_steps", "light", [none])]))
