"""How a set with trainers is merged: `2 f_agg < m`, `f_agg = f + min(t, L)`, else members alone."""

from dataclasses import replace
from itertools import product

import pytest

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_consensus.committee import Committee, Validator, lying_trainers_max
from daa_dag.ids import BlobRoot, NodeId
from daa_node.rounds.config import RoundsConfig
from daa_node.rounds.plan import Plan, RoundRules, make_plan, told_loss_micronats
from daa_node.spot_checks.copies import Likeness
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.config import UpdatesConfig
from tests.daa_node.rounds.test_plan import PARENT, contributor
from tests.daa_node.spot_checks.no_checks import nothing_alike, nothing_measured

CONFIG = RoundsConfig(inner_steps_max=20, window_ms=10_000)
NAMES = [NodeId(bytes([place + 1]) * 32) for place in range(60)]


def planned(members: int, trainers: int) -> tuple[Plan, list[NodeId], list[NodeId]]:
    """A plan, its members and its trainers, who come before them by name."""
    training, voting = NAMES[:trainers], NAMES[trainers : trainers + members]
    committee = Committee(tuple(Validator(name, 1) for name in voting))
    return make_plan(PARENT, [*training, *voting], CONFIG, 256, 4, committee), voting, training


def rules_by(updates: UpdatesConfig) -> RoundRules:
    return RoundRules(
        rounds=CONFIG,
        tokens_per_step=256,
        rule=updates.rule,
        f_agg_among=updates.f_agg_among,
        codec="int8",
        codec_sizes={"int8": 10},
        check_update=lambda _blob, _codec: None,
        compare=nothing_alike,
        measure=nothing_measured,
    )


TRIMMED = rules_by(UpdatesConfig())
MEAN = rules_by(UpdatesConfig(rule="mean", f_agg=0))


@pytest.mark.parametrize(("members", "trainers"), [*product((1, 4, 5, 7, 10), (0, 1, 2, 3, 8, 20))])
def test_whoever_is_away_liars_are_never_more_than_the_rule_holds_off(
    members: int, trainers: int
) -> None:
    """All that lie contribute, and of the honest only so many: what is merged is bounded."""
    plan, voting, training = planned(members, trainers)
    lying = (members - 1) // 3, lying_trainers_max(trainers)
    for v, t in product(range(members + 1), range(trainers + 1)):
        terms = TRIMMED.terms(plan, [*voting[:v], *training[:t]])
        counting = v + t - len(terms.idle)
        liars = min(v, lying[0]) + (0 if terms.idle else min(t, lying[1]))
        assert liars <= terms.f_agg
        assert not terms.idle or terms.idle == {*training[:t]}
        if terms.idle or not t:
            assert (counting, terms.f_agg) == (v, lying[0])
        else:
            rule_named("trimmed_mean").check_bound(counting, terms.f_agg)


