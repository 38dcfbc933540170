"""Timers: when they pass, how they double, and that they can be parked."""

from daa_consensus.bft.pacemaker import Pacemaker, Timing

DELTA = 100


def test_timers_pass_after_one_two_and_three_deltas() -> None:
    pacemaker = Pacemaker(Timing(DELTA))
    pacemaker.open(1_000)
    passed = {
        at: (
            pacemaker.empty_block_due(at),
            pacemaker.leader_timer_passed(at),
            pacemaker.advance_timer_passed(at),
        )
        for at in (1_099, 1_100, 1_199, 1_200, 1_299, 1_300)
    }
    assert passed[1_099] == (False, False, False)
    assert passed[1_100] == passed[1_199] == (True, False, False)
    assert passed[1_200] == passed[1_299] == (True, True, False)
    assert passed[1_300] == (True, True, True)


def test_patience_doubles_over_views_that_come_to_nothing_up_to_a_cap() -> None:
    pacemaker = Pacemaker(Timing(DELTA, doublings_max=3))
    lasted, empty_after = [], []
    for views in range(1, 7):
        pacemaker.enter_view()
        pacemaker.be_patient(views)
        pacemaker.open(0)
        moments = range(0, 5_000, DELTA)
        lasted.append(next(t for t in moments if pacemaker.advance_timer_passed(t)))
        empty_after.append(next(t for t in moments if pacemaker.empty_block_due(t)))
    assert lasted == [600, 1_200, 2_400, 2_400, 2_400, 2_400]
    assert empty_after == [100, 200, 400, 400, 400, 400]
    pacemaker.enter_view()
    pacemaker.be_patient(0)
    pacemaker.open(0)
    assert pacemaker.advance_timer_passed(300)


def test_parked_timers_have_no_deadline_and_start_afresh() -> None:
    pacemaker = Pacemaker(Timing(DELTA))
    assert pacemaker.deadline_ns(0) is None
    pacemaker.open(0)
    pacemaker.park()
    assert pacemaker.deadline_ns(50) is None
    assert not pacemaker.leader_timer_passed(10_000)
    pacemaker.open(10_000)
    assert not pacemaker.leader_timer_passed(10_199)


def test_opening_twice_changes_nothing() -> None:
    pacemaker = Pacemaker(Timing(DELTA))
    pacemaker.open(0)
    pacemaker.open(150)
    assert pacemaker.leader_timer_passed(200)


def resends(pacemaker: Pacemaker, news: int | None = None) -> list[int]:
    """In deltas; somebody is heard to whom our votes matter before the beat `news`."""
    taken = [at for at in range(0, 4_000, 10) if pacemaker.take_beat(at)]
    assert taken == list(range(DELTA, 4_000, DELTA))
    return [at // DELTA for at in taken if pacemaker.take_resend(at == news)]


def test_the_same_votes_are_sent_again_ever_more_seldom_and_every_eight_deltas_at_last() -> None:
    pacemaker = Pacemaker(Timing(DELTA))
    pacemaker.open(0)
    assert resends(pacemaker) == [1, 2, 4, 8, 16, 24, 32]


def test_pauses_between_resends_begin_anew_with_each_view_and_once_somebody_lacks_them() -> None:
    pacemaker = Pacemaker(Timing(DELTA))
    pacemaker.open(0)
    assert resends(pacemaker, news=1_900) == [1, 2, 4, 8, 16, 19, 20, 22, 26, 34]
    pacemaker.enter_view()
    pacemaker.open(0)
    assert resends(pacemaker)[:4] == [1, 2, 4, 8]


def test_the_deadline_is_always_ahead_and_never_passes_a_timer_by() -> None:
    pacemaker = Pacemaker(Timing(DELTA))
    pacemaker.open(7)
    now, moments = 7, []
    for _ in range(12):
        deadline = pacemaker.deadline_ns(now)
        assert deadline is not None
        assert deadline > now
        now = deadline
        moments.append(now)
        pacemaker.take_beat(now)
    assert {107, 207, 307} <= set(moments)
