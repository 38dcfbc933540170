"""The trainers' roll: who may contribute from which round on, by whose word, in whose turn."""

from collections import Counter
from dataclasses import replace

import pytest

from daa_consensus.bft.chain import follow
from daa_consensus.bft.messages import AbortPayload
from daa_consensus.committee import Committee, Validator
from daa_consensus.enrolment import Enroll, Retire, TrainerAction, TrainerRequest, Vouch
from daa_consensus.membership import Membership
from daa_consensus.roll import (
    EMPTY_ROOT,
    EXPIRY_ROUNDS_MAX,
    FORGOTTEN_ROUNDS,
    IDLE_ROUNDS,
    LOTS_MAX,
    Admission,
    Roll,
    RollRules,
    aborted,
    draw,
    lying_max,
)
from daa_dag.ids import Digest, NodeId, numbered_digests
from tests.daa_consensus.bft.simulation import GENESIS, empty_set, node_id, result_of
from tests.daa_consensus.bft.test_chain import on

MEMBERS = frozenset(node_id(number) for number in range(4))
ALICE, BOB = node_id(0), node_id(1)
NEW = [NodeId(b"new" + b"%029d" % number) for number in range(40)]
VOUCHED = Roll(RollRules(Admission.VOUCHED, per_voucher=2, roll_max=8))
OPEN = Roll(RollRules(Admission.OPEN, roll_max=30))


def request(action: TrainerAction) -> TrainerRequest:
    return TrainerRequest(action, EXPIRY_ROUNDS_MAX)


def enroll(name: NodeId) -> TrainerRequest:
    return request(Enroll(name, b"keys of " + name))


def vouch(member: NodeId, name: NodeId) -> TrainerRequest:
    return request(Vouch(member, enroll(name).id))


def after(
    roll: Roll,
    round_number: int,
    *requests: TrainerRequest,
    authors: frozenset[NodeId] = frozenset(),
    convicted: frozenset[NodeId] = frozenset(),
    members: frozenset[NodeId] = MEMBERS,
) -> Roll:
    roll = replace(roll, round=round_number - 1)  # whatever sets lie between ask for nothing
    return roll.decided(round_number, requests, authors, convicted, members - convicted)


def missing(roll: Roll, since: int, rounds: int, room: int = 9) -> Roll:
    """After so many rounds, from this one on, in whose sets nobody is."""
    for number in range(since, since + rounds):
        roll = after(roll.drawn(number, Digest(b"%032d" % number), room), number)
    return roll


def takes(roll: Roll, member: NodeId, name: NodeId) -> bool:
    """Whether the next set may have this enrolment with the member's word."""
    asked = roll.with_request(roll.round + 1, enroll(name))
    return asked.admits(vouch(member, name), MEMBERS)


def names(roll: Roll, round_number: int) -> list[NodeId]:
    return [entry.name for entry in roll.ready(round_number)]


def with_one(voucher: NodeId = ALICE) -> Roll:
    return after(VOUCHED, 10, enroll(NEW[0]), vouch(voucher, NEW[0]))


def test_who_is_vouched_for_contributes_in_the_second_round_after_and_not_before() -> None:
    roll = with_one()
    assert names(roll, 11) == []
    assert names(roll, 12) == [NEW[0]]
    assert not roll.asked


def test_a_word_without_an_enrolment_and_one_without_a_word_let_nobody_in() -> None:
    assert not after(VOUCHED, 10, vouch(ALICE, NEW[0])).entries
    asked = after(VOUCHED, 10, enroll(NEW[0]))
    assert (asked.entries, asked.asked) == ((), ())
    assert not after(asked, 11, vouch(ALICE, NEW[0])).entries  # they stand in one set


@pytest.mark.parametrize("admission", [Admission.CLOSED, Admission.VOUCHED])
def test_nobody_comes_by_its_own_word_unless_the_network_is_open(admission: Admission) -> None:
    roll = after(Roll(RollRules(admission)), 10, enroll(NEW[0]))
    assert names(roll, 12) == []
    assert names(after(OPEN, 10, enroll(NEW[0])), 12) == [NEW[0]]


