"""Lots, comparisons and judgements of the desk, without streams and signatures."""

from collections.abc import Sequence

import pytest

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.gateway.piece import Piece
from daa_node.gateway.task_desk import (
    ADDRESS_BYTES,
    ALONE_S,
    AUDITED_EVERY,
    COPIES,
    DROPPED_MAX,
    ENDED_KEPT,
    MISSED_MAX,
    OPEN_BYTES_MAX,
    PATIENCE_S,
    WAITING_MAX,
    Effect,
    Evidence,
    Judged,
    Leave,
    Look,
    Seat,
    Task,
    TaskDesk,
)
from daa_node.wire.volunteer_messages import Ready, Result, TaskKind, Verdict

KINDS = frozenset(TaskKind)
SOUND, SPOILT = (1, 1, 0, 1), frozenset({2})


def piece(entries: int = 4, size_bytes: int = 10) -> Piece:
    chunks = [bytes([entry]) * size_bytes for entry in range(entries)]
    return Piece(TaskKind.CHUNKS, {}, [bytes(32)] * entries, chunks, SPOILT)


def trained() -> Piece:
    """One about which volunteers could agree without any work."""
    return Piece(TaskKind.LOSS, {}, [], [b"weights"])


def seats(desk: TaskDesk, *addresses: str, count: int = 1) -> list[Seat]:
    made = []
    for number, address in enumerate(addresses):
        each = bytes([number])
        seat = Seat(each * 16, NodeId(each * 32), b"key", address, Ready(count, KINDS))
        desk.sit(seat)
        made.append(seat)
    return made


def desk_with(*addresses: str) -> tuple[TaskDesk, list[Seat], Task]:
    """A desk with volunteers from there, and one task that all of them have who may."""
    desk = TaskDesk(b"seed")
    made = seats(desk, *addresses)
    task = desk.open(b"t" * 16, piece(), None, 0.0)
    while desk.give(0.0) is not None:
        pass
    return desk, made, task


def say(desk: TaskDesk, seat: Seat, result: Result, task: bytes = b"t" * 16) -> list[Effect]:
    assert desk.kind_of(seat, task) is TaskKind.CHUNKS
    return list(desk.take(seat, Verdict(task, result, 5, b"")))


def rights(effects: Sequence[Effect]) -> dict[NodeId, bool | None]:
    return {e.seat.name: e.is_right for e in effects if isinstance(e, Judged)}


def test_three_equal_results_are_right_and_evidence() -> None:
    desk, three, _ = desk_with("a", "b", "c")
    assert rights(say(desk, three[0], SOUND)) == {three[0].name: None}
    assert rights(say(desk, three[1], SOUND)) == {three[1].name: None}
    last = say(desk, three[2], SOUND)
    assert rights(last[1:]) == dict.fromkeys([seat.name for seat in three], True)
    (evidence,) = [effect for effect in last if isinstance(effect, Evidence)]
    assert (evidence.is_sound, evidence.is_ours) == (True, False)
    assert not desk._tasks


def test_a_task_goes_to_three_and_no_name_gets_it_twice() -> None:
    desk, five, task = desk_with("a", "b", "c", "d", "e")
    assert len(task.asked) == COPIES
    for seat in five:
        desk.drop(seat, task.id, 0.0)
    again = [desk.give(0.0) for _ in range(COPIES)]
    assert [given is None for given in again] == [False, False, True]
    assert len(task.asked) == len(five)


def test_three_volunteers_are_of_three_addresses_where_there_are() -> None:
    for seed in range(20):
        desk = TaskDesk(b"%d" % seed)
        seats(desk, "a", "a", "a", "a", "a", "b", "c")
        desk.open(b"t" * 16, piece(), None, 0.0)
        given = []
        while (one := desk.give(0.0)) is not None:
            given.append(one[1].address)
        assert sorted(given) == ["a", "b", "c"]


def test_others_of_one_address_wait_until_no_other_address_has_come() -> None:
    desk = TaskDesk(b"seed")
    many = seats(desk, "a", "a", "a", "b")
    many[3].due_s[b"other"] = 100.0  # it is busy
    desk.open(b"t" * 16, piece(), None, 0.0)
    assert desk.give(0.0) is not None
    assert desk.give(0.0) is None
    assert desk.give(PATIENCE_S) is not None


def test_a_difference_is_looked_at_and_who_was_wrong_is_told() -> None:
    desk, three, task = desk_with("a", "b", "c")
    say(desk, three[0], SOUND)
    say(desk, three[1], (1, 0, 0, 1))
    last = say(desk, three[2], SOUND)
    assert last[-1] == Look(task, is_disputed=True)
    judged = list(desk.looked(task, SOUND))
    assert rights(judged) == {three[0].name: True, three[1].name: False, three[2].name: True}
    assert judged[-1] == Evidence(task.piece, SOUND, True, True)


