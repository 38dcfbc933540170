"""How a validator set may change at the end of an epoch."""

import random
from collections.abc import Sequence

import pytest

from daa_consensus.committee import (
    FAULT_TOLERANT_MIN,
    VALIDATORS_MAX,
    Committee,
    count_next_max,
)
from daa_consensus.membership import (
    EXPIRY_EPOCHS_MAX,
    Membership,
    Rule,
    Waiting,
    next_committee,
)
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    Rotate,
    Stake,
    Withdraw,
    signers_of,
)
from daa_consensus.turnover import may_follow, moved
from daa_dag.ids import Digest, NodeId
from tests.daa_consensus.bft.simulation import committee_of, node_id

FOUR = committee_of([1] * 4)
SEVEN = committee_of([1] * 7)
NINE = node_id(9)
LIAR = node_id(1)


def operation(action: Action, expires_epoch: int = 8) -> Operation:
    pairs = tuple((name, b"s") for name in signers_of(action))
    return Operation(Request(action, expires_epoch), pairs)


def approvals(request: Request, who: Sequence[int]) -> list[Operation]:
    return [operation(Approve(node_id(i), request.id)) for i in who]


def asked(action: Action, approvers: Sequence[int] = (), place: int = 0) -> Waiting:
    names = frozenset(node_id(i) for i in approvers)
    owner = node_id(place) if isinstance(action, Join) else action.subject
    return Waiting(Request(action, 8), owner, names)


def stakes(committee: Committee) -> list[int]:
    return [v.stake for v in committee.validators]


def names(committee: Committee) -> set[NodeId]:
    return set(committee.stake_of)


def after_epochs(now: Membership, count: int = 1) -> Membership:
    for _ in range(count):
        now = now.next_epoch()
    return now


def test_an_approved_join_takes_effect_at_the_boundary_and_not_before() -> None:
    join = operation(Join(NINE, 1, b"k"))
    now = Membership(FOUR).decided([join, *approvals(join.request, (0, 1, 2))])
    assert now.committee == FOUR
    then = now.next_epoch()
    assert names(then.committee) == names(FOUR) | {NINE}
    assert then.applied == (join.request,)
    assert not then.waiting


@pytest.mark.parametrize("approvers", [(), (0,), (0, 1), (0, 0, 0), (0, 1, 8)])
def test_weight_comes_in_only_with_a_quorum_of_the_ended_epoch(approvers: tuple[int, ...]) -> None:
    join, more = operation(Join(NINE, 1, b"k")), operation(Stake(node_id(3), 2))
    words = approvals(join.request, approvers) + approvals(more.request, approvers)
    then = Membership(FOUR).decided([join, more, *words]).next_epoch()
    assert then.committee == FOUR
    later = then.decided(approvals(more.request, (0, 1, 2))).next_epoch()
    assert later.committee.stake_of[node_id(3)] == 2


def test_approvals_weigh_what_their_members_stake_however_many_there_are() -> None:
    uneven = committee_of([4, 1, 1, 1])  # a quorum is 5 of 7
    join = operation(Join(NINE, 1, b"k"))
    by_many = Membership(uneven).decided([join, *approvals(join.request, (1, 2, 3))])
    assert by_many.next_epoch().committee == uneven
    by_weight = Membership(uneven).decided([join, *approvals(join.request, (0, 1))])
    assert names(by_weight.next_epoch().committee) == names(uneven) | {NINE}


@pytest.mark.parametrize(("others", "goes"), [((2, 1, 1), False), ((2, 2, 1), True)])
def test_exactly_a_third_of_the_weight_can_neither_go_nor_come(
    others: tuple[int, ...], goes: bool
) -> None:
    committee = committee_of([2, *others])  # two of six, or of seven
    leave, join = operation(Leave(node_id(0))), operation(Join(NINE, 2, b"k"))
    left = Membership(committee).decided([leave]).next_epoch()
    assert (left.applied == (leave.request,)) is goes
    words = approvals(join.request, range(4))
    joined = Membership(committee).decided([join, *words]).next_epoch()
    assert (joined.applied == (join.request,)) is goes
    if not goes:
        assert left.dropped == ((leave.request, Rule.TOO_HEAVY),)
        assert joined.dropped == ((join.request, Rule.TOO_HEAVY),)