def test_a_member_vouches_for_as_many_as_it_may_and_for_no_more() -> None:
    roll = after(VOUCHED, 11, *map(enroll, NEW[:4]), *(vouch(ALICE, name) for name in NEW[:3]))
    assert names(roll, 13) == NEW[:2]
    assert roll.vouched_by(ALICE) == 2
    assert not takes(roll, ALICE, NEW[2])
    assert names(after(roll, 12, enroll(NEW[2]), vouch(BOB, NEW[2])), 14) == NEW[:3]


def test_who_idles_or_is_about_to_go_still_takes_its_vouchers_place() -> None:
    """Else a member would bring in others while those are here."""
    roll = after(VOUCHED, 10, *map(enroll, NEW[:3]), *(vouch(ALICE, n) for n in NEW[:2]))
    idle = missing(roll, 12, IDLE_ROUNDS)
    assert names(idle, 12 + IDLE_ROUNDS) == []
    assert not takes(idle, ALICE, NEW[2])
    going = after(roll, 11, request(Retire(NEW[0], ALICE)))
    assert not takes(going, ALICE, NEW[2])
    gone = after(going, 13)
    assert takes(gone, ALICE, NEW[2])


def test_only_a_member_vouches_that_is_not_convicted() -> None:
    pair = enroll(NEW[0]), vouch(ALICE, NEW[0])
    assert not after(VOUCHED, 10, enroll(NEW[0]), vouch(NEW[1], NEW[0])).entries
    assert not after(VOUCHED, 10, *pair, members=MEMBERS - {ALICE}).entries
    assert not after(VOUCHED, 10, *pair, convicted=frozenset({ALICE})).entries
    assert after(VOUCHED, 10, *pair).entries


@pytest.mark.parametrize("by", [NEW[0], ALICE])
def test_a_trainer_retires_by_its_own_word_or_its_vouchers(by: NodeId) -> None:
    roll = after(with_one(), 20, request(Retire(NEW[0], by)), authors=frozenset({NEW[0]}))
    assert names(roll, 21) == [NEW[0]]
    assert names(roll, 22) == []
    assert not roll.admits(enroll(NEW[0]), MEMBERS)  # until it has gone
    assert after(roll, 22).entry_of(NEW[0]) is None


def test_who_goes_is_written_to_until_its_last_round_is_over() -> None:
    roll = after(with_one(), 20, request(Retire(NEW[0], ALICE)))
    assert after(roll, 21).here == {NEW[0]}
    assert after(roll, 22).here == frozenset()


def test_a_voucher_that_stays_away_puts_nothing_off() -> None:
    roll = with_one()
    for number in (20, 21, 22):
        roll = after(roll, number, members=MEMBERS - {ALICE})
        assert names(roll, 22) == []
    assert roll.entries == ()


def test_who_is_expelled_as_an_epoch_ends_is_on_no_roll() -> None:
    assert with_one().ended({NEW[0]}, MEMBERS, {}).entries == ()
    assert with_one().ended((), MEMBERS | {NEW[0]}, {}).entries == ()


def test_members_and_trainers_together_are_bounded() -> None:
    tight = replace(OPEN, rules=replace(OPEN.rules, listed_max=len(MEMBERS) + 2))
    assert len(after(tight, 10, *map(enroll, NEW)).entries) == 2


def test_nobody_else_retires_a_trainer() -> None:
    roll = with_one()
    for by in (BOB, NEW[1]):
        assert not roll.admits(request(Retire(NEW[0], by)), MEMBERS)


def test_trainers_go_with_a_voucher_that_leaves_or_is_convicted() -> None:
    seen = frozenset({NEW[0]})
    left = after(with_one(), 20, authors=seen, members=MEMBERS - {ALICE})
    caught = after(with_one(), 20, authors=seen, convicted=frozenset({ALICE}))
    for roll in (left, caught):
        assert names(roll, 21) == [NEW[0]]
        assert names(roll, 22) == []
        assert after(roll, 22, authors=seen).vouched_by(ALICE) == 0
    assert names(after(with_one(BOB), 20, authors=seen, members=MEMBERS - {ALICE}), 22) == [NEW[0]]


