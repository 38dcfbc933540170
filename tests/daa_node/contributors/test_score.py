"""How one contributor stands: from what was seen of it, by halves that are forgotten in time."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daa_node.contributors.score import (
    LOW_BELOW,
    NEUTRAL,
    NORMAL_FROM,
    PRIORITY_BELOW,
    PRIORITY_FROM,
    RULES,
    WEIGHTS,
    Component,
    Level,
    Measure,
    Observation,
    assessed,
    level_of,
    observation,
)

VALUES = st.floats(allow_nan=True, allow_infinity=True)


def history_of(**seen: Sequence[float]) -> Mapping[Measure, Sequence[Observation]]:
    """One observation a round, the newest in round 100."""
    return {
        measure: [observation(101 - len(values) + at, value) for at, value in enumerate(values)]
        for measure in Measure
        for values in [seen.get(str(measure), ())]
    }


def score_of(**seen: Sequence[float]) -> float:
    return assessed(history_of(**seen), 100).score


def value_of(component: Component, **seen: Sequence[float]) -> float:
    parts = assessed(history_of(**seen), 100).parts
    return next(part.value for part in parts if part.component is component)


def test_weights_are_those_of_the_score_and_make_one() -> None:
    assert sum(WEIGHTS.values()) == pytest.approx(1)
    assert [WEIGHTS[part] for part in Component] == [0.4, 0.3, 0.2, 0.1]
    assert {rule.component for rule in RULES.values()} == set(Component)


def test_of_whom_nothing_is_known_everything_is_neutral_and_its_level_normal() -> None:
    assessment = assessed(history_of(), 100)
    assert [part.value for part in assessment.parts] == pytest.approx([NEUTRAL] * 4)
    assert assessment.score == pytest.approx(NEUTRAL)
    assert level_of(assessment.score, Level.NORMAL, excluded=False) is Level.NORMAL
    assert "hardly known yet" in assessment.remedy


def test_who_has_done_all_that_it_could_is_told_to_go_on_and_nothing_else() -> None:
    young = assessed(history_of(**dict.fromkeys(map(str, Measure), [1.0] * 2)), 100)
    assert all(part.worst is None for part in young.parts)
    assert young.remedy.startswith("more rounds to see it in")
    careless = assessed(history_of(contributed=[0.5] * 2), 100)
    assert careless.weakest.worst is Measure.CONTRIBUTED
    assert careless.remedy == RULES[Measure.CONTRIBUTED].remedy


def test_who_does_all_that_is_asked_comes_to_priority() -> None:
    done = dict.fromkeys(map(str, Measure), [1.0] * 8)
    assert level_of(score_of(**done), Level.NORMAL, excluded=False) is Level.PRIORITY


def test_a_newcomer_that_misses_one_round_stays_normal() -> None:
    score = score_of(contributed=[0.0], present=[1.0], answered=[1.0])
    assert level_of(score, Level.NORMAL, excluded=False) is Level.NORMAL


@pytest.mark.parametrize("measure", Measure)
def test_what_was_seen_long_ago_counts_half_after_a_half_life(measure: Measure) -> None:
    rule = RULES[measure]
    begun = {m: [Observation(0, 0)] if m is measure else [] for m in Measure}

    def worth(newest: int) -> float:
        """What the one bad observation weighs beside the neutral rounds."""
        parts = assessed(begun, newest).parts
        value = next(part.value for part in parts if part.component is rule.component)
        return NEUTRAL / value - 1

    assert worth(int(rule.half_life_rounds)) == pytest.approx(worth(0) / 2)
    assert worth(100_000) == pytest.approx(0)


@given(st.lists(VALUES, max_size=40), st.sampled_from(Measure), st.integers(0, 200))
def test_a_better_observation_never_lowers_a_score(
    values: list[float], measure: Measure, newest: int
) -> None:
    before = {m: [observation(at, 0.5) for at in range(5)] for m in Measure}
    before[measure] = [observation(at, value) for at, value in enumerate(values)]
    better = before | {measure: [Observation(o.round, 1000) for o in before[measure]]}
    low, high = assessed(before, newest), assessed(better, newest)
    assert 0 <= low.score <= high.score + 1e-9 <= 1 + 2e-9
    assert all(0 <= part.value <= 1 for part in high.parts)


def test_three_segments_that_differ_bring_an_otherwise_perfect_contributor_to_low() -> None:
    perfect = {str(m): [1.0] * 30 for m in Measure if m is not Measure.CHECKED}
    levels = [
        level_of(score_of(**perfect, checked=[0.0] * times), Level.PRIORITY, excluded=False)
        for times in range(4)
    ]
    assert levels == [Level.PRIORITY, Level.NORMAL, Level.NORMAL, Level.LOW]


def test_the_component_that_costs_most_is_the_weakest_and_its_worst_measure_the_remedy() -> None:
    seen = history_of(contributed=[1.0] * 9, checked=[0.0], useful=[0.5] * 9, answered=[0.9] * 9)
    assessment = assessed(seen, 100)
    assert assessment.weakest.component is Component.COMPUTE
    assert assessment.remedy == RULES[Measure.CHECKED].remedy


@given(st.sampled_from([Level.PRIORITY, Level.NORMAL, Level.LOW]), st.floats(0, 1), st.booleans())
def test_only_an_exclusion_excludes_and_borders_hold(
    before: Level, score: float, excluded: bool
) -> None:
    level = level_of(score, before, excluded)
    assert (level is Level.EXCLUDED) == excluded
    if not excluded:
        assert level_of(score, level, excluded=False) is level  # said again, nothing changes
        assert score >= PRIORITY_BELOW or level is not Level.PRIORITY
        assert score < PRIORITY_FROM or level is Level.PRIORITY
        assert score < NORMAL_FROM or level is not Level.LOW
        assert score >= LOW_BELOW or level is Level.LOW


def test_nothing_that_is_measured_of_updates_alone_makes_more_than_low() -> None:
    worst = {str(measure): [0.0] * 64 for measure in Measure}
    assert level_of(score_of(**worst), Level.LOW, excluded=False) is Level.LOW
    assert value_of(Component.QUALITY, useful=[0.0] * 64) < 0.2
    alone = score_of(useful=[0.0] * 64)
    assert alone > NEUTRAL - WEIGHTS[Component.QUALITY]