def test_leaving_and_lowering_a_stake_need_no_approval() -> None:
    seven = committee_of([2] * 7)
    wanted: list[Action] = [Leave(node_id(0)), Stake(node_id(2), 1)]
    now = Membership(seven)
    for action in wanted:
        now = now.decided([operation(action)]).next_epoch()
        assert [request.action for request in now.applied] == [action]
    assert now.committee.stake_of == {node_id(2): 1, **{node_id(i): 2 for i in (1, 3, 4, 5, 6)}}


def rotated(now: Membership, old: NodeId, new: NodeId, expires_epoch: int = 8) -> Membership:
    """With the seat in the new key's hands, everybody agreeing."""
    rotate = operation(Rotate(old, new, b"k"), expires_epoch)
    words = [
        operation(Approve(v.node_id, rotate.request.id), expires_epoch)
        for v in now.committee.validators
    ]
    return now.decided([rotate, *words]).next_epoch().next_epoch()


def test_a_stolen_key_hands_its_seat_to_nobody_without_a_quorum_and_a_whole_epoch() -> None:
    rotate = operation(Rotate(LIAR, NINE, b"k"))
    alone = after_epochs(Membership(SEVEN).decided([rotate]), 7)
    assert alone.committee == SEVEN
    agreed = Membership(SEVEN).decided([rotate, *approvals(rotate.request, range(5))])
    assert agreed.next_epoch().committee == SEVEN
    assert names(agreed.next_epoch().next_epoch().committee) == names(SEVEN) - {LIAR} | {NINE}


def test_whoever_holds_the_key_may_object_to_a_rotation_until_it_takes_effect() -> None:
    rotate = operation(Rotate(LIAR, NINE, b"k"))
    object_ = operation(Withdraw(LIAR, rotate.request.id))
    waits = Membership(SEVEN).decided([rotate, *approvals(rotate.request, range(7))])
    for epochs in (0, 1):
        later = after_epochs(waits, epochs)
        assert later.admits(object_.request)
        objected = later.decided([object_])
        assert not objected.waiting
        assert not objected.admits(rotate.request)  # sent again, it is void as well
        assert after_epochs(objected, 3).committee == SEVEN
    other = operation(Withdraw(node_id(2), rotate.request.id))
    assert not waits.admits(other.request)
    assert waits.decided([other]) == waits


def test_a_leave_takes_the_place_of_what_a_thief_asked_for_and_cannot_be_withdrawn() -> None:
    rotate, leave = operation(Rotate(LIAR, NINE, b"k")), operation(Leave(LIAR))
    waits = Membership(SEVEN).decided([rotate, *approvals(rotate.request, range(7))])
    leaving = waits.decided([leave])
    assert [w.request for w in leaving.waiting] == [leave.request]
    again = operation(Rotate(LIAR, NINE, b"k"), 7)
    for action in (again.request, operation(Withdraw(LIAR, leave.request.id)).request):
        assert not leaving.admits(action)
    assert names(leaving.next_epoch().committee) == names(SEVEN) - {LIAR}


def test_nothing_takes_effect_twice_while_it_could_be_replayed() -> None:
    join, leave = operation(Join(NINE, 1, b"k"), 4), operation(Leave(NINE), 4)
    words = approvals(join.request, (0, 1, 2, 3))
    joined = Membership(FOUR).decided([join, *words]).next_epoch()
    gone = joined.decided([leave]).next_epoch()
    assert gone.committee == FOUR
    for _ in range(4):
        gone = gone.decided([join, *words]).next_epoch()
        assert gone.committee == FOUR
    assert not gone.settled  # what has expired need not be remembered


def test_a_request_that_is_expired_or_too_far_ahead_is_not_admitted() -> None:
    now = Membership(FOUR, epoch=3)
    for expires_epoch, fine in ((3, False), (4, True), (3 + EXPIRY_EPOCHS_MAX, True)):
        request = Request(Leave(node_id(0)), expires_epoch)
        assert now.admits(request) is fine
    assert not now.admits(Request(Leave(node_id(0)), 4 + EXPIRY_EPOCHS_MAX))


