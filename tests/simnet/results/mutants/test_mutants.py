"""Every planted mistake in the agreement is found, by an invariant that says what is wrong."""

import pytest

from simnet.checks.invariants import (
    ASSERTIONS,
    JUSTIFIED,
    LATE_ENOUGH,
    NO_NEED,
    NO_SLANDER,
    NO_STRANGER,
    NOTHING_LOST,
    ONE_ROLL,
    ONE_STATEMENT,
    PROGRESS,
    QUORUMS,
    REMEMBERED,
    RULES_AGREE,
)
from tests.simnet.results.mutants.members import MEMBER_MUTANTS
from tests.simnet.results.mutants.mutants import MUTANTS
from tests.simnet.results.mutants.troubles import TROUBLES, broken

pytestmark = pytest.mark.long
SEEDS = range(3, 15)  # the first does, as a rule; moments move with every change of a daemon
ALL_MUTANTS = {**MUTANTS, **MEMBER_MUTANTS}

# Where each shows, and which invariants may give it away.
FOUND_BY: dict[str, tuple[str, set[str]]] = {
    "log not synced": ("a leader dies", {NO_NEED, REMEMBERED}),
    "log and guard not synced": (
        "a leader dies",
        {NO_NEED, REMEMBERED, ONE_STATEMENT, LATE_ENOUGH},
    ),
    "log written after the word is sent": ("a leader dies", {REMEMBERED, ONE_STATEMENT}),
    "guard written before the log": ("all lose power", {NO_NEED}),
    "guard overwritten in place": ("all lose power", {NO_NEED}),
    "guard ignored": ("new disks", {LATE_ENOUGH}),
    "a Rejoin forbids nothing": ("new disks", {LATE_ENOUGH}),
    "rejoins one view early": ("new disks", {LATE_ENOUGH}),
    "old rejoin counts": ("new disks", {LATE_ENOUGH}),
    "certificates not kept before the vote": (
        "a view was given up",
        {NOTHING_LOST},
    ),
    "finality not kept": ("all lose power", {NOTHING_LOST}),
    "kept records not synced": ("all lose power", {PROGRESS, NOTHING_LOST, NO_SLANDER}),
    "own votes forgotten by a restart": ("leader after leader dies", {RULES_AGREE}),
    "own votes forgotten, and the signer trusts": ("leader after leader dies", {ONE_STATEMENT}),
    "own vote counted twice": ("a leader dies", {QUORUMS}),
    "quorum off by one": ("a leader dies", {QUORUMS}),
    "finalize after nullify": ("messages are held", {ASSERTIONS, ONE_STATEMENT}),
    "nullify after finalize": ("a leader dies", {ONE_STATEMENT, NO_SLANDER}),
    "notarize twice": ("a forger", {JUSTIFIED, ONE_STATEMENT}),
    "view skipped without a certificate": ("a forger", {JUSTIFIED}),
    "parent not notarized": ("a forger, and leaders cut off", {JUSTIFIED}),
    "leader not checked": ("a forger", {ASSERTIONS, JUSTIFIED, NO_SLANDER}),
    "another block than the leader's": ("a leader dies", {JUSTIFIED}),
    "certificate below a quorum accepted": ("a forger", {QUORUMS, ASSERTIONS}),
    "honest node convicted": ("messages are held", {NO_SLANDER}),
    "abort after Exec": ("two of four have executed", {RULES_AGREE}),
    "epoch ignored in the order of slots": ("an epoch's end is final late", {PROGRESS}),
    "new committee one epoch early": ("a joiner", {NO_SLANDER, ASSERTIONS, PROGRESS}),
    "old quorum after the boundary": ("a joiner", {QUORUMS, PROGRESS}),
    "leaver still counts": ("a leaver", {NO_STRANGER, QUORUMS}),
    "rotation leaves the old key its seat": ("a new key", {ONE_ROLL}),
    "requests applied before they are final": ("a joiner", {ONE_ROLL}),
    "catch-up keeps to the first committee": ("a joiner", {ASSERTIONS, NO_SLANDER}),
    "waiting requests lost by a restart": ("a request waits", {ONE_ROLL}),
    "each uses a protocol version when it likes": (
        "half are upgraded",
        {NO_SLANDER, ONE_ROLL, PROGRESS, ASSERTIONS},
    ),
    "protocol version used one short of a quorum": (
        "half are upgraded",
        {NO_SLANDER, ONE_ROLL, PROGRESS, ASSERTIONS},
    ),
    "words judged by the committee before": ("a joiner", {NO_SLANDER}),
}


def test_every_mutant_is_listed_with_what_must_find_it() -> None:
    assert FOUND_BY.keys() == ALL_MUTANTS.keys()
    assert len(ALL_MUTANTS) == len(MUTANTS) + len(MEMBER_MUTANTS) >= 35
    assert {trouble for trouble, _ in FOUND_BY.values()} == TROUBLES.keys()


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_cluster_in_trouble_holds_without_a_mistake(trouble: str) -> None:
    assert broken(trouble, SEEDS[0]) == set()


@pytest.mark.parametrize("name", ALL_MUTANTS)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble, found_by = FOUND_BY[name]
    ALL_MUTANTS[name].plant(monkeypatch)
    found = next(filter(None, (broken(trouble, seed) for seed in SEEDS)), None)
    assert found is not None
    assert found <= found_by