def test_evidence_puts_a_trainer_out_of_the_next_plan() -> None:
    caught = frozenset({NEW[0]})
    roll = after(with_one(), 20, authors=caught, convicted=caught)
    assert names(roll, 21) == []
    gone = after(roll, 21, convicted=caught)
    assert gone.entry_of(NEW[0]) is None
    assert not after(gone, 22, enroll(NEW[0]), vouch(BOB, NEW[0]), convicted=caught).entries
    assert after(gone, 22, enroll(NEW[0]), vouch(BOB, NEW[0])).entries  # the epoch is over


def test_evidence_is_not_put_off_by_a_word_to_retire() -> None:
    caught = frozenset({NEW[0]})
    going = after(with_one(), 20, request(Retire(NEW[0], ALICE)), authors=caught)
    assert names(going, 21) == [NEW[0]]
    assert names(after(going, 20, authors=caught, convicted=caught), 21) == []
    assert names(after(with_one(), 20, request(Retire(NEW[0], ALICE)), convicted=caught), 21) == []


def test_who_asks_twice_in_one_set_stands_on_the_roll_once() -> None:
    """Two words for one name would take two places, of two members' quotas."""
    again = TrainerRequest(Enroll(NEW[0], b"keys of " + NEW[0]), EXPIRY_ROUNDS_MAX - 1)
    words = vouch(ALICE, NEW[0]), request(Vouch(BOB, again.id))
    roll = after(VOUCHED, 10, enroll(NEW[0]), again, *words)
    assert [(entry.name, entry.voucher) for entry in roll.entries] == [(NEW[0], ALICE)]


def test_who_misses_many_rounds_leaves_the_plan_and_comes_back_by_saying_so() -> None:
    roll = after(missing(with_one(), 11, 9), 20, authors=frozenset({NEW[0]}))
    assert names(missing(roll, 21, IDLE_ROUNDS - 1), 20 + IDLE_ROUNDS) == [NEW[0]]
    roll = missing(roll, 21, IDLE_ROUNDS)
    assert names(roll, 21 + IDLE_ROUNDS) == []
    assert not roll.here
    back = after(roll, 50, enroll(NEW[0])).drawn(51, EMPTY_ROOT, 9)
    assert back.here == {NEW[0]}
    assert (names(back, 51), names(back, 52)) == ([], [NEW[0]])
    assert names(missing(back, 51, IDLE_ROUNDS), 51 + IDLE_ROUNDS) == [NEW[0]]  # 51 is none
    assert back.vouched_by(ALICE) == 1
    assert not back.admits(enroll(NEW[0]), MEMBERS)  # it is here already


def test_the_place_of_who_is_away_for_long_is_anothers_where_everybody_may_come() -> None:
    for begun, is_kept in ((OPEN, False), (VOUCHED, True)):
        roll = after(begun, 10, enroll(NEW[0]), vouch(ALICE, NEW[0]))
        assert len(after(roll, 10 + 2 * FORGOTTEN_ROUNDS).entries) == 1  # it has missed nothing
        idle, last = missing(roll, 12, IDLE_ROUNDS), 11 + IDLE_ROUNDS
        assert len(after(idle, last + FORGOTTEN_ROUNDS).entries) == 1
        assert len(after(idle, last + 1 + FORGOTTEN_ROUNDS).entries) == is_kept


def test_who_is_ready_and_not_drawn_has_missed_nothing() -> None:
    roll = after(OPEN, 10, *map(enroll, NEW[:20]))
    for number in range(12, 12 + 2 * IDLE_ROUNDS):  # of whom one is drawn comes to each round
        roll = roll.drawn(number, Digest(b"%032d" % number), 1)
        roll = after(roll, number, authors=frozenset(entry.name for entry in roll.planned(number)))
    assert names(roll, 12 + 2 * IDLE_ROUNDS) == NEW[:20]
    roll = missing(roll, 12 + 2 * IDLE_ROUNDS, 20, room=1)
    assert names(roll, 32 + 2 * IDLE_ROUNDS) == NEW[:20]


