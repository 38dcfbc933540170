"""What a node's events say of its rounds: who was left out, and why; bounded whatever comes."""

from datetime import datetime
from typing import Any

import pytest

from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.chronicle import notes as notes_module
from daa_node.chronicle.notes import PENDING_MAX, ROUNDS_OPEN_MAX, Notes
from daa_node.chronicle.rows import Batch, LeftOut
from daa_node.observability import events as names
from daa_node.observability.events import EventName
from tests.daa_node.chronicle.rows_at_hand import ALICE, BOB, CAROL, a_round, member


def event(name: EventName, **fields: Any) -> dict[str, Any]:
    return {"ts": 7.5, "name": name, **fields}


def acked(number: int, author: bytes) -> dict[str, Any]:
    return event(names.OFFER_ACKED, round=number, author=author.hex())


def finalized(number: int, **more: Any) -> dict[str, Any]:
    told = {"round": number, "height": number, "loss_nats": 2.5, "wall_s": 3.5, "bytes_sent": 9}
    return event(names.ROUND_FINALIZED, **{**told, **more})


def noted(*told: dict[str, Any]) -> Notes:
    notes = Notes(ALICE)
    for one in told:
        notes.note(one)
    return notes


def test_a_round_that_ended_has_its_time_its_loss_and_its_cost() -> None:
    seen = noted(acked(4, BOB), finalized(4)).finished[4]
    assert (seen.at_s, seen.loss_nats, seen.wall_s, seen.sent_bytes) == (7.5, 2.5, 3.5, 9)


def test_a_round_that_was_only_followed_has_no_cost_and_no_loss_of_ours() -> None:
    seen = noted(finalized(4, wall_s=0.0)).finished[4]
    assert (seen.loss_nats, seen.wall_s, seen.sent_bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([acked(4, BOB)], "late"),
        ([acked(4, BOB), event(names.OFFER_ELIGIBLE, round=4, author=BOB.hex())], "passed over"),
        (
            [event(names.OFFER_REFUSED, round=4, author=BOB.hex(), reason="bad_size: 7, want 8")],
            "refused: bad_size",
        ),
    ],
)
def test_who_was_here_and_is_in_no_set_was_left_out_and_why(
    told: list[dict[str, Any]], why: str
) -> None:
    seen = noted(acked(4, CAROL), *told, finalized(4)).finished[4]
    assert seen.left_out(4, (member(CAROL),)) == [LeftOut(4, BOB, why)]


def test_our_own_update_that_came_too_late_is_left_out_like_any_other() -> None:
    seen = noted(event(names.UPDATE_SEALED, round=4, tokens=5), finalized(4)).finished[4]
    assert seen.left_out(4, (member(BOB),)) == [LeftOut(4, ALICE, "late")]
    assert seen.left_out(4, (member(ALICE),)) == []


def test_what_is_void_in_the_set_says_whether_it_is_a_copy() -> None:
    copy = event(names.COPY_FOUND, round=4, author=BOB.hex(), voided=True)
    seen = noted(copy, finalized(4)).finished[4]
    void = (member(BOB, counts=False), member(CAROL, counts=False))
    assert [one.why for one in seen.left_out(4, void)] == ["copy", "void"]


def test_an_aborted_round_leaves_out_everybody_who_was_in_it() -> None:
    notes = noted(acked(4, BOB), acked(4, CAROL), event(names.ROUND_ABORTED, round=4))
    assert [(one.round, one.at_s) for one in notes.aborted] == [(4, 7.5)]
    assert notes.left_out == [LeftOut(4, BOB, "aborted"), LeftOut(4, CAROL, "aborted")]