def test_what_is_never_approved_expires() -> None:
    join = operation(Join(NINE, 1, b"k"), 2)
    now = Membership(FOUR).decided([join, *approvals(join.request, (0,))])
    now = now.next_epoch().next_epoch()
    assert len(now.waiting) == 1
    now = now.next_epoch()
    assert now.dropped == ((join.request, Rule.EXPIRED),)
    assert not now.waiting


@pytest.mark.parametrize(
    ("action", "rule"),
    [
        (Join(node_id(1), 1, b"k"), Rule.ALREADY_MEMBER),
        (Rotate(node_id(1), node_id(2), b"k"), Rule.ALREADY_MEMBER),
        (Leave(NINE), Rule.NO_MEMBER),
        (Stake(NINE, 2), Rule.NO_MEMBER),
        (Rotate(NINE, node_id(8), b"k"), Rule.NO_MEMBER),
        (Stake(node_id(1), 1), Rule.NO_CHANGE),
        (Join(NINE, 2, b"k"), Rule.TOO_HEAVY),
    ],
)
def test_what_can_never_be_is_dropped_by_a_named_rule(action: Action, rule: Rule) -> None:
    boundary = next_committee(FOUR, [asked(action, range(4))], 1)
    assert [why for _, why in boundary.dropped] == [rule]
    assert boundary.committee == FOUR
    assert not boundary.waiting


def test_the_last_one_cannot_leave_and_a_full_house_takes_nobody_in() -> None:
    alone = next_committee(committee_of([5]), [asked(Leave(node_id(0)))], 1)
    assert alone.dropped[0][1] == Rule.LAST_MEMBER
    full = committee_of([1] * VALIDATORS_MAX)
    join = asked(Join(NodeId(b"\xff" * 31 + b"x"), 1, b"k"), range(VALIDATORS_MAX))
    assert next_committee(full, [join], 1).dropped[0][1] == Rule.TOO_MANY


def test_a_join_falls_with_its_sponsor_unless_a_quorum_has_approved_it() -> None:
    for count, approved in ((4, False), (5, True)):
        join = asked(Join(NINE, 1, b"k"), range(count), place=0)
        for waiting in ([asked(Leave(node_id(0))), join], [join, asked(Leave(node_id(0)))]):
            boundary = next_committee(SEVEN, waiting, 1)
            assert (NINE in boundary.committee.stake_of) is approved
            why = [rule for _, rule in boundary.dropped]
            assert why == ([] if approved else [Rule.NO_SPONSOR])
            assert not boundary.waiting


@pytest.mark.parametrize("approvers", [range(7), range(5)])
def test_an_approved_join_whose_sponsor_has_gone_waits_for_room_and_for_who_is_there_now(
    approvers: range,
) -> None:
    words = [asked(Join(node_id(20 + i), 1, b"k"), approvers, place=i) for i in (1, 2, 0)]
    now = Membership(SEVEN, waiting=(asked(Leave(node_id(0))), *words)).next_epoch()
    (last,) = now.waiting  # of seven two may come
    assert (last.request, last.place) == (words[2].request, None)
    then = now.next_epoch()
    assert then.waiting == (() if len(approvers) == 7 else (last,))  # six of eight, or only four
    more = now.decided(approvals(last.request, (5, 6))).next_epoch()
    assert node_id(20) in more.committee.stake_of
    assert not after_epochs(then, 8).waiting  # it expires like any other