def test_nobody_has_missed_a_round_that_was_aborted() -> None:
    came, stayed = NEW[:2]
    roll = after(VOUCHED, 10, enroll(came), vouch(ALICE, came), enroll(stayed), vouch(BOB, stayed))
    roll = missing(roll, 12, 3)
    set_at = after(roll.drawn(15, EMPTY_ROOT, 9), 15, authors=frozenset({came}))
    assert [entry.missed for entry in set_at.entries] == [0, 4]
    assert [entry.missed for entry in aborted(set_at, 15).entries] == [0, 3]
    for number in range(16, 16 + 2 * IDLE_ROUNDS):
        set_at = aborted(missing(set_at, number, 1), number)
    assert names(set_at, 16 + 2 * IDLE_ROUNDS) == [came, stayed]
    back = missing(set_at, 50, IDLE_ROUNDS)
    back = aborted(after(back.drawn(66, EMPTY_ROOT, 9), 66, enroll(stayed)), 66)
    assert back.entry_of(stayed) == replace(back.entries[1], missed=0, since=68)


def test_what_closes_a_round_on_the_chain_says_whether_anybody_has_missed_it() -> None:
    roll = missing(with_one(), 12, 3).drawn(15, EMPTY_ROOT, 9)
    members = Committee(tuple(Validator(name, 1) for name in sorted(MEMBERS)))
    set_block = on(GENESIS, empty_set(15), height=15)
    decided = follow(Membership(members, roll=roll), set_block, 100)
    missed = [
        follow(decided, on(set_block, closing, height=15), 100).roll.entries[0].missed
        for closing in (result_of(set_block), AbortPayload(15))
    ]
    assert missed == [4, 3]


def test_a_request_that_expires_or_lies_far_ahead_is_in_no_set() -> None:
    at = replace(OPEN, round=10)
    for expires, is_admitted in ((10, False), (11, True), (10 + EXPIRY_ROUNDS_MAX, True)):
        assert at.admits(TrainerRequest(Enroll(NEW[0], b"k"), expires), MEMBERS) is is_admitted
    too_far = TrainerRequest(Enroll(NEW[0], b"k"), 11 + EXPIRY_ROUNDS_MAX)
    assert not at.admits(too_far, MEMBERS)