def test_decisions_come_with_their_reasons_whatever_their_event_is_called() -> None:
    notes = noted(
        event(names.DECISION, decision="train 8", reason="there is time"),
        event(names.QUORUM_WAIT, reachable=2, total=4, quorum=3, waiting=True),
        event(names.LESSON, round=4, expected={}, happened={}),
        event(names.JOB_ENDED, reason="round 5 was the last"),
    )
    assert [(one.decision, one.reason) for one in notes.decisions] == [
        ("train 8", "there is time"),
        ("wait for a quorum", "2 of 4 within reach, a quorum is 3"),
        ("end", "round 5 was the last"),
    ]


def test_what_is_written_is_forgotten_and_nothing_else() -> None:
    notes = noted(finalized(4), finalized(5), event(names.DECISION, decision="a", reason="b"))
    notes.note(event(names.DECISION, decision="c", reason="d"))
    notes.written(4, 0, 0, 1)
    assert (list(notes.finished), notes.newest_height) == ([5], 5)
    assert [one.decision for one in notes.decisions] == ["c"]


def test_rounds_and_decisions_that_nobody_writes_take_no_room() -> None:
    notes = noted(*[acked(number, BOB) for number in range(ROUNDS_OPEN_MAX + 9)])
    assert len(notes._open) == ROUNDS_OPEN_MAX
    for _ in range(PENDING_MAX + 3):
        notes.note(event(names.DECISION, decision="a", reason="b"))
    assert (len(notes.decisions), notes.lost) == (PENDING_MAX, 3)


def test_rounds_of_a_crowd_that_nobody_writes_keep_their_times_and_lose_their_authors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notes_module, "AUTHORS_KEPT_MAX", 20)
    crowd = [bytes([n]) * 32 for n in range(5)]
    notes = Notes(ALICE)
    for number in range(1, 101):
        for author in crowd:
            notes.note(acked(number, author))
        notes.note(finalized(number))
        assert sum(one.seen.size for one in notes.finished.values()) <= 20
    assert [one.at_s for one in notes.finished.values()] == [7.5] * 100
    assert len(notes.finished[100].left_out(100, ())) == 5
    notes.written(99, 0, 0, 0)
    assert (list(notes.finished), notes._authors) == ([100], 5)


@pytest.mark.parametrize(
    "told",
    [
        {"ts": "late", "name": "decision"},
        {"name": 7},
        {},
        event(names.ROUND_FINALIZED, round="x", height=None),
        event(names.ROUND_FINALIZED, round=1, height=2**70, loss_nats="nan", wall_s="inf"),
        event(names.ROUND_ABORTED, round=-1),
        event(names.OFFER_REFUSED, round=1, author=["x"], reason=None),
        event(names.DECISION, decision="\ud800" * 9000, reason=None),
        event(names.ROUND_FINALIZED, round=1, height=7, loss_nats=-1e300, wall_s=float("nan")),
        event(names.ROUND_FINALIZED, round=1, height=7, loss_nats=1e300, wall_s=10**400),
        {"ts": float("inf"), "name": "round_finalized", "round": 1, "height": 7},
    ],
)
def test_a_line_of_another_program_ends_nothing(told: dict[str, Any]) -> None:
    notes = noted(told, event(names.OFFER_ACKED, round=1, author="zz"), finalized(1))
    assert notes.finished[1].left_out(1, ()) == []
    assert all(len(one.decision) < 1000 and one.decision.encode() for one in notes.decisions)
    history = SqliteHistory(None)
    history.open()
    seen = notes.finished.get(7, notes.finished[1])
    times = {"ended_s": seen.at_s, "loss_nats": seen.loss_nats, "wall_s": seen.wall_s}
    history.write(Batch((a_round(1, **times),), decisions=tuple(notes.decisions)))
    ended_s = history.rounds(0, 1)[0].ended_s
    assert ended_s is not None
    assert datetime.fromtimestamp(ended_s).year < 9999


def test_a_refusals_word_is_one_that_every_file_takes() -> None:
    refused = event(names.OFFER_REFUSED, round=4, author=BOB.hex(), reason="\ud800: why")
    (one,) = noted(refused, finalized(4)).finished[4].left_out(4, ())
    assert one.why == "refused: ?"