def test_three_who_lie_alike_convict_nobody_before_we_have_looked() -> None:
    desk, three, task = desk_with("a", "b", "c")
    for seat in three[:2]:
        say(desk, seat, (0, 1, 0, 1))
    last = say(desk, three[2], (0, 1, 0, 1))
    assert last[-1] == Look(task, is_disputed=True)
    judged = list(desk.looked(task, SOUND))
    assert set(rights(judged).values()) == {False}
    assert judged[-1] == Evidence(task.piece, SOUND, True, True)


def test_who_does_not_see_a_spoilt_entry_is_wrong_at_once_and_replaced() -> None:
    desk, four, task = desk_with("a", "b", "c", "d")
    (first,) = [seat for seat in four if seat.name == min(task.asked)]
    assert rights(say(desk, first, (1, 1, 1, 1))) == {first.name: False}
    assert desk.give(0.0) is not None
    assert len(task.asked) == COPIES + 1


def test_a_known_answer_judges_each_verdict_as_it_comes() -> None:
    desk = TaskDesk(b"seed")
    three = seats(desk, "a", "b", "c")
    desk.open(b"t" * 16, piece(), SOUND, 0.0)
    while desk.give(0.0) is not None:
        pass
    found = [
        rights(say(desk, seat, r)) for seat, r in zip(three, (SOUND, (1,) * 4, SOUND), strict=True)
    ]
    assert [list(each.values()) for each in found] == [[True], [False], [True]]
    assert not desk._tasks


def test_a_lone_volunteer_is_judged_by_ourselves() -> None:
    desk, (one,), task = desk_with("a")
    say(desk, one, SOUND)
    assert not list(desk.pass_time(ALONE_S - 1))
    assert list(desk.pass_time(ALONE_S)) == [Look(task)]
    assert rights(list(desk.looked(task, SOUND))) == {one.name: True}


def test_a_verdict_twice_and_one_for_no_task_are_refused_and_a_late_one_is_not() -> None:
    desk, three, task = desk_with("a", "b", "c")
    say(desk, three[0], SOUND)
    with pytest.raises(PeerFault, match="replayed"):
        desk.kind_of(three[0], task.id)
    with pytest.raises(PeerFault, match="unknown-task"):
        desk.kind_of(three[1], b"x" * 16)
    list(desk.pass_time(task.time_s + 1))
    assert desk.kind_of(three[1], task.id) is None


@pytest.mark.parametrize("result", [(), (1, 1, 1), (1, 1, 1, 2), (1, 1, 1, b"\x01"), (1,) * 5])
def test_what_is_no_result_of_the_task_is_malformed(result: Result) -> None:
    desk, three, _ = desk_with("a", "b", "c")
    with pytest.raises(PeerFault, match="malformed"):
        say(desk, three[0], result)


def test_what_somebody_had_who_leaves_goes_to_another() -> None:
    desk, four, task = desk_with("a", "b", "c", "d")
    (gone,) = [seat for seat in four if seat.name == min(task.asked)]
    desk.rise(gone, 0.0)
    given = desk.give(0.0)
    assert given is not None
    assert given[1].name not in (task.asked - {given[1].name})


def test_what_was_long_in_hand_waits_for_another_when_it_comes_back() -> None:
    """A piece of minutes whose only volunteer closes the page is not thrown away with it."""
    desk, (gone,), task = desk_with("a")
    left_s = 3 * ALONE_S
    assert not list(desk.pass_time(left_s))
    desk.rise(gone, left_s)
    assert not list(desk.pass_time(left_s + ALONE_S - 1))
    seat = Seat(b"s" * 16, NodeId(b"s" * 32), b"key", "a", Ready(1, KINDS))
    desk.sit(seat)
    assert desk.give(left_s + ALONE_S - 1) == (task, seat)
    assert rights(say(desk, seat, SOUND)) == {seat.name: None}
    assert list(desk.pass_time(left_s + ALONE_S)) == [Look(task)]


def test_what_came_back_and_nobody_takes_is_over_in_the_end() -> None:
    desk, (gone,), task = desk_with("a")
    desk.rise(gone, 3 * ALONE_S)
    list(desk.pass_time(4 * ALONE_S))
    assert desk._tasks == {}
    assert desk._open_bytes == 0


