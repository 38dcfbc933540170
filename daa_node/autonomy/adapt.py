"""Reflect and adapt: what happened becomes a Lesson, Lessons a new Policy, in hard bounds. Pure.

Patience follows the spread of arrivals, so that nobody tunes a timeout by hand: it falls while
peers are quick and rises as soon as somebody was left out. The share of the window that training
takes falls with each own update that came too late, and rises again, slowly, while all are in time.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from daa_node.autonomy.policy import PATIENCE_S, TRAIN_SHARE, TRAIN_SHARE_USUAL, Policy
from daa_node.autonomy.reason import Action, Behaviour
from daa_node.rounds.synchronous import Happened

LESSONS_MAX = 64  # adapt looks at the newest few; the rest is for people
LESSONS_LOOKED_AT = 8
LESSONS_NEEDED = 3  # fewer say more about start-up than about peers
PATIENCE_OVER_SPREAD = 3.0  # wait three times what the slowest of the last rounds needed
PATIENCE_GROWTH = 1.5  # after somebody was left out
TRAIN_SHARE_STEP = 0.05
# Where more is too much, one round of 17 is lost to trying: 6 %, for a step of 7 % at least.
RAISE_AFTER_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class Lesson:
    """One round's forecast against what came of it. Times in seconds."""

    round: int
    trained_s_predicted: float | None
    trained_s: float | None
    spread_s: float | None  # by which the last contribution that counted came after most
    left_out: int  # contributions that were offered and came too late
    own_in_time: bool | None  # None: we offered nothing, or saw no set


class Lessons:
    """The newest LESSONS_MAX lessons, oldest first."""

    def __init__(self) -> None:
        self._kept: deque[Lesson] = deque(maxlen=LESSONS_MAX)

    def add(self, lesson: Lesson) -> None:
        self._kept.append(lesson)

    def newest(self, count: int) -> list[Lesson]:
        return list(self._kept)[-count:]


def reflect(behaviour: Behaviour, us_per_step: float | None, happened: Happened) -> Lesson:
    """The lesson of one round; `us_per_step` is the speed the decision counted on."""
    trained = behaviour.action is Action.TRAIN
    predicted_s = behaviour.steps * us_per_step / 1e6 if trained and us_per_step else None
    return Lesson(
        round=happened.round,
        trained_s_predicted=predicted_s,
        trained_s=happened.trained_s,
        spread_s=happened.spread_s,
        left_out=happened.left_out,
        own_in_time=happened.own_included if trained and happened.offered else None,
    )


def adapt(policy: Policy, lessons: Sequence[Lesson]) -> tuple[Policy, list[str]]:
    """The policy for the next round and, a line each, what changed and why."""
    if not lessons:
        return policy, []
    reasons: list[str] = []
    newest = lessons[-1]
    patience_s = policy.patience_s
    spreads = [x.spread_s for x in lessons[-LESSONS_LOOKED_AT:] if x.spread_s is not None]
    if newest.left_out > 0:
        patience_s = PATIENCE_S.clip(patience_s * PATIENCE_GROWTH)
        reasons.append(f"patience {patience_s:.1f} s: {newest.left_out} came too late")
    elif len(spreads) >= LESSONS_NEEDED:
        patience_s = PATIENCE_S.clip(max(1.0, PATIENCE_OVER_SPREAD * max(spreads)))
        if abs(patience_s - policy.patience_s) > 0.25 * policy.patience_s:
            reasons.append(f"patience {patience_s:.1f} s: peers took {max(spreads):.1f} s at most")
        else:
            patience_s = policy.patience_s  # not worth a change
    train_share, rounds_in_time = policy.train_share, policy.rounds_in_time
    if newest.own_in_time is False:
        train_share, rounds_in_time = _moved(train_share, -TRAIN_SHARE_STEP), 0
        reasons.append(f"train share {train_share:.2f}: our own update came too late")
    elif newest.own_in_time and train_share < TRAIN_SHARE_USUAL:
        rounds_in_time += 1
        if rounds_in_time == RAISE_AFTER_ROUNDS:
            train_share = min(TRAIN_SHARE_USUAL, _moved(train_share, TRAIN_SHARE_STEP))
            reasons.append(f"train share {train_share:.2f}: {rounds_in_time} of ours in time")
            rounds_in_time = 0
    changed = replace(
        policy, train_share=train_share, rounds_in_time=rounds_in_time, patience_s=patience_s
    )
    return changed, reasons


def _moved(train_share: float, step: float) -> float:
    """Rounded, so that as many steps up as down lead back to where it was."""
    return TRAIN_SHARE.clip(round(train_share + step, 2))
