"""Twins: what holds through every attack, that too many of them break it, and who is named."""

from dataclasses import replace
from itertools import permutations, product

import pytest

from simnet.heap.consensus_boot import Make
from simnet.heap.twins import Scene, Script, enumerated, places_of, sampled
from simnet.heap.twins_named import safe, unsafe
from simnet.heap.twins_stage import Played, play
from simnet.heap.twins_suite import FAMILIES, Family, named, samples, script_named
from simnet.invariants import ONE_ENDING, ONE_WORD
from simnet.scenario import AdversaryConfig
from simnet.shrink import broken
from tests.simnet.mutants.members import MEMBER_MUTANTS
from tests.simnet.mutants.mutants import MUTANTS
from tests.simnet.twins.planted import NOTARIZES_TWICE, NULLIFIES_WHAT_IT_FINALIZED

IDLE = (AdversaryConfig(kind="staller", nodes=(0, 1)),)  # two faulty nodes that fork nothing
SOME = {"four-2": 12, "four-3": 20, "five-2": 40, "seven-2": 160}  # every so manieth is played


def hits(played: Played, mark: str) -> int:
    return sum(m.hits for m in played.outcome.sometimes if m.name == mark)


@pytest.mark.parametrize("script", safe(), ids=lambda script: script.name)
def test_a_named_attack_of_at_most_f_is_survived_and_ten_blocks_follow(script: Script) -> None:
    played = play(script)
    assert played.failure is None
    assert played.outcome.facts["blocks"] >= 10


@pytest.mark.parametrize("script", unsafe(), ids=lambda script: script.name)
# With seed 0 one of three is expelled before the fork is there.
@pytest.mark.parametrize("seed", range(1, 4))
def test_one_twin_too_many_forks_the_chain_and_evidence_names_them(
    script: Script, seed: int
) -> None:
    played = play(replace(script, seed=seed))
    assert played.forked
    assert played.culprits == set(script.twins)
    assert all(script.is_survivable(played.culprits - {one}) for one in played.culprits)
    assert played.failure is None


OVERTHROWS = [script for script in unsafe() if script.changes]


def members(stakes: str) -> set[int]:
    return {int(pair.partition(":")[0]) for pair in stakes.split()}


@pytest.mark.parametrize("script", OVERTHROWS, ids=lambda script: script.name)
def test_a_fork_across_a_boundary_convicts_too_many_of_one_committee_and_not_of_all(
    script: Script,
) -> None:
    played = play(script)
    committees = [members(stakes) for stakes in played.outcome.facts["committees"]]
    overthrown = [committee for committee in committees if played.culprits <= committee]
    assert 0 < len(overthrown) < len(committees)


@pytest.mark.parametrize(
    ("script", "loyal"),
    [(script, twin) for script in OVERTHROWS for twin in script.twins],
    ids=lambda value: value.name if isinstance(value, Script) else str(value),
)
def test_with_one_twin_fewer_the_same_attack_across_a_boundary_is_survived(
    script: Script, loyal: int
) -> None:
    played = play(replace(script, twins=tuple(twin for twin in script.twins if twin != loyal)))
    assert played.failure is None
    assert len(played.outcome.facts["committees"]) >= 1 + len(script.changes)


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_enumerated_attacks_are_survived(family: Family) -> None:
    played = [play(script) for script in family.scripts()[:: SOME[family.name]]]
    assert [(p.script.name, p.failure) for p in played if p.failure] == []
    # else nobody was tried: most leaders' twins must have said two things that can be shown
    assert sum(bool(p.culprits) for p in played) > len(played) / 2
    assert sum(hits(p, "view nullified") > 0 for p in played) > len(played) / 3


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        (4, 6),
        (5, 6),
        pytest.param(7, 6, marks=pytest.mark.long),
        pytest.param(10, 4, marks=pytest.mark.long),
    ],
)
def test_sampled_attacks_are_survived(nodes: int, count: int) -> None:
    played = [play(script) for script in samples(nodes, count)]
    assert [(p.script.name, p.failure) for p in played if p.failure] == []


# What the attacks are for: a broken rule must not survive them.


def failures(make: Make) -> set[str | None]:
    chosen = {"leader-twin-disjoint", "leader-twin-overlapping", "consecutive-twin-leaders"}
    found = [play(script, make) for script in safe() if script.name in chosen]
    return {broken(played.outcome) for played in found}


def test_notarizing_twice_is_found() -> None:
    assert ONE_WORD in failures(NOTARIZES_TWICE)


def test_nullifying_what_was_finalized_is_found() -> None:
    assert failures(NULLIFIES_WHAT_IT_FINALIZED) & {ONE_WORD, ONE_ENDING}


@pytest.mark.parametrize("name", ["quorum off by one", "own vote counted twice"])
def test_a_miscounted_quorum_is_found(name: str) -> None:
    assert None not in failures(MUTANTS[name])


MEMBERS = [script for script in safe() if script.changes]


@pytest.mark.parametrize("script", MEMBERS, ids=lambda script: script.name)
def test_members_change_amid_the_attacks_on_that(script: Script) -> None:
    committees = play(script).outcome.facts["committees"]
    assert len(committees) >= 1 + len(script.changes)  # who is convicted goes as well


@pytest.mark.parametrize(
    "name",
    [
        "leaver still counts",
        "old quorum after the boundary",
        "rotation leaves the old key its seat",
        "new committee one epoch early",
    ],
)
def test_attacks_on_changing_members_find_who_counts_the_wrong_ones(name: str) -> None:
    assert {play(script, MEMBER_MUTANTS[name]).failure for script in MEMBERS} != {None}


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
    assert play(script).outcome.trace_hash == play(script).outcome.trace_hash


def test_a_word_passes_within_a_part_and_to_whom_its_kind_is_not_hidden() -> None:
    scene = safe()[4].scenes[0]  # finalize-nullify-split
    (kind, seers) = scene.hidden[0]
    assert seers == {(1, 0)}
    assert scene.hears((0, 0), (1, 0), kind)
    assert not scene.hears((0, 0), (2, 0), kind)
    assert scene.hears((0, 0), (2, 0), None)
    assert not scene.hears((0, 0), (3, 0), None)
