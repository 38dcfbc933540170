"""The books about protocol versions agree with the daemon's fold, and with no other one."""

import random
from collections.abc import Collection
from dataclasses import replace

import pytest

from daa_consensus.committee import Committee
from daa_consensus.membership import Membership
from daa_consensus.operations import Speak
from daa_consensus.protocol_words import ProtocolWords
from daa_dag.ids import NodeId
from simnet.checks.version_audit import VersionAudit
from tests.daa_consensus.bft.simulation import committee_of
from tests.daa_consensus.test_membership import operation


def fault_in(seed: int, epochs: int = 30) -> str | None:
    """The first in a random history of words."""
    rng, books = random.Random(seed), VersionAudit()
    now = Membership(committee_of([1] * rng.randint(1, 7)))
    for _ in range(epochs):
        for name in now.committee.stake_of:
            if rng.random() < 0.5:
                word = Speak(name, now.committee.version + rng.randint(0, 2))
                expires = now.epoch + rng.choice((1, 1, 1, 2))
                books.hear(word, expires, now)
                now = now.decided([operation(word, expires)])
        ended, now = now.committee, now.next_epoch()
        wrong = books.fault(ended, now, frozenset())
        if wrong is not None:
            return wrong
    return None


def one_short(
    words: ProtocolWords, old: Committee, new: Committee, convicted: Collection[NodeId]
) -> tuple[Committee, ProtocolWords]:
    lighter = [replace(each) for each in (old, new)]
    for committee in lighter:
        vars(committee).update(quorum=max(1, committee.quorum - 1))
    return ENDED(words, lighter[0], lighter[1], convicted)


def unannounced(
    words: ProtocolWords, old: Committee, new: Committee, convicted: Collection[NodeId]
) -> tuple[Committee, ProtocolWords]:
    return ENDED(replace(words, announced=True), old, new, convicted)


def never(
    words: ProtocolWords, _old: Committee, new: Committee, _convicted: Collection[NodeId]
) -> tuple[Committee, ProtocolWords]:
    return new, replace(words, heard_of=frozenset())


def back_again(
    words: ProtocolWords, old: Committee, new: Committee, convicted: Collection[NodeId]
) -> tuple[Committee, ProtocolWords]:
    committee, left = ENDED(words, old, new, convicted)
    return (replace(committee, version=1), left) if old.version > 2 else (committee, left)


ENDED = ProtocolWords.ended


@pytest.mark.parametrize("seed", range(20))
def test_the_fold_and_the_books_agree(seed: int) -> None:
    assert fault_in(seed) is None


@pytest.mark.parametrize("ended", [one_short, unannounced, never, back_again])
def test_another_rule_is_found(monkeypatch: pytest.MonkeyPatch, ended: object) -> None:
    monkeypatch.setattr(ProtocolWords, "ended", ended)
    found = [fault for fault in map(fault_in, range(20)) if fault is not None]
    assert found
    assert all("uses protocol" in fault for fault in found)
