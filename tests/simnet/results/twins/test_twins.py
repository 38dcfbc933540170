"""Twins: what holds through every attack, that too many of them break it, and who is named."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product
from typing import Any

import pytest

from simnet.checks.invariants import JUSTIFIED, NO_SLANDER, ONE_ENDING, ONE_STATEMENT
from simnet.results.shrink import broken
from simnet.results.twins import stage
from simnet.results.twins.named import safe, unsafe
from simnet.results.twins.scripts import Scene, Script, enumerated, places_of, sampled
from simnet.results.twins.stage import Played
from simnet.results.twins.suite import FAMILIES, Family, named, samples, script_named
from simnet.world.scenario import AdversaryConfig
from tests.simnet.results.mutants.make import Make
from tests.simnet.results.twins.planted import (
    MISCOUNTED,
    NOTARIZES_TWICE,
    NULLIFIES_WHAT_IT_FINALIZED,
    OF_MEMBERS,
)

IDLE = (AdversaryConfig(kind="staller", nodes=(0, 1)),)  # two faulty nodes that fork nothing
SOME = {"four-2": 160, "four-3": 60, "five-2": 240, "seven-2": 1800}  # every so manieth is played
QUICK = {"leader-twin-disjoint", "log-rolled-back", "one-twin-too-many-of-4"}
play = lru_cache(stage.play)  # of honest code: several tests look at one run


def each(scripts: Sequence[Script]) -> list[Any]:
    """Parameters: only the quick ones in a short run of the tests."""
    return [
        pytest.param(script, id=script.name, marks=() if script.name in QUICK else pytest.mark.long)
        for script in scripts
    ]


def hits(played: Played, mark: str) -> int:
    return sum(m.hits for m in played.outcome.sometimes if m.name == mark)


@pytest.mark.parametrize("script", each(safe()))
def test_a_named_attack_of_at_most_f_is_survived_and_ten_blocks_follow(script: Script) -> None:
    played = play(script)
    assert played.failure is None
    assert played.outcome.facts["blocks"] >= 10
    # members change amid the attacks on that; who is convicted goes as well
    assert len(played.committees) >= 1 + len(script.changes)


@pytest.mark.parametrize("script", each(unsafe()))
@pytest.mark.parametrize("seed", range(2))
def test_one_twin_too_many_forks_the_chain_and_evidence_names_them(
    script: Script, seed: int
) -> None:
    played = play(replace(script, seed=script.seed + seed))
    assert played.forked
    assert played.culprits == set(script.twins)
    assert all(script.is_survivable(played.culprits - {one}) for one in played.culprits)
    assert played.failure is None


def test_whose_log_is_rolled_back_signs_again_and_is_named() -> None:
    (script,) = (each for each in safe() if each.name == "log-rolled-back")
    # Whether it loses what it had signed is a matter of tenths of a second.
    played = (play(replace(script, seed=script.seed + more)) for more in range(8))
    assert next(filter(None, (each.culprits for each in played)), None) == frozenset({3})


OVERTHROWS = [script for script in unsafe() if script.changes]


@pytest.mark.parametrize("script", each(OVERTHROWS))
def test_a_fork_across_a_boundary_convicts_too_many_of_one_committee_and_not_of_all(
    script: Script,
) -> None:
    played = play(script)
    overthrown = [members for members in played.committees if played.culprits <= members.keys()]
    assert 0 < len(overthrown) < len(played.committees)


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "loyal"),
    [(script, twin) for script in OVERTHROWS for twin in (script.twins[0], script.twins[-1])],
    ids=lambda value: value.name if isinstance(value, Script) else str(value),
)
def test_with_one_twin_fewer_the_same_attack_across_a_boundary_is_survived(
    script: Script, loyal: int
) -> None:
    played = play(replace(script, twins=tuple(twin for twin in script.twins if twin != loyal)))
    assert played.failure is None
    assert len(played.committees) >= 1 + len(script.changes)


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_enumerated_attacks_are_survived(family: Family) -> None:
    played = [play(script) for script in family.scripts()[:: SOME[family.name]]]
    assert [(p.script.name, p.failure) for p in played if p.failure] == []
    # else nobody was tried: most leaders' twins must have said two things that can be shown
    assert sum(bool(p.culprits) for p in played) > len(played) / 2
    assert any(hits(p, "view given up") for p in played)


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "count"), [(4, 2), (5, 2), (7, 1), (10, 1)])
def test_sampled_attacks_are_survived(nodes: int, count: int) -> None:
    played = [play(script) for script in samples(nodes, count)]
    assert [(p.script.name, p.failure) for p in played if p.failure] == []


# What the attacks are for: a broken rule must not survive them.

LEADERS = {"leader-twin-disjoint", "leader-twin-overlapping", "consecutive-twin-leaders"}


def found(scripts: Sequence[Script]) -> Played | None:
    """The first of them that fails, if one does."""
    played = (stage.play(script) for script in scripts)
    return next((each for each in played if each.failure is not None), None)


@pytest.mark.long
@pytest.mark.parametrize(
    ("made", "found_by"),
    [
        pytest.param(NOTARIZES_TWICE, {JUSTIFIED, ONE_STATEMENT, NO_SLANDER}, id="notarizes twice"),
        pytest.param(
            NULLIFIES_WHAT_IT_FINALIZED,
            {ONE_STATEMENT, ONE_ENDING, NO_SLANDER},
            id="nullifies what it finalized",
        ),
    ],
)
def test_a_broken_rule_of_voting_is_found(
    made: Make, found_by: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made.plant(monkeypatch)
    failed = found([script for script in safe() if script.name in LEADERS])
    assert failed is not None
    assert broken(failed.outcome) in found_by


@pytest.mark.long
@pytest.mark.parametrize("name", MISCOUNTED)
def test_a_miscounted_quorum_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISCOUNTED[name].plant(monkeypatch)
    assert found([script for script in safe() if script.name in LEADERS]) is not None


MEMBERS = [script for script in safe() if script.changes]
# Which attack has found it before: it is played first, and the others only if it does not.
FINDERS = {
    "leaver still counts": "twin-leaves-and-returns",
    "old quorum after the boundary": "twin-gains-stake",
    "rotation leaves the old key its seat": "heir-is-a-twin",
    "new committee one epoch early": "twin-leaves",
}


@pytest.mark.long
@pytest.mark.parametrize("name", OF_MEMBERS)
def test_attacks_on_changing_members_find_who_counts_the_wrong_ones(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    OF_MEMBERS[name].plant(monkeypatch)
    assert found(sorted(MEMBERS, key=lambda script: script.name != FINDERS[name])) is not None


def test_too_many_twins_in_any_committee_to_come_are_too_many() -> None:
    leaves = next(script for script in MEMBERS if script.name == "twin-leaves")
    assert leaves.is_survivable({0})
    assert not leaves.is_survivable({1, 2})
    seven = replace(leaves, nodes=7)
    assert seven.is_survivable({1, 2}) is False  # six are left, which survive one
    assert replace(seven, changes=()).is_survivable({1, 2})


def test_an_audit_that_convicts_the_honest_fails_the_script() -> None:
    played = play(named()[0])
    assert played.failure is None
    assert "honest" in str(replace(played, culprits=frozenset({0, 2})).failure)


def test_too_many_twins_without_a_fork_or_without_names_fail_the_script() -> None:
    (four, *_) = unsafe()
    tame = replace(four, scenes=(Scene(2, (frozenset(four.places),)),), twins=(), liars=IDLE)
    assert "blind" in str(play(tame).failure)
    forked = play(four)
    assert "evidence" in str(replace(forked, culprits=frozenset({0})).failure)


# Scripts as data.


def _canonical(script: Script) -> tuple[object, ...]:
    """The slow plain twin: the least image under all renamings of honest nodes, twins, bodies."""
    twins, honest = script.twins, [n for n in range(script.nodes) if n not in script.twins]
    images = []
    for new_twins, new_honest in product(permutations(twins), permutations(honest)):
        node_of = dict(zip((*twins, *honest), (*new_twins, *new_honest), strict=True))
        for swaps in product((0, 1), repeat=len(twins)):
            swapped = dict(zip(twins, swaps, strict=True))
            scenes = []
            for scene in script.scenes:
                parts = [
                    tuple(sorted((node_of[n], body ^ swapped.get(n, 0)) for n, body in part))
                    for part in scene.parts
                ]
                assert scene.leader is not None
                scenes.append((node_of[scene.leader], tuple(sorted(parts))))
            images.append(tuple(scenes))
    return min(images)


def _everything(nodes: int, twins: int, views: int) -> set[tuple[object, ...]]:
    traitors = tuple(range(twins))
    places = places_of(nodes, traitors)
    scenes = []
    for leader in range(nodes):
        for sides in product((0, 1), repeat=len(places) - 1):
            inside = frozenset(p for p, side in zip(places, (0, *sides), strict=True) if side == 0)
            parts = tuple(part for part in (inside, frozenset(places) - inside) if part)
            scenes.append(Scene(leader, parts))
    return {
        _canonical(Script("", nodes, traitors, chosen)) for chosen in product(scenes, repeat=views)
    }


@pytest.mark.parametrize(("nodes", "twins", "views"), [(4, 1, 1), (5, 1, 1), (5, 2, 1), (4, 1, 2)])
def test_every_script_is_enumerated_once_up_to_symmetry(nodes: int, twins: int, views: int) -> None:
    found = [_canonical(script) for script in enumerated(nodes, twins, views)]
    assert len(found) == len(set(found))
    assert set(found) == _everything(nodes, twins, views)


def test_samples_and_names_repeat() -> None:
    assert sampled(10, 3, 5, 7) == sampled(10, 3, 5, 7) != sampled(10, 3, 5, 8)
    for script in (*named()[:2], FAMILIES[0].scripts()[17], samples(10, 4)[3]):
        assert script_named(script.name) == script
    script = script_named("four-2-17")
    assert stage.play(script).outcome.trace_hash == stage.play(script).outcome.trace_hash


def test_a_word_passes_within_a_part_and_to_whom_its_kind_is_not_hidden() -> None:
    scene = safe()[4].scenes[0]  # finalize-nullify-split
    (kind, seers) = scene.hidden[0]
    assert seers == {(1, 0)}
    assert scene.hears((0, 0), (1, 0), kind)
    assert not scene.hears((0, 0), (2, 0), kind)
    assert scene.hears((0, 0), (2, 0), None)
    assert not scene.hears((0, 0), (3, 0), None)
