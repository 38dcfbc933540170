"""What a node decides from what it measured: each choice, its amount and its reason."""

from collections.abc import Set
from dataclasses import replace
from typing import Any

import pytest

from daa_dag.ids import NodeId
from daa_node.autonomy.adapt import (
    LESSONS_LOOKED_AT,
    LESSONS_MAX,
    RAISE_AFTER_ROUNDS,
    TRAIN_SHARE_STEP,
    Lesson,
    Lessons,
    adapt,
    reflect,
)
from daa_node.autonomy.monitor import Ewma, Reach, Snapshot
from daa_node.autonomy.policy import PATIENCE_S, TRAIN_SHARE, TRAIN_SHARE_USUAL, Policy
from daa_node.autonomy.reason import (
    NEVER_TRAINS,
    Action,
    Gathering,
    decide,
    round_stalled,
    stop_waiting,
    who_is_expected,
    without_the_low,
)
from daa_node.rounds.synchronous import Happened

READY = Snapshot(
    round=7,
    is_contributor=True,
    is_written_to=True,
    draining=False,
    quarantine=None,
    job_ended=None,
    rounds_behind=0,
    reach=Reach(weight=4, quorum=3, total=4),
    heard_weight=4,
    trainer_ready=True,
    state_held=True,
    steps_max=20,
    codec="int8",
    window_s=10.0,
    train_s=7.0,
    round_age_s=0.0,
    update_bytes_by_codec={"int8": 1_000_000, "int4": 520_000},
    us_per_step=10_000.0,
    upload_bytes_per_s=None,
    receivers=3,
)
ALICE, BOB, CAROL = NodeId(b"a" * 32), NodeId(b"b" * 32), NodeId(b"c" * 32)


def test_who_is_not_written_to_follows_what_is_certified_and_begins_no_round() -> None:
    onlooker = replace(READY, is_written_to=False, is_contributor=False)
    assert decide(onlooker, Policy()).action is Action.WAIT
    assert decide(replace(onlooker, rounds_behind=1), Policy()).action is Action.CATCH_UP
    assert decide(replace(onlooker, job_ended="done"), Policy()).action is Action.FINISH


def test_a_ready_contributor_trains_the_plans_steps_with_the_plans_codec() -> None:
    behaviour = decide(READY, Policy())
    assert (behaviour.action, behaviour.steps, behaviour.codec) == (Action.TRAIN, 20, "int8")
    assert all(decision.reason for decision in behaviour.decisions)


def test_who_comes_late_and_has_trained_on_meanwhile_lacks_no_step() -> None:
    """At 0.3 s a step 20 of them take 6 s, and all stop 7 s after a round that is 5 s old."""
    late = replace(READY, us_per_step=300_000.0, round_age_s=5.0)
    assert decide(late, Policy()).steps == 3
    ahead = decide(replace(late, ahead_s=6.0), Policy())
    assert (ahead.action, ahead.steps, ahead.stop_after_s) == (Action.TRAIN, 20, 1.0)
    over = replace(late, round_age_s=8.0)
    assert decide(over, Policy()).action is Action.SERVE
    ahead = decide(replace(over, ahead_s=5.0), Policy())
    assert (ahead.action, ahead.steps, ahead.stop_after_s) == (Action.TRAIN, 10, 0.0)
    hours = decide(replace(late, ahead_s=3600.0), Policy())  # it took a round's steps, no more
    assert hours.steps == 20


def test_a_round_that_a_reachable_quorum_does_not_end_is_told_once_and_in_one_way() -> None:
    assert round_stalled(READY, 30.0) is None
    told = round_stalled(READY, 31.0)
    assert told is not None
    assert told.startswith("round 7 has been open for more than 30 s: a quorum is reachable, but")
    assert round_stalled(READY, 600.0) == told
    assert round_stalled(replace(READY, window_s=60.0), 180.0) is None


def test_a_paused_node_votes_and_trains_nothing_and_says_why() -> None:
    behaviour = decide(replace(READY, paused=True), Policy())
    assert (behaviour.action, behaviour.steps) == (Action.SERVE, 0)
    assert behaviour.decisions[0].reason.startswith("paused by the operator")
    assert decide(replace(READY, paused=True, rounds_behind=2), Policy()).action is Action.CATCH_UP