def test_a_join_goes_with_the_seat_whose_old_key_sponsored_it() -> None:
    rotate, join = operation(Rotate(LIAR, NINE, b"k")), operation(Join(node_id(20), 1, b"k"))
    word = approvals(join.request, (1,))
    now = Membership(SEVEN).decided([rotate, *approvals(rotate.request, range(7)), join, *word])
    now = after_epochs(now, 2)
    assert NINE in now.committee.stake_of
    assert [w.place for w in now.waiting] == [NINE]
    other = operation(Join(node_id(21), 1, b"k"))
    crowded = now.decided([other, *approvals(other.request, (9,))])
    assert len(crowded.waiting) == 1  # one Join a seat, as before
    # What the old key approved of, whoever held it by then, the new one has not.
    assert now.decided(approvals(join.request, (0, 2, 3, 4))).next_epoch().waiting
    agreed = now.decided(approvals(join.request, (0, 2, 3, 4, 9))).next_epoch()
    assert node_id(20) in agreed.committee.stake_of


def test_what_does_not_fit_beside_the_others_waits_and_is_not_overtaken() -> None:
    waiting = [asked(Leave(node_id(i))) for i in (3, 1, 0, 2)]
    first = next_committee(SEVEN, waiting, 1)  # 3 x 2 < 7, 3 x 3 is not
    assert [r.action.subject for r in first.applied] == [node_id(3), node_id(1)]
    assert [w.place for w in first.waiting] == [node_id(0), node_id(2)]
    second = next_committee(first.committee, first.waiting, 2)  # of five one may go
    assert [r.action.subject for r in second.applied] == [node_id(0)]
    heavy_first = [asked(Leave(node_id(0))), asked(Stake(node_id(1), 1)), asked(Leave(node_id(2)))]
    boundary = next_committee(committee_of([2, 4, 1, 1, 1, 1]), heavy_first, 1)
    assert [r.action.subject for r in boundary.applied] == [node_id(0)]
    assert len(boundary.waiting) == 2  # the last would fit: it is not let past


def test_what_waits_for_approval_holds_up_nobody() -> None:
    waiting = [asked(Join(NINE, 1, b"k"), (0,)), asked(Leave(node_id(3)))]
    boundary = next_committee(FOUR, waiting, 1)
    assert [r.action for r in boundary.applied] == [Leave(node_id(3))]
    assert boundary.waiting == (waiting[0],)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_under_four_there_is_one_change_a_boundary(count: int) -> None:
    small = committee_of([1] * count)
    everybody = range(count)
    waiting = [
        asked(Join(node_id(8), 1, b"k"), everybody, place=0),
        asked(Join(NINE, 1, b"k"), everybody, place=0),
    ]
    boundary = next_committee(small, waiting, 1)
    assert len(boundary.applied) == len(boundary.waiting) == 1
    too_much = asked(Join(NINE, count + 1, b"k"), everybody)
    assert next_committee(small, [too_much], 1).dropped[0][1] == Rule.TOO_HEAVY


def test_a_member_has_one_request_and_sponsors_one_join() -> None:
    joins = [operation(Join(node_id(20 + i), 1, b"k")) for i in range(9)]
    words = [word for join in joins for word in approvals(join.request, range(4))]
    leaves = [operation(Leave(node_id(i)), 5 + extra) for i in range(4) for extra in range(3)]
    now = Membership(FOUR).decided([*joins, *words, *leaves])
    assert len(now.waiting) == 8
    assert len({w.place for w in now.waiting if isinstance(w.request.action, Join)}) == 4


def test_only_who_is_a_member_may_sponsor() -> None:
    join = operation(Join(NINE, 1, b"k"))
    assert not Membership(FOUR).decided([join]).waiting
    assert not Membership(FOUR).decided([join, *approvals(join.request, (9,))]).waiting


def test_who_is_convicted_is_expelled_at_the_boundary_and_asks_for_nothing_before() -> None:
    now = Membership(SEVEN).decided([], [(LIAR, 0), (LIAR, 0), (NINE, 0)])
    assert now.convicted == (LIAR,)
    assert now.committee == SEVEN  # votes and leads until the epoch ends: all nodes agree on that
    for action in (Rotate(LIAR, NINE, b"k"), Stake(LIAR, 2), Approve(LIAR, Digest(b"r" * 32))):
        assert not now.admits(operation(action).request)
    then = now.next_epoch()
    assert then.expelled == (LIAR,)
    assert names(then.committee) == names(SEVEN) - {LIAR}
    assert not then.convicted  # the list holds present members only