@pytest.mark.parametrize(("members", "trainers"), [*product((1, 4, 7, 10), (1, 2, 8, 40))])
def test_trainers_that_stay_away_or_come_stop_no_members(members: int, trainers: int) -> None:
    """With a third of the members away, whatever trainers do, the set can be merged."""
    plan, voting, training = planned(members, trainers)
    here = voting[: members - (members - 1) // 3]
    for t in range(trainers + 1):
        assert TRIMMED.are_enough(plan, [*here, *training[:t]])
    assert not TRIMMED.terms(plan, [*voting, *training]).idle or members == trainers == 1


def test_trainers_alone_are_never_enough_where_all_of_them_may_lie() -> None:
    plan, voting, training = planned(4, 2)
    assert TRIMMED.terms(plan, training).idle == {*training}
    assert not TRIMMED.are_enough(plan, training)
    assert not TRIMMED.are_enough(plan, [])
    assert TRIMMED.are_enough(plan, voting[:3])


def test_a_mean_holds_off_nobody_and_merges_everybody() -> None:
    plan, voting, training = planned(4, 2)
    assert MEAN.terms(plan, [voting[0], training[0]]).f_agg == 0
    assert not MEAN.terms(plan, [voting[0], training[0]]).idle


def test_an_f_agg_of_the_job_is_of_members_and_trainers_add_to_it() -> None:
    plan, voting, training = planned(7, 3)
    fixed = rules_by(UpdatesConfig(f_agg=1))
    assert fixed.terms(plan, voting).f_agg == 1
    assert fixed.terms(plan, [*voting, *training]).f_agg == 2


def decided(plan: Plan, authors: list[NodeId], weights: list[int], f_agg: int) -> SetPayload:
    offers = tuple(
        OfferBody(*(5, author, plan.base, BlobRoot(author), 10, "int8", 1, 256), *(1, 0, 0, ()))
        for author in sorted(authors)
    )
    by_name = dict(zip(authors, weights, strict=True))
    ordered = tuple(by_name[name] for name in sorted(authors))
    return SetPayload(5, offers, ordered, "trimmed_mean", f_agg, (), (), ())


def test_a_leader_cannot_choose_whether_trainers_count() -> None:
    plan, voting, training = planned(4, 2)
    # all are there: five hold off two, six do
    everybody = [*voting, *training]
    assert TRIMMED.unplanned(plan, decided(plan, everybody, [256] * 6, 2)) is None
    assert TRIMMED.unplanned(plan, decided(plan, everybody, [256] * 6, 1)) is not None
    assert TRIMMED.unplanned(plan, decided(plan, everybody, [256] * 4 + [0] * 2, 1)) is not None
    # one trainer and three members do not hold off two: the trainer counts nothing
    few = [*voting[:3], training[0]]
    assert TRIMMED.unplanned(plan, decided(plan, few, [256] * 3 + [0], 1)) is None
    assert TRIMMED.unplanned(plan, decided(plan, few, [256] * 4, 2)) is not None
    assert TRIMMED.unplanned(plan, decided(plan, few, [256] * 4, 1)) is not None
    idle = decided(plan, few, [256] * 3 + [0], 1)
    assert [o.author for o in TRIMMED.without_idle(plan, idle).offers] == voting[:3]
    # a zero for who does count has to be a copy's: `rounds.voiding` asks of whom
    whole = decided(plan, everybody, [256] * 5 + [0], 2)
    assert TRIMMED.without_idle(plan, whole) == whole


def test_a_set_of_idle_trainers_alone_is_as_one_of_nobody() -> None:
    plan, _, training = planned(4, 2)
    assert TRIMMED.unplanned(plan, decided(plan, training, [0, 0], 1)) is None
    assert TRIMMED.unplanned(plan, decided(plan, [], [], 1)) is None


def test_the_plan_tells_members_from_trainers_and_how_many_of_both_may_lie() -> None:
    plan, voting, training = planned(7, 4)
    assert plan.trainers == {*training}
    assert plan.liars_among([*voting, *training]) == 2 + 2
    alone, members, _ = planned(7, 0)
    assert alone.liars_among(members) == 2


def test_trainers_that_are_away_hide_no_copy_among_those_who_came() -> None:
    """So many more that may lie are so many more that may be near: they have to be there."""
    asked: list[int] = []

    def compare(_updates: object, _seed: object, liars_max: int) -> Likeness:
        asked.append(liars_max)
        return Likeness([], liars_max)

    plan, voting, training = planned(4, 9)
    rules = replace(TRIMMED, compare=compare)
    for there, liars_max in (([], 1), (training[:1], 2), (training, 4)):
        offers = decided(plan, [*voting, *there], [256] * (4 + len(there)), 1).offers
        rules.likeness(plan, offers, [memoryview(b"")] * len(offers))
        assert asked.pop() == liars_max


def test_speeds_of_trainers_cut_nobodys_training_short() -> None:
    plan, voting, training = planned(4, 3)
    fast = [contributor(name, 1) for name in training]
    slow = [contributor(name, 200_000) for name in voting]
    parent = replace(PARENT, contributors=tuple(sorted([*fast, *slow], key=lambda c: c.author)))
    committee = Committee(tuple(Validator(name, 1) for name in voting))
    then = make_plan(parent, [*training, *voting], CONFIG, 256, 4, committee)
    assert then.train_us == 20 * 200_000
    assert plan.trainers == then.trainers


def test_who_counts_nothing_tells_no_loss() -> None:
    """Idle trainers may be liars for the most part: they would end the job."""
    liars = [replace(contributor(n, 9, weight=0), base_loss_micronats=1) for n in NAMES[:5]]
    told = [replace(contributor(n, 9), base_loss_micronats=2_000_000) for n in NAMES[5:8]]
    vertex = replace(PARENT, contributors=(*liars, *told))
    assert told_loss_micronats(vertex) == 2_000_000