def test_what_matters_most_is_decided_first() -> None:
    worst = replace(
        READY, draining=True, job_ended="done", rounds_behind=3, reach=Reach(2, 3, 4),
        heard_weight=2, quarantine="guard lost", data_spent=True, trainer_ready=False,
        paused=True,
    )  # fmt: skip
    order: list[tuple[Action, dict[str, Any]]] = [
        (Action.DRAIN, {"draining": False}),
        (Action.FINISH, {"job_ended": None}),
        (Action.WAIT, {"data_spent": False}),
        (Action.CATCH_UP, {"rounds_behind": 0, "data_spent": True}),
        (Action.WAIT, {"reach": Reach(4, 3, 4)}),
        (Action.WAIT, {"heard_weight": 3}),
        (Action.SERVE, {"quarantine": None}),
        (Action.SERVE, {"paused": False}),
        (Action.SERVE, {"data_spent": False}),
        (Action.TRAIN, {}),
    ]
    for action, mended in order:
        assert decide(worst, Policy()).action is action
        worst = replace(worst, **mended)


def test_fewer_peers_than_a_quorum_wait_and_say_how_many() -> None:
    behaviour = decide(replace(READY, reach=Reach(2, 3, 4)), Policy())
    assert behaviour.action is Action.WAIT
    assert behaviour.decisions[0].reason.startswith("2 of 4 reachable, waiting")


def test_a_slow_node_does_fewer_steps_than_the_plan_allows() -> None:
    slow = decide(replace(READY, us_per_step=1_000_000.0), Policy(train_share=0.7))
    assert slow.steps == 7  # 7 tenths of 10 s at a step a second
    assert decide(replace(READY, us_per_step=1e9), Policy()).steps == 1


def test_who_comes_late_takes_the_steps_that_still_fit_and_says_so() -> None:
    hundred = replace(READY, steps_max=100, window_s=200.0, train_s=102.0, us_per_step=1e6)
    behaviour = decide(replace(hundred, round_age_s=61.0), Policy())
    assert (behaviour.action, behaviour.steps) == (Action.TRAIN, 40)
    assert behaviour.stop_after_s == 40.0  # a second before the others: nobody waits for it
    assert behaviour.decisions[1].reason == "round is 61 s old, 40 of 100 steps fit"
    unmeasured = decide(replace(hundred, round_age_s=61.0, us_per_step=None), Policy())
    assert (unmeasured.steps, unmeasured.stop_after_s) == (100, 40.0)
    assert "round is 61 s old" in unmeasured.decisions[1].reason
    as_good_as_new = decide(replace(hundred, round_age_s=1.0), Policy())
    assert as_good_as_new == decide(hundred, Policy())


def test_a_newcomer_leaves_room_for_being_later_than_it_hears() -> None:
    """Nobody waits for who has never contributed, and it does not know how long its steps take."""
    newcomer = replace(READY, us_per_step=None, train_s=16.0, window_s=40.0, steps_max=4)
    behaviour = decide(replace(newcomer, round_age_s=0.5), Policy())
    assert (behaviour.steps, behaviour.stop_after_s) == (4, 14.5)
    assert behaviour.decisions[1].reason == (
        "the plan's 4 within 14.5 s; speed not measured yet"
    )  # no step of 4 s begins after the third
    assert decide(newcomer, Policy()).stop_after_s == 15.0  # the age may be on its way to us
    founder = decide(replace(newcomer, round=1, round_age_s=0.5), Policy())
    assert founder.stop_after_s == 16.0  # founders have no set to be late for, and are awaited


def test_a_newcomer_has_half_of_a_round_however_quick_rounds_are() -> None:
    """Else it would serve for ever, or go by its first step alone, which is a slow one."""
    hasty = replace(READY, us_per_step=None, train_s=0.7, window_s=1.0, round_age_s=0.9)
    behaviour = decide(hasty, Policy())
    assert (behaviour.action, behaviour.steps, behaviour.stop_after_s) == (Action.TRAIN, 20, 0.35)
    assert "within 0.3 s" in behaviour.decisions[1].reason
    assert decide(replace(hasty, round_age_s=1.1), Policy()).action is Action.SERVE


def test_who_comes_too_late_for_a_step_serves_and_says_so() -> None:
    slow = replace(READY, train_s=60.0, window_s=100.0, us_per_step=30e6, steps_max=2)
    assert decide(replace(slow, round_age_s=29.0), Policy()).steps == 1
    late = decide(replace(slow, round_age_s=29.5), Policy())
    assert (late.action, late.steps) == (Action.SERVE, 0)
    assert late.decisions[0].reason == "round is 30 s old, no step fits before all stop at 60.0 s"
    unmeasured = replace(slow, us_per_step=None)
    assert decide(replace(unmeasured, round_age_s=58.9), Policy()).action is Action.TRAIN
    assert decide(replace(unmeasured, round_age_s=59.5), Policy()).action is Action.SERVE
    # A liar's year cannot get here (see stands); if it could, it would cost this round's steps.
    assert decide(replace(slow, round_age_s=3e7), Policy()).action is Action.SERVE