def test_a_rotation_that_waits_does_not_save_the_seat_of_who_is_convicted() -> None:
    rotate = operation(Rotate(LIAR, NINE, b"k"))
    for decided in (
        Membership(SEVEN).decided([rotate]).decided([], [(LIAR, 0)]),
        Membership(SEVEN).decided([rotate], [(LIAR, 0)]),
    ):
        then = decided.next_epoch()
        assert names(then.committee) == names(SEVEN) - {LIAR}


def test_a_conviction_follows_the_seat_through_its_keys() -> None:
    now = rotated(Membership(SEVEN), LIAR, NINE)
    assert NINE in now.committee.stake_of
    heir = node_id(10)
    now = rotated(now, NINE, heir, 12)
    for name in (LIAR, NINE, heir):
        assert now.decided([], [(name, now.epoch)]).convicted == (heir,)
    gone = now.decided([], [(LIAR, 0)]).next_epoch()
    assert gone.expelled == (heir,)
    assert gone.answers_for(LIAR, 0) is None


def test_who_is_let_in_again_answers_for_no_word_of_before() -> None:
    out = Membership(SEVEN).decided([], [(LIAR, 0)]).next_epoch()
    assert out.decided([], [(LIAR, 0)]).convicted == ()
    join = operation(Join(LIAR, 1, b"k"))
    alone = out.decided([join, *approvals(join.request, (0,))]).next_epoch()
    assert LIAR not in alone.committee.stake_of
    back = out.decided([join, *approvals(join.request, (0, 2, 3, 4, 5))]).next_epoch()
    assert LIAR in back.committee.stake_of
    assert back.decided([], [(LIAR, 0)]).convicted == ()
    assert back.decided([], [(LIAR, back.epoch)]).convicted == (LIAR,)


def test_the_convicted_go_first_and_what_does_not_fit_beside_them_waits() -> None:
    leave = operation(Leave(node_id(5)))
    now = Membership(SEVEN).decided([leave], [(node_id(i), 0) for i in (1, 2, 3)])
    first = now.next_epoch()
    assert first.expelled == (node_id(1), node_id(2))  # 3 x 2 < 7, 3 x 3 is not
    assert first.convicted == (node_id(3),)
    assert [w.request for w in first.waiting] == [leave.request]
    second = first.next_epoch()  # of five one may go
    assert second.expelled == (node_id(3),)
    third = second.next_epoch()
    assert [r.action for r in third.applied] == [leave.request.action]


def test_words_of_the_convicted_approve_of_nothing() -> None:
    join = operation(Join(NINE, 1, b"k"))
    now = Membership(FOUR).decided([join, *approvals(join.request, (0, 1, 2))])
    assert NINE not in now.decided([], [(LIAR, 0)]).next_epoch().committee.stake_of


@pytest.mark.parametrize("count", [1, 2, 3])
def test_under_four_the_convicted_go_one_a_boundary_and_the_last_one_stays(count: int) -> None:
    now = Membership(committee_of([1] * count)).decided([], [(node_id(i), 0) for i in range(count)])
    for left in range(count - 1, 0, -1):
        now = now.next_epoch()
        assert len(now.committee.validators) == left
    last = after_epochs(now, 3)
    assert len(last.committee.validators) == 1
    assert not last.convicted  # it goes on alone, and may let others in


def test_a_third_that_is_convicted_alone_stays_and_holds_up_nobody() -> None:
    heavy = committee_of([3, 1, 1, 1, 1, 1])
    leave = operation(Leave(node_id(5)))
    then = Membership(heavy).decided([leave], [(node_id(0), 0)]).next_epoch()
    assert names(then.committee) == names(heavy) - {node_id(5)}
    assert then.convicted == (node_id(0),)


def test_a_committee_falls_under_four_only_when_nobody_who_is_left_may_be_faulty() -> None:
    assert len(Membership(FOUR).decided([], [(LIAR, 0)]).next_epoch().committee.validators) == 3
    uneven = committee_of([4, 1, 1, 1])  # two of the light ones may be faulty
    stays = Membership(uneven).decided([], [(LIAR, 0)]).next_epoch()
    assert stays.convicted == (LIAR,)
    assert stays.committee == uneven


