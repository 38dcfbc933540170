"""How one contributor stands with one node: what that node has lately seen of it, as one number.

    observations --mean over an exponential window--> four components --weights--> score --> level

An observation is between 0 and 1, of one round and one measure. A component is the mean of all that
its measures saw, each worth less the older it is, beside a few neutral rounds: of whom nothing is
known, every component is neutral. Pure.

This is one node's own opinion, and floats. No score leads to `excluded`: only what all members have
found, or a ban by this node for faults that it can name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

ROUNDS_KEPT = 64  # observations of each measure: of the oldest counts a sixteenth, or less
NEUTRAL = 0.8  # an honest newcomer is normal at once, and has to earn priority
NEUTRAL_ROUNDS = 3.0  # a newcomer that misses its first round is normal still
PER_MILLE = 1000

# Two numbers for each step: a score at the border changes nothing back and forth.
PRIORITY_FROM, PRIORITY_BELOW = 0.9, 0.85
NORMAL_FROM, LOW_BELOW = 0.75, 0.7


class Component(StrEnum):
    COMPUTE = "compute"
    NETWORK = "network"
    QUALITY = "update_quality"
    UPTIME = "uptime"


WEIGHTS: Mapping[Component, float] = {
    Component.COMPUTE: 0.4,
    Component.NETWORK: 0.3,
    Component.QUALITY: 0.2,
    Component.UPTIME: 0.1,
}


class Measure(StrEnum):
    CONTRIBUTED = "contributed"  # steps of what a set holds of it, of those that it had time for
    CHECKED = "checked"  # segments that came out as it says, of those that we trained again
    ANSWERED = "answered"  # blobs and requests, and how soon; 0 in a round with a fault
    IN_TIME = "in_time"  # sets that hold its contribution, of those that it offered one for
    USEFUL = "useful"  # its update beside the others of the round
    PRESENT = "present"  # rounds in which it was within reach, since it first was


@dataclass(frozen=True, slots=True)
class Rule:
    """What a measure counts for."""

    component: Component
    half_life_rounds: float
    rounds_each: float  # what one observation weighs
    remedy: str  # what raises it


# A lot draws few, and this node few of these: one stands for the rounds in which nobody looked.
RULES: Mapping[Measure, Rule] = {
    Measure.CONTRIBUTED: Rule(
        Component.COMPUTE,
        8,
        1,
        "a contribution to every round, with the steps that it has time for",
    ),
    Measure.CHECKED: Rule(
        Component.COMPUTE,
        64,
        12,
        "training that comes out the same when it is done again, and shown",
    ),
    Measure.ANSWERED: Rule(
        Component.NETWORK,
        8,
        1,
        "answers within a second, and no faults (a quicker link, less load)",
    ),
    Measure.IN_TIME: Rule(
        Component.NETWORK, 8, 1, "offers that come before the others have closed the round"
    ),
    Measure.USEFUL: Rule(
        Component.QUALITY, 8, 1, "updates as large as the others', and pointing where theirs do"
    ),
    Measure.PRESENT: Rule(Component.UPTIME, 16, 1, "being within reach in every round"),
}


class Level(StrEnum):
    """How willingly this node deals with it, wherever it acts alone."""

    PRIORITY = "priority"
    NORMAL = "normal"
    LOW = "low"
    EXCLUDED = "excluded"


def turn_of(level: Level) -> int:
    """Whose turn comes first where one has to: the least."""
    return list(Level).index(level)


def is_last(level: Level) -> bool:
    """Whether all others come first, and nobody waits for it."""
    return level in (Level.LOW, Level.EXCLUDED)


class Observation(NamedTuple):
    round: int
    per_mille: int


History = Mapping[Measure, Sequence[Observation]]  # oldest first


@dataclass(frozen=True, slots=True)
class Part:
    """One component; None are `means` of what was never seen."""

    component: Component
    value: float
    means: Mapping[Measure, float | None]

    @property
    def lost(self) -> float:
        """What the score would gain if this were perfect."""
        return WEIGHTS[self.component] * (1 - self.value)

    @property
    def worst(self) -> Measure | None:
        """Which of its measures would raise it; None if more rounds like those seen would, most."""
        seen = [(mean, measure) for measure, mean in self.means.items() if mean is not None]
        if not seen:
            return None
        mean, measure = min(seen)
        # What the neutral rounds beside it cost, against what better ones could give.
        return None if mean - self.value >= 1 - mean else measure


@dataclass(frozen=True, slots=True)
class Assessment:
    """Of one contributor."""

    score: float
    parts: Sequence[Part]

    @property
    def weakest(self) -> Part:
        """The component that costs it most."""
        return max(self.parts, key=lambda part: part.lost)

    @property
    def remedy(self) -> str:
        """What would raise the score most."""
        worst = self.weakest.worst
        if worst is None:
            return f"more rounds to see it in: {self.weakest.component} is hardly known yet"
        return RULES[worst].remedy


def observation(round_number: int, value: float) -> Observation:
    return Observation(round_number, round(min(1.0, max(0.0, value)) * PER_MILLE))


def assessed(history: History, newest_round: int) -> Assessment:
    """As of that round; what is told of later ones counts as if it were of that one."""
    parts = [_part(component, history, newest_round) for component in Component]
    return Assessment(sum(WEIGHTS[part.component] * part.value for part in parts), parts)


def level_of(score: float, before: Level, excluded: bool) -> Level:
    if excluded:
        return Level.EXCLUDED
    if score >= (PRIORITY_BELOW if before is Level.PRIORITY else PRIORITY_FROM):
        return Level.PRIORITY
    if score < (NORMAL_FROM if before is Level.LOW else LOW_BELOW):
        return Level.LOW
    return Level.NORMAL


def as_told(assessment: Assessment, history: History) -> dict[str, Any]:
    """For people and programs: every component with its measures, and what they are made of."""
    return {
        "score": round(assessment.score, 3),
        "weakest": str(assessment.weakest.component),
        "would_raise": assessment.remedy,
        "components": {
            str(part.component): {
                "value": round(part.value, 3),
                "weight": WEIGHTS[part.component],
                "measures": {
                    str(measure): {
                        "mean": None if mean is None else round(mean, 3),
                        "history": [[o.round, o.per_mille / PER_MILLE] for o in history[measure]],
                    }
                    for measure, mean in part.means.items()
                },
            }
            for part in assessment.parts
        },
    }


def _part(component: Component, history: History, newest_round: int) -> Part:
    weight, total = NEUTRAL_ROUNDS, NEUTRAL_ROUNDS * NEUTRAL
    means: dict[Measure, float | None] = {}
    for measure, rule in RULES.items():
        if rule.component is not component:
            continue
        its_weight = its_total = 0.0
        for seen_round, per_mille in history[measure]:
            age = max(0, newest_round - seen_round)
            worth = rule.rounds_each * 0.5 ** (age / rule.half_life_rounds)
            its_weight += worth
            its_total += worth * per_mille / PER_MILLE
        means[measure] = its_total / its_weight if its_weight else None
        weight, total = weight + its_weight, total + its_total
    return Part(component, total / weight, means)
