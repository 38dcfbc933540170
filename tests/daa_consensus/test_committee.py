"""Who weighs what, what a quorum is, and who leads."""

import pytest

from daa_consensus.committee import ORDERS_MAX, Committee, Validator
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


def test_each_validator_leads_once_a_cycle_and_epochs_shuffle_anew() -> None:
    committee = committee_of([1, 5, 1, 2, 1])
    orders = []
    for epoch in range(8):
        for cycle in range(8):
            views = range(cycle * 5, cycle * 5 + 5)
            order = [committee.leader(domain_of(committee, epoch), view) for view in views]
            assert sorted(order) == [v.node_id for v in committee.validators]
            orders.append(tuple(order))
    assert len(set(orders)) > 20
    heavy_first = sum(order.index(node_id(1)) == 0 for order in orders)
    assert heavy_first > len(orders) // 4  # half of the stake: about every second time


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