def random_action(rng: random.Random, committee: Committee) -> Action:
    member = rng.choice(committee.validators)
    stranger = node_id(rng.randrange(60))
    match rng.randrange(5):
        case 0 | 1:
            return Join(stranger, rng.choice((1, 1, 2, 5)), b"k")
        case 2:
            return Leave(member.node_id)
        case 3:
            return Rotate(member.node_id, node_id(60 + rng.randrange(60)), b"k")
        case _:
            return Stake(member.node_id, rng.choice((1, 2, 3, member.stake + 1)))


def check_boundary(old: Committee, new: Committee) -> None:
    gone, came = moved(old, new)
    faulty_max = old.total - old.quorum
    assert new.validators
    if len(old.validators) < FAULT_TOLERANT_MIN:
        assert came <= old.total  # all of them are honest, and all agreed
        return
    # Whoever made the closing final, one of them was honest and stays.
    assert old.quorum - faulty_max - gone >= 1
    # All who were ever faulty and all who came are no quorum together.
    assert faulty_max + came < new.quorum
    # Any quorum of the old shares weight with any quorum of the new.
    assert (old.quorum - gone) + (new.quorum - came) > old.total - gone


@pytest.mark.parametrize("seed", range(150))
def test_any_history_keeps_the_overlap_and_everybody_computes_the_same(seed: int) -> None:
    rng = random.Random(seed)
    start = committee_of([rng.choice((1, 1, 2, 3, 7)) for _ in range(rng.randint(1, 12))])
    now, again = Membership(start), Membership(start)
    changes = gone = 0
    for _ in range(25):
        sets: list[list[Operation]] = []
        for _ in range(rng.randint(0, 3)):
            action = random_action(rng, now.committee)
            made = operation(action, now.epoch + rng.randint(1, 6))
            count = rng.choice((len(now.committee.validators), 2))
            who = rng.sample(now.committee.validators, min(count, len(now.committee.validators)))
            words = [operation(Approve(v.node_id, made.request.id)) for v in who]
            sets.append([made, *words])
        for waiting in now.waiting[:1] if not rng.randrange(4) else []:
            taken_back = Withdraw(waiting.request.action.subject, waiting.request.id)
            sets.append([operation(taken_back, now.epoch + 1)])
        for decided in sets:
            accused = [rng.choice(now.committee.validators).node_id] if not rng.randrange(8) else []
            offences = [(name, rng.randint(0, now.epoch)) for name in accused]
            now = now.decided(decided, offences)
            again = again.decided(list(decided), list(offences))
        places = [(w.place, isinstance(w.request.action, Join)) for w in now.waiting if w.place]
        assert len(places) == len(set(places)) <= 2 * len(now.committee.validators)
        assert sum(w.place is None for w in now.waiting) <= gone
        then = now.next_epoch()
        check_boundary(now.committee, then.committee)
        assert may_follow(now.committee, then.committee, len(then.applied) + len(then.expelled))
        assert set(then.expelled) <= set(now.convicted)
        assert set(then.convicted) <= names(then.committee)
        assert not {r.id for r in then.applied} & {w.request.id for w in then.waiting}
        changes += len(then.applied) + len(then.expelled)
        gone += len(names(now.committee) - names(then.committee))
        now, again = then, again.next_epoch()
        assert now == again
    assert changes or now.convicted  # who is too heavy to go takes its statement with it


def test_however_little_they_stake_less_than_a_third_of_the_number_come_at_once() -> None:
    """Messages are bounded by the number: who has not seen the boundary must read them, too."""
    heavy = committee_of([100] * 6)
    joins = [asked(Join(node_id(20 + i), 1, b"k"), range(6), place=i) for i in range(6)]
    boundary = next_committee(heavy, joins, 1)
    assert len(boundary.committee.validators) == count_next_max(6) == 9
    assert [w.request for w in boundary.waiting] == [w.request for w in joins[3:]]
    then = next_committee(boundary.committee, boundary.waiting, 2)
    assert len(then.committee.validators) == 12
