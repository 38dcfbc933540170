"""The plan of a round follows from the certified parent alone, in integers."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_consensus.committee import Committee, Validator
from daa_dag.checkpoint import ZERO_ID, Contributor, Vertex
from daa_dag.ids import BlobRoot, BlockId, ContributionRoot, Digest, NodeId, ValidatorSetRoot
from daa_node.errors import PeerFault
from daa_node.rounds.config import RoundsConfig
from daa_node.rounds.plan import Plan, RoundRules, make_plan
from daa_node.training.steps_in_time import reported_us_per_step
from tests.daa_node.spot_checks.no_checks import nothing_alike, nothing_measured

ALICE, BOB, CAROL = (NodeId(message * 32) for message in (b"a", b"b", b"c"))
ZERO_ROOT = BlobRoot(ZERO_ID)
CONFIG = RoundsConfig(inner_steps_max=20, window_ms=10_000)
TOKENS_PER_STEP = 256


def contributor(author: NodeId, us_per_step: int, weight: int = 5_120) -> Contributor:
    return Contributor(author, ContributionRoot(author), weight, 20, weight, us_per_step, 0, 0)


PARENT = Vertex(
    parents=(),
    height=3,
    training_round=4,
    decided_block=BlockId(ZERO_ID),
    contributors=(contributor(ALICE, 10_000), contributor(BOB, 700_000, weight=100)),
    rule="mean",
    f_agg=0,
    delta_root=ZERO_ROOT,
    model_root=ZERO_ROOT,
    outer_state_root=ZERO_ROOT,
    ledger_root=ZERO_ID,
    validator_set_root=ValidatorSetRoot(ZERO_ID),
    tokens_total=10_000,
)


def planned(
    parent: Vertex,
    authors: list[NodeId],
    config: RoundsConfig = CONFIG,
    newest_round: int = 4,
    members: int = 0,
) -> Plan:
    """The plan of these contributors, who all vote; `members` is of how many that do."""
    others = [NodeId(bytes([100 + place]) * 32) for place in range(members - len(authors))]
    committee = Committee(tuple(Validator(name, 1) for name in sorted([*authors, *others])))
    return make_plan(parent, authors, config, TOKENS_PER_STEP, newest_round, committee)


def rules_of(
    rule: str, f_agg_among: Callable[[int], int] = lambda _contributors: 0, train_on: bool = False
) -> RoundRules:
    return RoundRules(
        rounds=CONFIG,
        tokens_per_step=TOKENS_PER_STEP,
        rule=rule,
        f_agg_among=f_agg_among,
        codec="int8",
        codec_sizes={"int8": 10},
        check_update=lambda _blob, _codec: None,
        compare=nothing_alike,
        measure=nothing_measured,
        train_on=train_on,
    )


def steps_for(*speeds_us: int, config: RoundsConfig = CONFIG) -> list[int]:
    """What is planned for authors who reported these speeds."""
    authors = [NodeId(bytes([place + 1]) * 32) for place in range(len(speeds_us))]
    known = tuple(contributor(a, us) for a, us in zip(authors, speeds_us, strict=True))
    parent = replace(PARENT, contributors=known)
    plan = planned(parent, authors, config)
    return [share.steps_max for share in plan.shares]


def test_steps_follow_certified_speed_so_that_all_finish_at_one_time() -> None:
    plan = planned(PARENT, [CAROL, BOB, ALICE])
    steps = {share.author: share.steps_max for share in plan.shares}
    # Alice takes all 20 steps in 0.2 s, Bob one in 0.7 s; Carol is new, and stops when Alice does.
    assert steps == {ALICE: 20, BOB: 1, CAROL: 20}
    assert plan.train_us == 200_000
    assert [share.author for share in plan.shares] == sorted(steps)
    assert plan.round == 5
    # the fast ones need 4 s of the 7 that the window gives: in those the slow one fits ten steps
    assert steps_for(200_000, 200_000, 400_000, 200_000) == [20, 20, 10, 20]


def test_hosts_that_are_alike_take_every_step_round_after_round() -> None:
    few = RoundsConfig(inner_steps_max=4, window_ms=20_000)
    authors = [NodeId(bytes([place + 1]) * 32) for place in range(5)]
    # the last one is really slower
    told_us = (2_000_000, 2_011_000, 2_020_000, 2_026_000, 2_100_000)
    speeds_us = dict(zip(authors, told_us, strict=True))
    plan = planned(replace(PARENT, contributors=()), authors, few)
    for _ in range(5):
        known = tuple(
            contributor(author, reported_us_per_step(us_per_step, plan.train_us, 4))
            for author, us_per_step in speeds_us.items()
        )
        plan = planned(replace(PARENT, contributors=known), authors, few)
    assert [share.steps_max for share in plan.shares] == [4, 4, 4, 4, 3]
    assert plan.train_us == 4 * 2_011_000  # as long as the second fastest needs


def test_while_no_speed_is_known_everybody_starts_with_half() -> None:
    genesis = replace(PARENT, contributors=())
    plan = planned(genesis, [ALICE, BOB], CONFIG, newest_round=0)
    assert [share.steps_max for share in plan.shares] == [10, 10]
    assert plan.train_us == 7_000_000


def test_who_trains_on_takes_as_many_steps_ahead_as_the_next_round_may_have() -> None:
    """The first round is half as long, and updates travel for as long as after any other."""
    on = rules_of("mean", train_on=True)
    founding = planned(replace(PARENT, contributors=()), [ALICE, BOB], CONFIG, newest_round=0)
    assert on.ahead_max(founding, 10) == CONFIG.inner_steps_max - 1
    assert on.ahead_max(planned(PARENT, [ALICE, BOB], CONFIG), 10) == 9
    assert on.ahead_max(planned(PARENT, [ALICE, BOB], CONFIG), 0) == 0
    assert rules_of("mean").ahead_max(founding, 10) == 0


def test_where_all_train_on_members_alone_fetch_updates_and_a_link_serves_so_many() -> None:
    committee = Committee((Validator(ALICE, 1), Validator(BOB, 1)))
    assert rules_of("mean").mergers(committee, {CAROL}) == {ALICE, BOB, CAROL}
    assert rules_of("mean", train_on=True).mergers(committee, {CAROL}) == {ALICE, BOB}


def test_the_window_bounds_what_the_fastest_are_given_too() -> None:
    assert steps_for(500_000, 700_000) == [14, 10]


def test_a_third_that_claims_to_be_fast_cannot_take_the_others_steps_away() -> None:
    honest = steps_for(200_000, 200_000, 210_000, 220_000)
    assert steps_for(1, 200_000, 210_000, 220_000)[1:] == honest[1:]
    assert steps_for(1, 1, *[200_000] * 5) == [20] * 7
    assert steps_for(1, 1, 1, *[200_000] * 4)[3:] == [1] * 4  # three of seven are too many liars


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_one_liar_of_four_cannot_cut_the_training_of_any_set_that_it_is_in(size: int) -> None:
    claims_us = [1, *[200_000] * (size - 1)]
    authors = [NodeId(bytes([place + 1]) * 32) for place in range(size)]
    known = tuple(contributor(a, us) for a, us in zip(authors, claims_us, strict=True))
    plan = planned(replace(PARENT, contributors=known), authors, members=4)
    assert plan.train_us >= 20 * 200_000


def test_speeds_are_believed_by_the_stake_behind_them() -> None:
    names = [NodeId(bytes([place + 1]) * 32) for place in range(7)]
    liars = {name: 1 for name in names[:4]}  # four of ten: a third of the stake in four names
    committee = Committee(
        tuple(Validator(name, liars.get(name, 4 if name == names[4] else 3)) for name in names)
    )
    assert committee.weight(set(liars)) < committee.blocking
    known = tuple(contributor(n, 1 if n in liars else 200_000) for n in names)
    parent = replace(PARENT, contributors=known)
    plan = make_plan(parent, names, CONFIG, TOKENS_PER_STEP, 4, committee)
    assert plan.train_us == 20 * 200_000


def test_planned_weights_at_most_double_and_stay_under_the_genesis_cap() -> None:
    plan = planned(PARENT, [ALICE, BOB])
    alice, bob = plan.share_of(ALICE), plan.share_of(BOB)
    assert alice is not None
    assert bob is not None
    assert alice.weight_max == 20 * TOKENS_PER_STEP
    assert bob.weight_max == 256  # 2 x 100 is under one step's tokens: the least that counts


def test_an_aborted_round_changes_the_number_and_nothing_else() -> None:
    plan = planned(PARENT, [ALICE])
    again = planned(PARENT, [ALICE], CONFIG, newest_round=5)
    assert again == replace(plan, round=6)


def test_a_set_is_merged_by_the_rule_and_the_number_of_liars_that_the_plan_leads_to() -> None:
    """Else whoever leads could have a mean of what the others would trim."""
    plan = planned(PARENT, [ALICE, BOB, CAROL])
    rules = rules_of("trimmed_mean", f_agg_among=lambda contributors: contributors // 3)
    for rule, f_agg, is_planned in (
        ("trimmed_mean", 1, True),
        ("trimmed_mean", 0, False),
        ("trimmed_mean", 2, False),
        ("mean", 1, False),
    ):
        decided = SetPayload(plan.round, (), (), rule, f_agg, (), (), ())
        assert (rules.unplanned(plan, decided) is None) is is_planned


def test_a_set_gives_an_update_its_planned_weight_or_none() -> None:
    plan = planned(PARENT, [ALICE, BOB])
    rules = rules_of("mean")
    offers = tuple(
        OfferBody(*(4 + 1, author, plan.base, BlobRoot(author), 10, "int8", 1, 256), *(1, 0, 0, ()))
        for author in (ALICE, BOB)
    )
    for weights, is_planned in (
        ((256, 256), True),
        ((0, 256), True),
        ((256, 0), True),
        ((0, 0), False),
        ((1, 256), False),
        ((257, 256), False),
    ):
        decided = SetPayload(plan.round, offers, weights, "mean", 0, (), (), ())
        assert (rules.unplanned(plan, decided) is None) is is_planned


def test_whose_update_counted_nothing_has_the_weight_of_who_made_none() -> None:
    """It may be the origin of the copy: a leader that lies must not cost it more than one round."""
    voided = replace(PARENT, contributors=(contributor(ALICE, 10_000, weight=0),))
    alice, bob = planned(voided, [ALICE, BOB]).shares
    assert alice.weight_max == bob.weight_max == 10 * TOKENS_PER_STEP
    # Its speed is told all the same.
    (known,) = planned(PARENT, [ALICE]).shares
    assert alice.steps_max == known.steps_max


def test_an_offer_commits_to_as_many_boundaries_as_its_steps_have() -> None:
    plan = replace(planned(PARENT, [ALICE]), segment_steps=5)
    for steps, wanted in ((1, 2), (5, 2), (6, 3), (20, 5)):
        for roots in range(7):
            offer = OfferBody(
                *(plan.round, ALICE, plan.base, BlobRoot(bytes(32)), 10, "int8", steps, 1),
                *(1, 0, 0, (Digest(bytes(32)),) * roots),
            )
            if roots == wanted:
                plan.check(offer, {"int8": 10}.get)
                continue
            with pytest.raises(PeerFault, match=f"bad_boundaries: {roots} in {steps} steps"):
                plan.check(offer, {"int8": 10}.get)