def test_the_roll_is_bounded_and_so_is_what_asks() -> None:
    words = [vouch(node_id(at // 2), name) for at, name in enumerate(NEW)]
    wide = replace(VOUCHED, rules=replace(VOUCHED.rules, roll_max=5))
    assert len(after(wide, 10, *map(enroll, NEW), *words).entries) == 5
    full = after(OPEN, 10, *map(enroll, NEW))
    assert len(full.entries) == OPEN.rules.roll_max
    assert not full.asked


def test_a_member_is_no_trainer_besides() -> None:
    assert not OPEN.admits(enroll(ALICE), MEMBERS)
    voted_in = after(with_one(), 20, members=MEMBERS | {NEW[0]})
    assert voted_in.entry_of(NEW[0]) is None


def test_the_root_names_all_that_later_rounds_depend_on() -> None:
    assert VOUCHED.root == EMPTY_ROOT == after(VOUCHED, 10, enroll(NEW[1])).root
    rolls = [
        VOUCHED,
        after(VOUCHED, 11, enroll(NEW[0]), vouch(ALICE, NEW[0])),
        with_one(ALICE),
        with_one(BOB),
        after(with_one(), 11, request(Retire(NEW[0], ALICE))),
        with_one().drawn(12, Digest(b"s" * 32), 1),
        missing(with_one(), 12, 1),
    ]
    assert len({roll.root for roll in rolls}) == len(rolls)
    assert with_one().root == with_one().root


def test_nobody_waits_for_ever_and_everybody_has_a_turn() -> None:
    room, rounds = 3, 200
    roll = after(replace(OPEN, rules=replace(OPEN.rules, roll_max=30)), 10, *map(enroll, NEW[:20]))
    waits, counts = Counter[NodeId](), Counter[NodeId]()
    for round_number in range(12, 12 + rounds):
        seed = Digest(b"%032d" % round_number)
        roll = after(roll, round_number - 1, authors=frozenset(NEW[:20]))
        roll = roll.drawn(round_number, seed, room)
        chosen = [entry.name for entry in roll.planned(round_number)]
        assert len(chosen) == room
        assert chosen == sorted(chosen)
        for name in NEW[:20]:
            waits[name] = 0 if name in chosen else waits[name] + 1
        counts.update(chosen)
        assert max(waits.values()) <= 3 * 7  # two turns of seven rounds, and one for who is due
    assert set(counts) == {*NEW[:20]}
    mean = rounds * room / 20
    assert all(0.5 * mean < count < 1.6 * mean for count in counts.values())


def test_whoever_can_foresee_the_round_cannot_foresee_the_draw() -> None:
    roll = after(OPEN, 10, *map(enroll, NEW[:20]))
    drawn = {
        tuple(entry.name for entry in draw(roll.ready(12), 12, Digest(bytes([seed]) * 32), 5))
        for seed in range(20)
    }
    assert len(drawn) > 15
    assert draw(roll.ready(12), 12, Digest(bytes(32)), 20) == roll.ready(12)


def test_liars_among_trainers_are_bounded_by_the_largest_counts_of_one_voucher() -> None:
    third = node_id(2)
    vouchers = [ALICE, ALICE, ALICE, BOB, BOB, third]
    assert [lying_max(vouchers, f, 0) for f in (0, 1, 2, 3, 4)] == [0, 3, 5, 6, 6]
    assert lying_max([ALICE, BOB, BOB], 1, 0) == 2  # of those that are there
    assert lying_max([None, None, ALICE], 1, 6) == 2 + 1  # of whom nobody vouches for a third
    assert lying_max([None], 0, 6) == 1


def test_a_seat_that_is_handed_on_takes_its_trainers_along() -> None:
    heir = node_id(9)
    roll = with_one().ended((), {heir}, {ALICE: heir})
    assert [entry.voucher for entry in roll.entries] == [heir]
    assert names(after(roll, 20, members=MEMBERS - {ALICE} | {heir}), 22) == [NEW[0]]


def test_who_has_waited_for_two_turns_of_all_is_drawn_whatever_the_lot_says() -> None:
    roll = after(OPEN, 10, *map(enroll, NEW[:20]))
    room, turn = 1, 20
    late = roll.ready(12)[0]
    for seed in range(30):
        planned = 12 - 2 * turn - 1
        others = [replace(entry, planned=12 - 2 * turn) for entry in roll.ready(12)[1:]]
        ready = [replace(late, planned=planned), *others]
        chosen = draw(ready, 12, Digest(bytes([seed]) * 32), room)
        assert [entry.name for entry in chosen] == [late.name]


def test_a_long_wait_brings_a_bounded_number_of_lots() -> None:
    """Beside a plain twin: who is not due yet has a lot for each round of its wait, 64 at most."""
    rounds, waited, count = 1000, 100, 60
    names = [NodeId(b"one" + b"%029d" % number) for number in range(count)]
    wide = replace(OPEN, rules=replace(OPEN.rules, roll_max=count))
    roll = after(wide, 10, *map(enroll, names))
    ready = [replace(entry, planned=rounds - waited) for entry in roll.ready(rounds)]
    assert 2 * len(ready) > waited > LOTS_MAX  # two turns of one at a time: nobody is due
    for seed in (Digest(bytes([number]) * 32) for number in range(8)):
        lots = {
            name: min(numbered_digests("trainers-lot", [seed, rounds, name], LOTS_MAX))
            for name in names
        }
        (chosen,) = draw(ready, rounds, seed, room=1)
        assert chosen.name == min(names, key=lots.__getitem__)


def test_an_abort_gives_nothing_back_to_who_was_not_drawn_for_its_round() -> None:
    """Else one in a long row of trainers would never idle, however long it is away."""
    roll = missing(with_one(), 12, 2)
    assert [entry.missed for entry in aborted(roll, 13).entries] == [1]
    assert [entry.missed for entry in aborted(after(roll, 14), 14).entries] == [2]