def test_a_thin_link_takes_the_smaller_codec_and_trains_less() -> None:
    thin = replace(READY, upload_bytes_per_s=500_000.0, us_per_step=1_000_000.0)
    behaviour = decide(thin, Policy(upload_share=0.8))
    assert behaviour.codec == "int4"
    assert behaviour.steps == 6  # 3 x 520 kB at 400 kB/s leave 6.1 s of the window


def test_a_collection_that_the_rule_cannot_merge_stays_open_until_the_window_ends() -> None:
    few = Gathering(
        elapsed_s=8.5,
        waiting_s=5.0,
        window_s=10.0,
        expected=frozenset({ALICE, BOB, CAROL}),
        eligible=frozenset({ALICE, BOB}),
        reachable=frozenset({ALICE, BOB}),
        recent=frozenset(),
    )
    policy = Policy(patience_s=3.0)
    assert stop_waiting(few, policy) is not None
    needy = replace(few, are_enough=False)
    assert stop_waiting(needy, policy) is None
    assert stop_waiting(replace(needy, elapsed_s=10.0), policy) is not None
    assert stop_waiting(replace(few, eligible=few.expected), policy) is not None


def test_a_collection_closes_for_each_of_its_reasons() -> None:
    gathering = Gathering(
        elapsed_s=8.5,
        waiting_s=1.5,
        window_s=10.0,
        expected=frozenset({ALICE, BOB, CAROL}),
        eligible=frozenset({ALICE, BOB}),
        reachable=frozenset({ALICE, BOB, CAROL}),
        recent=frozenset({ALICE, BOB, CAROL}),
    )
    policy = Policy(patience_s=3.0)
    assert stop_waiting(gathering, policy) is None
    everyone = replace(gathering, eligible=gathering.expected)
    gone = replace(gathering, reachable=frozenset({ALICE, BOB}))
    idle = replace(gathering, recent=frozenset({ALICE, BOB}))
    for closed, word in [
        (everyone, "all 3"),
        (gone, "nobody else"),
        (idle, "nobody else"),
        (replace(gathering, waiting_s=3.0), "patience"),
        (replace(gathering, elapsed_s=10.0, waiting_s=None), "window"),
    ]:
        decision = stop_waiting(closed, policy)
        assert decision is not None
        assert word in decision.reason


def test_who_trains_on_waits_for_what_was_offered_as_long_as_it_costs_nothing() -> None:
    """Carol has never contributed, and her update is on its way."""
    gathering = Gathering(
        elapsed_s=10.0,
        waiting_s=5.0,
        window_s=100.0,
        expected=frozenset({ALICE, BOB, CAROL}),
        eligible=frozenset({ALICE, BOB}),
        reachable=frozenset({ALICE, BOB, CAROL}),
        recent=frozenset({ALICE, BOB}),
        offered=frozenset({ALICE, BOB, CAROL}),
        idle_after_s=7.0,
    )
    assert stop_waiting(gathering, Policy()) is None
    for other in (
        replace(gathering, waiting_s=7.5),
        replace(gathering, offered=frozenset({ALICE, BOB})),
        replace(gathering, reachable=frozenset({ALICE, BOB})),
        replace(gathering, idle_after_s=0.0),
    ):
        decision = stop_waiting(other, Policy())
        assert decision is not None
        assert decision.reason == "2 of 3 contributions; nobody else is expected in time"


def test_nobody_is_waited_for_longer_than_it_is_worth() -> None:
    """Two who are there wait for a third: half of the 7 s that a round's steps took, no longer."""
    gathering = Gathering(
        elapsed_s=10.4,
        waiting_s=3.4,
        window_s=100.0,
        expected=frozenset({ALICE, BOB, CAROL}),
        eligible=frozenset({ALICE, BOB}),
        reachable=frozenset({ALICE, BOB, CAROL}),
        recent=frozenset({ALICE, BOB, CAROL}),
    )
    assert stop_waiting(gathering, Policy()) is None
    decision = stop_waiting(replace(gathering, elapsed_s=10.6, waiting_s=3.6), Policy())
    assert decision is not None
    assert decision.reason == "2 of 3 contributions after 3.5 s of patience"
    alone = replace(gathering, eligible=frozenset({ALICE}))  # two to come are worth more waiting
    assert stop_waiting(replace(alone, elapsed_s=17.0, waiting_s=10.0), Policy()) is None


