"""Who weighs what, what a quorum is, and who leads."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daa_consensus.committee import ORDERS_MAX, STAKE_MAX, TURNS_EACH, Committee, Validator
from daa_dag.ids import NodeId
from tests.daa_consensus.bft.simulation import committee_of, domain_of, node_id


@pytest.mark.parametrize(
    ("stakes", "quorum", "blocking"),
    [
        ([1] * 4, 3, 2),
        ([1] * 7, 5, 3),
        ([1] * 100, 67, 34),
        ([5, 1, 1, 1], 6, 3),
        ([1], 1, 1),
        ([1, 1], 2, 1),
        ([1, 1, 1], 3, 1),
        ([10, 1, 1], 12, 1),  # fewer than four tolerate nothing, however heavy one of them is
    ],
)
def test_a_quorum_is_more_than_two_thirds_or_all_of_up_to_three(
    stakes: list[int], quorum: int, blocking: int
) -> None:
    committee = committee_of(stakes)
    assert (committee.quorum, committee.blocking) == (quorum, blocking)


def test_two_quorums_share_more_than_what_traitors_may_weigh() -> None:
    for total in range(4, 200):
        committee = committee_of([1] * total) if total < 150 else committee_of([total - 3, 1, 1, 1])
        assert 2 * committee.quorum - committee.total >= committee.blocking
        assert committee.blocking > (committee.total - 1) // 3


def test_strangers_weigh_nothing() -> None:
    committee = committee_of([1, 2, 3, 4])
    assert committee.weight({node_id(1), node_id(3), NodeId(b"s" * 32)}) == 6


def views_led(committee: Committee, views: range, epoch: int = 0) -> Counter[NodeId]:
    domain = domain_of(committee, epoch)
    return Counter(committee.leader(domain, view) for view in views)


def test_equals_lead_once_in_every_n_views_each_time_in_another_order() -> None:
    committee = committee_of([7] * 5)
    orders = set()
    for epoch in range(4):
        for first in range(0, 400, 5):
            views = range(first, first + 5)
            order = [committee.leader(domain_of(committee, epoch), view) for view in views]
            assert sorted(order) == [v.node_id for v in committee.validators]
            orders.add(tuple(order))
    assert len(orders) > 80  # of 120 that there are, in 320 draws


def test_a_hundred_small_validators_with_a_fifth_of_the_stake_lead_a_fifth_of_the_views() -> None:
    committee = committee_of([20_000] * 4 + [200] * 100)
    cycle = sum(committee.turns.values())
    led = views_led(committee, range(cycle))
    small = sum(led[v.node_id] for v in committee.validators if v.stake == 200)
    assert 0.19 < small / cycle < 0.21
    assert all(led[v.node_id] > 0 for v in committee.validators)


def test_who_leads_a_whole_view_for_less_gets_no_turn_of_what_is_left() -> None:
    """Of 320 views 0.95 each for four, and 19.76 for sixteen: what is left is theirs."""
    committee = committee_of([380] * 4 + [7905] * 16)
    turns = [committee.turns[v.node_id] for v in committee.validators]
    assert turns[:4] == [1] * 4
    assert Counter(turns[4:]) == {19: 4, 20: 12}


STAKES = st.lists(st.integers(1, STAKE_MAX), min_size=1, max_size=60)


@given(STAKES, st.integers(0, 2**40), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_whoever_has_stake_leads_in_proportion_and_within_a_bounded_number_of_views(
    stakes: list[int], cycle: int, epoch: int
) -> None:
    committee = committee_of(stakes)
    n, length = len(stakes), sum(committee.turns.values())
    first = cycle * length
    led = views_led(committee, range(first, first + length), epoch)
    assert led == committee.turns
    domain = domain_of(committee, epoch)
    order = [committee.leader(domain, view) for view in range(first, first + 2 * length)]
    for validator in committee.validators:
        # Half a turn of rounding, one turn at least, and the cycle is not exactly 16 n long.
        fair = TURNS_EACH * n * validator.stake / committee.total
        assert abs(led[validator.node_id] - fair) <= 1
        places = [at for at, leader in enumerate(order) if leader == validator.node_id]
        gap_max = 2 * length / led[validator.node_id] + 4 * n
        assert max(b - a for a, b in pairwise(places)) <= gap_max
    assert length <= (TURNS_EACH + 1) * n


@given(STAKES, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_who_weighs_less_than_a_third_never_leads_for_long(
    stakes: list[int], random: Random
) -> None:
    """Within 8 n views somebody else leads, however the faulty are chosen."""
    committee = committee_of(stakes)
    n, faulty = len(stakes), set[NodeId]()
    for validator in random.sample(committee.validators, n):
        if committee.weight({*faulty, validator.node_id}) <= committee.total - committee.quorum:
            faulty.add(validator.node_id)
    domain, run = domain_of(committee), 0
    for view in range(3 * (TURNS_EACH + 1) * n):
        run = run + 1 if committee.leader(domain, view) in faulty else 0
        assert run < 8 * n


def test_everybody_computes_the_same_leaders_whatever_was_asked_before() -> None:
    committee, again = (committee_of([3, 1, 4, 1, 5]) for _ in range(2))
    domain = domain_of(committee, 2)
    backwards = [again.leader(domain, view) for view in reversed(range(1_000))]
    assert [committee.leader(domain, view) for view in range(1_000)] == backwards[::-1]


def test_remembered_orders_are_bounded() -> None:
    committee = committee_of([1] * 4)
    for view in range(400):
        committee.leader(domain_of(committee), view)
    assert len(committee._orders) <= ORDERS_MAX


def test_an_unsorted_or_doubled_or_weightless_committee_is_our_own_bug() -> None:
    one, other = Validator(node_id(0), 1), Validator(node_id(1), 1)
    for validators in ((), (other, one), (one, one), (one, Validator(node_id(1), 0))):
        with pytest.raises(AssertionError):
            Committee(validators)
