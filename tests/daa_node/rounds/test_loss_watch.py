"""An alarm is raised by a step that spoils the model, and by no honest one."""

from daa_node.rounds.loss_watch import JUMP_FACTOR, JUMP_NATS, LossWatch


def test_a_jump_is_told_once_and_stays_until_the_loss_is_back() -> None:
    watch = LossWatch()
    assert [watch.look(loss) for loss in (5.6, 2.4, 2.6, 2.3)] == [False] * 4
    assert watch.alarm is None
    assert [watch.look(loss) for loss in (33.0, 40.0)] == [True, False]
    assert "held-out loss 40.000 nats, it was 2.300" in str(watch.alarm)
    assert not watch.look(2.4)
    assert watch.alarm is None
    assert watch.look(9.0)


def test_the_limit_is_a_factor_and_a_floor() -> None:
    for lowest in (0.001, 0.23, 2.3):
        limit = JUMP_FACTOR * lowest + JUMP_NATS
        for loss, jumped in ((limit - 1e-6, False), (limit + 1e-6, True)):
            watch = LossWatch()
            watch.look(lowest)
            assert watch.look(loss) is jumped


def test_what_is_no_number_is_a_jump() -> None:
    for loss in (float("nan"), float("inf")):
        watch = LossWatch()
        assert watch.look(loss)
        assert watch.alarm is not None


def test_who_comes_back_to_a_spoilt_model_is_warned() -> None:
    watch = LossWatch()
    watch.look_back([2.5, None, 2.3, float("nan")])
    assert watch.alarm is None
    assert watch.look(33.0)
