"""What a later process reads of validators and trainers is all that an earlier one had come to."""

from dataclasses import fields, replace

import pytest

from daa_consensus.bft.messages import AbortPayload, Block
from daa_consensus.enrolment import Enrolment, Retire, encode_enrolment
from daa_consensus.roll import IDLE_ROUNDS
from daa_dag.ids import BlockId, Digest
from daa_node.identity import validators as module
from daa_node.identity.validators import Validators, recall, record_of
from daa_node.identity.validators_record import (
    ValidatorsRecord,
    decode_validators,
    encode_validators,
)
from tests.daa_node.agreement.test_carried import CHAIN, NAMES, offence
from tests.daa_node.agreement.test_roll_cargo import EMPTY, NEW, asked, enroll, known, vouch

EPOCH_ROUNDS = 4


def of_round(number: int, *items: Enrolment, evidence: tuple[bytes, ...] = ()) -> list[Block]:
    """The final set of a round, and its closing."""
    epoch, view = (number - 1) // EPOCH_ROUNDS, 2 * number
    operations = tuple(encode_enrolment(item) for item in items)
    decided = replace(EMPTY, round=number, operations=operations, evidence=evidence)
    block = Block(CHAIN, epoch, view, number, BlockId(b"b" * 32), view - 1, decided)
    closing = replace(block, view=view + 1, parent_view=view, payload=AbortPayload(number))
    return [block, closing]


def retire(index: int, member: int) -> Enrolment:
    return asked(Retire(NEW[index].node_id, NAMES[member]))


def long_ago() -> Validators:
    """Trainers came, were drawn, missed rounds, went; their voucher was convicted, and expelled."""
    here = known()
    here.follow(of_round(1, enroll(0), vouch(0, 0), enroll(1), vouch(1, 1)))
    here.follow(of_round(2, enroll(2), vouch(0, 2)))
    here.follow(of_round(3))
    here.follow(of_round(4, retire(0, 0)))
    here.follow(of_round(5))
    here.follow(of_round(6, evidence=(offence(1),)))  # trainer 1 goes with it
    for number in range(7, 10):
        here.follow(of_round(number))
    here.follow(of_round(10, enroll(3), vouch(2, 3)))
    return here


def later_of(ahead: Validators) -> Validators:
    later = known()
    recall(later, decode_validators(encode_validators(record_of(ahead))))
    return later


def test_every_field_is_told_to_a_later_process() -> None:
    ahead, fresh = long_ago(), record_of(known())
    told = record_of(ahead)
    for field in fields(ValidatorsRecord):  # else nobody would see that one is lost
        assert getattr(told, field.name) != getattr(fresh, field.name), field.name
    later = later_of(ahead)
    assert record_of(later) == told
    assert (later.listeners, later.limits) == (ahead.listeners, ahead.limits)
    assert (later.copy().listeners, record_of(later.copy())) == (ahead.listeners, told)


def alike(one: Validators, other: Validators, rounds: int) -> None:
    """They judge all rounds up to this one alike, and whoever has ever been there."""
    assert record_of(one) == record_of(other)
    assert (one.listeners, one.limits) == (other.listeners, other.limits)
    for number in range(1, rounds + 2):
        assert one.contributors(number) == other.contributors(number)
        assert one.rolls.trainers(number) == other.rolls.trainers(number)
        assert one.rolls.root(number) == other.rolls.root(number)
    for name in (*NAMES, *(keys.node_id for keys in NEW)):
        assert one.may_contribute(name, 0) == other.may_contribute(name, 0)
    for block in of_round(rounds):
        if block.payload != AbortPayload(rounds):
            assert one.roll_root_above(block) == other.roll_root_above(block)
            assert one.convicted_by(block) == other.convicted_by(block)


def test_who_starts_again_in_any_round_judges_as_who_never_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GONE_KEPT", 1)  # the second that goes is forgotten
    last = 16 + IDLE_ROUNDS
    ahead = long_ago()
    restarted = later_of(ahead)
    asked_for = {
        11: (enroll(4), vouch(0, 4)),
        13: (retire(2, 0),),
        14: (retire(4, 0),),
        17: (enroll(0), vouch(0, 0)),  # who has gone comes back
        20: (retire(3, 2),),
    }
    roots = dict[int, Digest]()
    for number in range(11, last):
        blocks = of_round(number, *asked_for.get(number, ()))
        for block in blocks:  # it stops between a set and its closing, too
            assert restarted.follow([block]) == ahead.follow([block])
            restarted = later_of(restarted)
            if block is blocks[0]:
                roots[number] = ahead.now.roll.root
        alike(restarted, ahead, number)
    assert len(set(roots.values())) > 6
    assert {number: restarted.rolls.root(number) for number in roots} == roots
    gone = {keys.node_id for keys in NEW[1:5]}
    assert len(gone & ahead.public_keys.keys()) == 1
    assert NEW[0].node_id in ahead.peer_ids


def test_keys_that_another_history_knew_are_none_of_this_one() -> None:
    """What is recalled is the whole: a key more, and two nodes judge a name differently."""
    ahead = long_ago()
    other = known()
    other.follow(of_round(1, enroll(5), vouch(0, 5)))
    recall(other, record_of(ahead))
    assert NEW[5].node_id not in other.public_keys
    assert NEW[5].node_id not in other.peer_ids
    assert record_of(other) == record_of(ahead)
