"""Reflect: compare what a round's decisions predicted with what happened. Pure."""

from daa_node.autonomy.lessons import Lesson
from daa_node.autonomy.reason import Action, Conduct
from daa_node.rounds.synchronous import Happened


def reflect(conduct: Conduct, us_per_step: float | None, happened: Happened) -> Lesson:
    """The lesson of one round; `us_per_step` is the speed the decision counted on."""
    trained = conduct.action is Action.TRAIN
    predicted_s = conduct.steps * us_per_step / 1e6 if trained and us_per_step else None
    return Lesson(
        round=happened.round,
        trained_s_predicted=predicted_s,
        trained_s=happened.trained_s,
        spread_s=happened.spread_s,
        left_out=happened.left_out,
        own_in_time=happened.own_included if trained and happened.offered else None,
    )