@pytest.mark.parametrize("liars", [1, 2, 3, 10])
def test_members_that_let_all_wait_cost_half_of_what_the_steps_took_at_most(liars: int) -> None:
    """As many as agreement survives, who contribute now and then and say nothing else."""
    members = frozenset(NodeId(bytes([number]) * 32) for number in range(3 * liars + 1))
    silent = frozenset(sorted(members)[:liars])
    steps_s = 60.0
    gathering = Gathering(
        elapsed_s=steps_s,
        waiting_s=0.0,
        window_s=1000.0,
        expected=members,
        eligible=members - silent,
        reachable=members,
        recent=members,
    )
    waited_s = next(
        waited_s
        for waited_s in range(1000)
        if stop_waiting(
            replace(gathering, elapsed_s=steps_s + waited_s, waiting_s=float(waited_s)), Policy()
        )
    )
    assert waited_s <= steps_s * liars / (2 * liars + 1) + 1
    assert waited_s <= steps_s / 2


def test_lessons_of_stragglers_do_not_close_a_round_that_most_have_yet_to_reach() -> None:
    gathering = Gathering(
        elapsed_s=15.0,
        waiting_s=5.0,
        window_s=100.0,
        expected=frozenset({ALICE, BOB, CAROL}),
        eligible=frozenset({ALICE}),
        reachable=frozenset({ALICE, BOB, CAROL}),
        recent=frozenset({ALICE, BOB, CAROL}),
    )
    learnt = Policy(patience_s=2.0)
    assert stop_waiting(gathering, learnt) is None
    assert stop_waiting(replace(gathering, eligible=frozenset({ALICE, BOB})), learnt) is not None


def test_a_last_step_that_ends_a_little_late_is_waited_for() -> None:
    """Of ten minutes five seconds, whatever the last rounds have taught."""
    members = frozenset(NodeId(bytes([number]) * 32) for number in range(64))
    late = frozenset({min(members)})
    gathering = Gathering(
        elapsed_s=604.0,
        waiting_s=4.0,
        window_s=1000.0,
        expected=members,
        eligible=members - late,
        reachable=members,
        recent=members,
    )
    assert stop_waiting(gathering, Policy(patience_s=1.0)) is None
    later = replace(gathering, elapsed_s=605.0, waiting_s=5.0)
    assert stop_waiting(later, Policy(patience_s=1.0)) is not None


def test_training_stops_when_the_plan_says_so_whatever_the_window_allows() -> None:
    assert decide(replace(READY, train_s=2.5), Policy()).stop_after_s == 2.5
    slower = decide(replace(READY, train_s=2.5, us_per_step=500_000.0), Policy())
    assert slower.steps == 5


def test_who_is_gone_holds_up_a_round_for_less_time_than_who_is_merely_slow() -> None:
    gathering = Gathering(
        elapsed_s=0.8,
        waiting_s=0.3,
        window_s=10.0,
        expected=frozenset({ALICE, BOB, CAROL}),
        eligible=frozenset({ALICE, BOB}),
        reachable=frozenset({ALICE, BOB, CAROL}),
        recent=frozenset({ALICE, BOB}),
    )
    assert stop_waiting(gathering, Policy()) is None
    assert stop_waiting(replace(gathering, reachable=frozenset({ALICE, BOB})), Policy()) is not None


def lesson(round_number: int, **facts: object) -> Lesson:
    plain = Lesson(round_number, 1.0, 1.0, 0.5, 0, True)
    return replace(plain, **facts)  # type: ignore[arg-type]


def test_patience_falls_to_the_spread_of_arrivals_and_rises_when_somebody_was_left_out() -> None:
    quick = [lesson(r, spread_s=0.8) for r in range(LESSONS_LOOKED_AT)]
    calmer, reasons = adapt(Policy(patience_s=10.0), quick)
    assert calmer.patience_s == 3 * 0.8
    assert reasons
    longer, _ = adapt(calmer, [*quick, lesson(9, left_out=1)])
    assert longer.patience_s > calmer.patience_s


