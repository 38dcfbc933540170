"""How a set with vouched trainers is merged: `f_agg = f + c_1 + ... + c_f`, of each so many."""

from dataclasses import replace
from itertools import product

import pytest

from daa_consensus.committee import Committee, Validator
from daa_consensus.roll import lying_max
from daa_dag.ids import Digest, NodeId
from daa_node.rounds.plan import Plan, make_plan
from tests.daa_node.rounds.test_plan import PARENT
from tests.daa_node.rounds.test_terms import CONFIG, MEAN, NAMES, TRIMMED

Vouchers = dict[NodeId, NodeId | None]


def vouched(counts: tuple[int, ...], unvouched: int = 0) -> tuple[Plan, list[NodeId], Vouchers]:
    """A plan of as many members as counts, each with so many trainers."""
    voting = NAMES[: len(counts)]
    whose = [member for member, count in zip(voting, counts, strict=True) for _ in range(count)]
    training = NAMES[len(counts) :]
    vouchers: Vouchers = dict(zip(training, [*whose, *[None] * unvouched], strict=False))
    committee = Committee(tuple(Validator(name, 1) for name in voting))
    who = [*voting, *vouchers]
    return make_plan(PARENT, who, CONFIG, 256, 4, committee, vouchers), voting, vouchers


@pytest.mark.parametrize(
    ("counts", "f_agg", "counted"),
    [
        ((2, 2, 2, 2), 3, 8),  # 6 < 12
        ((1, 0, 0, 0), 2, 1),  # 4 < 5
        ((8, 0, 0, 0), 2, 1),  # of the one member that lies, as it may be, no more than one
        ((8, 1, 1, 1), 5, 7),  # 4 + 1 + 1 + 1: 10 < 11, and with five of it 12 = 12
        ((0,) * 4, 1, 0),
    ],
)
def test_of_each_voucher_so_many_count_as_the_rule_holds_off(
    counts: tuple[int, ...], f_agg: int, counted: int
) -> None:
    plan, voting, vouchers = vouched(counts)
    terms = TRIMMED.terms(plan, [*voting, *vouchers])
    kept = len(vouchers) - len(terms.idle)
    assert (terms.f_agg, kept) == (f_agg, counted)


@pytest.mark.parametrize(
    ("counts", "unvouched"),
    [*product([(1, 2, 3, 4), (4, 4, 0, 0, 0), (1,) * 7, (9, 0, 0, 0, 0, 1, 1)], (0, 1, 4))],
)
def test_whoever_comes_liars_are_never_more_than_the_rule_holds_off(
    counts: tuple[int, ...], unvouched: int
) -> None:
    """The f members that lie are those with the most trainers here, and all of these lie."""
    plan, voting, vouchers = vouched(counts, unvouched)
    f = (len(counts) - 1) // 3
    for away in range(len(vouchers) + 1):
        here = list(vouchers)[away:]
        terms = TRIMMED.terms(plan, [*voting, *here])
        kept = [name for name in here if name not in terms.idle]
        bad = f + lying_max([vouchers[name] for name in kept], f, unvouched)
        assert terms.f_agg >= bad
        assert 2 * terms.f_agg < len(voting) + len(kept)
        assert terms == TRIMMED.terms(plan, [*here, *voting])  # whatever the order
    assert not MEAN.terms(plan, [*voting, *vouchers]).idle


def test_more_of_one_member_count_where_others_vouch_as_well() -> None:
    plan, voting, vouchers = vouched((2, 2, 0, 0))
    both, one = list(vouchers), list(vouchers)[:2]
    assert len(TRIMMED.terms(plan, [*voting, *both]).idle) == 0
    assert len(TRIMMED.terms(plan, [*voting, *one]).idle) == 1


def test_whom_its_vouchers_number_leaves_out_is_another_one_each_round() -> None:
    """By lot, or those whose names come late would train for nothing for ever."""
    plan, voting, vouchers = vouched((8, 0, 0, 0))
    counted = set[NodeId]()
    for number in range(40):
        of_round = replace(plan, seed=Digest(bytes([number]) * 32))
        counted |= {*vouchers} - TRIMMED.terms(of_round, [*voting, *vouchers]).idle
    assert counted == {*vouchers}


def test_trainers_that_count_nothing_make_no_set_of_too_few_members_enough() -> None:
    plan, voting, vouchers = vouched((8, 0, 0, 0))
    assert len(TRIMMED.terms(plan, [*voting[:2], *vouchers]).idle) == len(vouchers)
    assert not TRIMMED.are_enough(plan, [*voting[:2], *vouchers])  # of two, one may lie
    assert TRIMMED.are_enough(plan, [*voting[:3], *vouchers])