def test_who_answers_nothing_leaves() -> None:
    desk = TaskDesk(b"seed")
    (one,) = seats(desk, "a")
    now_s, left = 0.0, []
    for number in range(MISSED_MAX):
        task = desk.open(bytes([number]) * 16, piece(), None, now_s)
        assert desk.give(now_s) is not None
        now_s += task.time_s
        left += list(desk.pass_time(now_s))
    assert left == [Leave(one)]
    list(desk.pass_time(now_s + ALONE_S))
    assert not desk._tasks
    assert desk._open_bytes == 0


def test_no_more_is_opened_than_memory_allows() -> None:
    desk = TaskDesk(b"seed")
    seats(desk, "a", count=2)
    assert desk.lacking() == KINDS
    for number in range(5):
        desk.open(bytes([number]) * 16, piece(1, OPEN_BYTES_MAX // 4), None, 0.0)
    assert not desk.lacking()


def test_a_session_remembers_a_bounded_number_of_tasks() -> None:
    desk = TaskDesk(b"seed")
    (one,) = seats(desk, "a")
    for number in range(3 * ENDED_KEPT):
        desk.open(bytes([number]) * 16, piece(), SOUND, 0.0)
        assert desk.give(0.0) is not None
        desk.drop(one, bytes([number]) * 16, 0.0)
    assert len(one.ended) == ENDED_KEPT


def agreed(desk: TaskDesk, number: int, piece: Piece, *three: Seat) -> list[Effect]:
    """What comes of a task that all three answer alike."""
    task = desk.open(bytes([number]) * 16, piece, None, 0.0)
    while desk.give(0.0) is not None:
        pass
    result: Result = (bytes(8),) if piece.kind is TaskKind.LOSS else SOUND
    (*_, last) = (list(desk.take(seat, Verdict(task.id, result, 5, b""))) for seat in three)
    return last


def test_liars_who_agree_about_what_takes_no_look_are_looked_at_by_lot_afterwards() -> None:
    desk = TaskDesk(b"seed")
    three = seats(desk, "a", "b", "c")
    looked = []
    for number in range(100):
        last = agreed(desk, number, trained(), *three)
        looked += [effect.task for effect in last if isinstance(effect, Look)]
    assert 100 // AUDITED_EVERY // 2 < len(looked) < 2 * 100 // AUDITED_EVERY
    wrong = list(desk.looked(looked[0], (b"another.",)))
    assert set(rights(wrong).values()) == {False}


def test_what_one_address_agrees_about_is_looked_at_while_there_are_others() -> None:
    desk = TaskDesk(b"seed")
    *three, other = seats(desk, "a", "a", "a", "b")
    other.due_s[b"other"] = 100.0  # it is busy, for longer than others wait
    task = desk.open(b"t" * 16, piece(), None, 0.0)
    while desk.give(PATIENCE_S) is not None:
        pass
    (*_, last) = (say(desk, seat, SOUND) for seat in three)
    assert last[-1] == Look(task)
    other.due_s.clear()
    desk.rise(other, 0.0)
    list(desk.looked(task, SOUND))
    assert isinstance(agreed(desk, 1, piece(), *three)[-1], Evidence)


def test_an_address_that_holds_large_tasks_leaves_room_for_others() -> None:
    desk = TaskDesk(b"seed")
    hoarders = seats(desk, *["a"] * 8, count=2)
    given = opened = 0
    while desk.lacking():
        desk.open(opened.to_bytes(16), piece(1, ADDRESS_BYTES // 2), None, 0.0)
        opened += 1
        while desk.give(0.0) is not None:
            given += 1
    assert given <= 2 + 1
    assert desk._open_bytes < OPEN_BYTES_MAX // 2
    seats(desk, *["a"] * 8, "b", count=2)
    assert desk.lacking() == KINDS
    for hoarder in hoarders:
        desk.rise(hoarder, 0.0)
    assert desk._held_bytes.keys() <= {"b"}


def test_who_gives_back_all_that_it_gets_leaves() -> None:
    desk = TaskDesk(b"seed")
    (one,) = seats(desk, "a")
    for number in range(DROPPED_MAX):
        assert not list(desk.pass_time(0.0))
        desk.open(bytes([number]) * 16, piece(), None, 0.0)
        assert desk.give(0.0) is not None
        desk.drop(one, bytes([number]) * 16, 0.0)
    assert list(desk.pass_time(0.0)) == [Leave(one)]


def test_no_more_is_opened_than_volunteers_are_waited_for() -> None:
    desk = TaskDesk(b"seed")
    (one,) = seats(desk, "a", count=2)
    number = 0
    while desk.lacking():
        desk.open(number.to_bytes(16), piece(), None, 0.0)
        assert desk.give(0.0) is not None
        desk.drop(one, number.to_bytes(16), 0.0)
        number += 1
    assert number == WAITING_MAX
