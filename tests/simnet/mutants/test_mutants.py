"""Every planted mistake is found by the sweep, by an invariant that says what is wrong."""

from operator import itemgetter

import pytest

from simnet.determinism import Trace
from simnet.heap import consensus
from simnet.heap.consensus_boot import Make
from simnet.invariants import (
    ASSERTIONS,
    JUSTIFIED,
    LATE_ENOUGH,
    NO_NEED,
    NO_SLANDER,
    NO_STRANGER,
    NOTHING_LOST,
    ONE_ROLL,
    ONE_WORD,
    PROGRESS,
    QUORUMS,
    RULES_AGREE,
)
from simnet.random_scenarios import random_scenario
from simnet.shrink import broken
from tests.simnet.mutants.members import MEMBER_MUTANTS
from tests.simnet.mutants.mutants import MUTANTS

pytestmark = pytest.mark.long

# All but one are found within 25. An epoch that is ignored shows when one ends below a view that
# many have voted in, and seed 40 is the first in which it does.
# Puppets take the place of liars and of disks that forget, which is what most mistakes are about.
SEEDS = range(100)
CLEAN_SEEDS = range(25)

# Which invariants may give each mistake away.
FOUND_BY = {
    "log not synced": {NO_NEED},
    "log and guard not synced": {NO_NEED, LATE_ENOUGH, ONE_WORD},
    "log written after the word is sent": {LATE_ENOUGH, ONE_WORD},
    "guard written before the log": {NO_NEED},
    "guard overwritten in place": {NO_NEED},
    "guard ignored": {LATE_ENOUGH, ONE_WORD},
    "a Rejoin forbids nothing": {LATE_ENOUGH},
    "rejoins one view early": {LATE_ENOUGH},
    "old rejoin counts": {LATE_ENOUGH},
    "certificates not kept before the vote": {NOTHING_LOST, PROGRESS},
    "finality not kept": {NOTHING_LOST},
    "kept records not synced": {NOTHING_LOST},
    "own votes forgotten by a restart": {RULES_AGREE},
    # Or the second word never got out, and with such a log the node starts no more.
    "own votes forgotten, and the signer trusts": {ONE_WORD, PROGRESS},
    "own vote counted twice": {QUORUMS},
    "quorum off by one": {QUORUMS},
    "finalize after nullify": {ASSERTIONS, ONE_WORD},
    "nullify after finalize": {ONE_WORD},
    # Or only the second word got out: for a block that it does not hold as the leader's.
    "notarize twice": {ONE_WORD, JUSTIFIED},
    "view skipped without a certificate": {JUSTIFIED},
    "parent not notarized": {JUSTIFIED},
    "leader not checked": {JUSTIFIED},
    "another block than the leader's": {JUSTIFIED},
    "certificate below a quorum accepted": {QUORUMS},
    "honest node convicted": {NO_SLANDER},
    "abort after Exec": {RULES_AGREE},
    "epoch ignored in the order of slots": {PROGRESS},
}

# These take seeds in which members come and go.
CHANGING_SEEDS = [seed for seed in SEEDS if random_scenario(seed, puppets=0.0).changes]
MEMBERS_FOUND_BY = {
    "new committee one epoch early": {NO_SLANDER, ASSERTIONS},
    "old quorum after the boundary": {QUORUMS, PROGRESS},
    "leaver still counts": {NO_STRANGER},
    "rotation leaves the old key its seat": {ONE_ROLL},
    "requests applied before they are final": {ONE_ROLL},
    "catch-up keeps to the first committee": {ASSERTIONS},
    "waiting requests lost by a restart": {ONE_ROLL},
    "words judged by the committee before": {NO_SLANDER},
}


def run(seed: int, make: Make) -> str | None:
    return broken(consensus.run(random_scenario(seed, puppets=0.0), Trace(), make))


def test_every_mutant_is_listed_with_what_must_find_it() -> None:
    assert FOUND_BY.keys() == MUTANTS.keys()
    assert MEMBERS_FOUND_BY.keys() == MEMBER_MUTANTS.keys()
    assert len(MUTANTS) + len(MEMBER_MUTANTS) >= 12


@pytest.mark.parametrize("seed", CLEAN_SEEDS)
def test_the_seeds_that_find_mutants_run_clean_without_one(seed: int) -> None:
    assert run(seed, Make()) is None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_found(name: str) -> None:
    found = next(filter(None, (run(seed, MUTANTS[name]) for seed in SEEDS)), None)
    assert found in FOUND_BY[name]


@pytest.mark.parametrize("name", MEMBER_MUTANTS)
def test_a_planted_mistake_about_members_is_found(name: str) -> None:
    runs = ((seed, run(seed, MEMBER_MUTANTS[name])) for seed in CHANGING_SEEDS)
    seed, found = next(filter(itemgetter(1), runs))
    assert found in MEMBERS_FOUND_BY[name]
    assert run(seed, Make()) is None