def test_policies_stay_inside_their_bounds_whatever_happens() -> None:
    policy = Policy()
    for round_number in range(100):
        policy, _ = adapt(policy, [lesson(round_number, left_out=2, own_in_time=False)])
    assert policy.patience_s == PATIENCE_S.high
    assert policy.train_share == TRAIN_SHARE.low


def test_who_was_slow_for_a_while_trains_again_as_long_as_before_once_it_is_in_time() -> None:
    policy, told = Policy(), list[str]()
    for round_number in range(3):
        policy, _ = adapt(policy, [lesson(round_number, own_in_time=False)])
    assert policy.train_share == pytest.approx(TRAIN_SHARE_USUAL - 3 * TRAIN_SHARE_STEP)
    shares = []
    for round_number in range(5 * RAISE_AFTER_ROUNDS):
        policy, reasons = adapt(policy, [lesson(round_number)])
        shares.append(policy.train_share)
        told += [reason for reason in reasons if "share" in reason]
    assert shares == sorted(shares)
    assert shares[RAISE_AFTER_ROUNDS - 2] < shares[RAISE_AFTER_ROUNDS - 1] < shares[-1]
    assert (len(told), policy.train_share) == (3, TRAIN_SHARE_USUAL)  # and never beyond


def test_training_takes_more_only_after_many_own_updates_in_a_row() -> None:
    late, none = lesson(0, own_in_time=False), lesson(0, own_in_time=None)
    policy, _ = adapt(Policy(), [late])
    for _ in range(5):
        for each in (*[lesson(0), none] * (RAISE_AFTER_ROUNDS - 1), late):
            before = policy.train_share
            policy, _ = adapt(policy, [each])
            assert policy.train_share <= before


def test_a_round_whose_set_was_never_seen_says_nothing_of_our_own_pace() -> None:
    behaviour = decide(READY, Policy())
    for offered, included, in_time in (
        (True, True, True),
        (True, False, False),
        (True, None, None),
        (False, False, None),
    ):
        happened = Happened(1, offered=offered, own_included=included)
        assert reflect(behaviour, None, happened).own_in_time is in_time


def test_lessons_are_bounded_and_the_mean_follows_the_newest() -> None:
    lessons = Lessons()
    for round_number in range(LESSONS_MAX + 5):
        lessons.add(lesson(round_number))
    assert len(lessons.newest(10_000)) == LESSONS_MAX
    mean = Ewma()
    for sample in (10.0, 20.0):
        mean.add(sample)
    assert mean.value == 13.0


def test_nobody_waits_for_who_stands_low_unless_half_do() -> None:
    """Then it may be we who are cut off."""
    everybody = frozenset({ALICE, BOB, CAROL})
    gathering = Gathering(
        elapsed_s=8.5,
        waiting_s=1.5,
        window_s=10.0,
        expected=everybody,
        eligible=frozenset({ALICE, BOB}),
        reachable=everybody,
        recent=everybody,
    )
    policy = Policy(patience_s=3.0)

    def closes(low: set[NodeId]) -> bool:
        recent = without_the_low(gathering.recent, low, everybody)
        return stop_waiting(replace(gathering, recent=recent), policy) is not None

    assert not closes(set())
    assert closes({CAROL})
    assert not closes({BOB})
    assert not closes({BOB, CAROL})


def test_who_never_trains_serves_and_says_why() -> None:
    behaviour = decide(replace(READY, trains=False), Policy())
    assert behaviour.action is Action.SERVE
    assert behaviour.decisions[0].reason == NEVER_TRAINS
    assert decide(replace(READY, trains=False, rounds_behind=1), Policy()).action is Action.CATCH_UP


def test_who_never_trains_is_not_waited_for_unless_too_few_are_left() -> None:
    everybody, nobody = {ALICE, BOB, CAROL}, set[NodeId]()

    def expected(never: set[NodeId], eligible: set[NodeId], needed: int) -> Set[NodeId]:
        return who_is_expected(everybody, never, eligible, lambda nodes: len(nodes) >= needed)

    assert expected({CAROL}, nobody, 1) == {ALICE, BOB}
    assert expected({CAROL, NodeId(b"s" * 32)}, nobody, 1) == {ALICE, BOB}
    assert expected({CAROL}, {CAROL, NodeId(b"s" * 32)}, 1) == everybody  # its word is broken
    assert expected({CAROL}, nobody, 3) == everybody  # or two would abort each round at once
    assert expected(everybody, nobody, 1) == everybody
    assert expected(nobody, nobody, 4) == everybody  # they are never enough
