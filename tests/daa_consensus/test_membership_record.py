"""Whatever a membership has come to, its record gives it back; no field is left out."""

import random
from dataclasses import fields, replace

import pytest

from daa_consensus.errors import BadMessage
from daa_consensus.membership import Membership, Rule
from daa_consensus.membership_record import membership_from, membership_value
from daa_consensus.operations import Approve, Operation
from daa_consensus.protocol_words import ProtocolWords
from daa_consensus.roll import Admission, Entry, Roll, RollRules
from daa_dag import canonical
from daa_dag.ids import Digest
from tests.daa_consensus.bft.simulation import committee_of, node_id
from tests.daa_consensus.test_membership import operation, random_action

ROLL = Roll(
    RollRules(Admission.VOUCHED, per_voucher=3, roll_max=9, contributors_max=20, listed_max=30),
    (
        Entry(node_id(180), b"keys", None, since=2, missed=5, planned=6),
        Entry(node_id(181), b"others", node_id(1), since=3, missed=4, planned=2, until=9),
    ),
    round=7,
    seed=Digest(bytes([8]) * 32),
)


WORDS = ProtocolWords({node_id(1): 4}, frozenset({node_id(0), node_id(1)}), announced=True)


def differs(value: object) -> int:
    """How many fields of the record have what a new one has not."""
    return sum(getattr(value, f.name) != f.default for f in fields(value))  # type: ignore[arg-type]


def again(now: Membership) -> Membership:
    """As a later process reads it."""
    payload = canonical.encode(membership_value(now))
    return membership_from(canonical.decode(payload, len(payload)))


def test_every_field_is_written() -> None:
    """A field that is new to a membership is to be written, and read, in the record, too."""
    written = membership_value(Membership(committee_of([1]), words=WORDS))
    assert set(written) == {field.name for field in fields(Membership)}
    assert all((WORDS.said, WORDS.heard_of, WORDS.announced))
    assert len(fields(ProtocolWords)) == 3
    # nor is a field of the roll that is compared below what it is without a record
    assert differs(ROLL.rules) == len(fields(RollRules))
    assert differs(ROLL) == len(fields(Roll)) - 1  # of `asked` nothing is left between two sets
    assert differs(ROLL.entries[1]) == len(fields(Entry))


def test_another_version_and_words_are_read_as_they_were_written() -> None:
    now = Membership(replace(committee_of([1, 2]), version=3), epoch=4, words=WORDS)
    assert again(now) == now
    assert again(now).committee.version == 3
    # Each alone, too: who has taken its word back says no other one in the epoch.
    for words in (ProtocolWords(heard_of=WORDS.heard_of), ProtocolWords(announced=True)):
        assert again(replace(now, words=words)).words == words


def test_without_another_version_a_record_is_what_it_was_before_there_was_one() -> None:
    written = membership_value(Membership(committee_of([1, 2])))
    assert "words" not in written
    assert written["committee"] == [[v.node_id, v.stake] for v in committee_of([1, 2]).validators]


@pytest.mark.parametrize("seed", range(10))
def test_any_history_is_read_as_it_was_written(seed: int) -> None:
    rng = random.Random(seed)
    now = Membership(
        committee_of([rng.choice((1, 2, 3)) for _ in range(rng.randint(2, 9))]),
        roll=ROLL,
        objection_epochs=rng.randint(1, 3),
    )
    seen = set[str]()
    for _ in range(20):
        asked: list[Operation] = []
        for _ in range(rng.randint(0, 3)):
            made = operation(random_action(rng, now.committee), now.epoch + rng.randint(1, 5))
            words = [Approve(v.node_id, made.request.id) for v in now.committee.validators]
            asked += [made, *(operation(word) for word in words)]
        offences = [(rng.choice(now.committee.validators).node_id, now.epoch)]
        now = now.decided(asked, offences if not rng.randrange(8) else [])
        assert again(now) == now
        now = now.next_epoch()
        assert again(now) == now
        seen |= {field.name for field in fields(now) if getattr(now, field.name)}
    assert {"committee", "settled", "roll"} <= seen
    assert any(entry.until is not None for entry in ROLL.entries)


def test_what_is_no_record_is_refused() -> None:
    whole = dict(membership_value(Membership(committee_of([1, 2]))))
    members: list[canonical.Value] = [[v.node_id, v.stake] for v in committee_of([1, 2]).validators]
    request = operation(
        Approve(
            node_id(1), operation(random_action(random.Random(1), committee_of([1]))).request.id
        )
    ).request
    dropped = replace(Membership(committee_of([1])), dropped=((request, Rule.EXPIRED),))
    assert again(dropped) == dropped
    for broken in (
        {name: value for name, value in whole.items() if name != "seats"},
        {**whole, "committee": []},
        {**whole, "waiting": [[1]]},
        {**whole, "committee": [1, *members]},  # one has one form
        {**whole, "committee": [2**16, *members]},
        {**whole, "words": [[], [], False]},
        {**whole, "words": [[[node_id(1), 2]], [], 1]},
        {**whole, "dropped": [[[1, ["leave"]], "NO_SUCH_RULE"]]},
        None,
    ):
        with pytest.raises(BadMessage):
            membership_from(broken)
