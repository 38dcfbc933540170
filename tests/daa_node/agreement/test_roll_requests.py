"""What is asked of the roll waits in places that nobody else fills."""

from dataclasses import replace

from daa_consensus.enrolment import Enroll, Retire
from daa_consensus.roll import Admission
from daa_node.agreement.roll_requests import PLACES_EACH_MAX, RollRequests
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys
from tests.daa_node.agreement.test_carried import NAMES
from tests.daa_node.agreement.test_roll_cargo import NEW, asked, decided, enroll, known, vouch

STRANGERS = [NodeKeys.from_seed(b"flood %d" % index) for index in range(PLACES_EACH_MAX + 3)]


def flood(index: int) -> Enroll:
    keys = STRANGERS[index]
    return Enroll(keys.node_id, MemberKeys.of(keys).encode())


def test_a_member_that_floods_pushes_out_its_own_alone() -> None:
    now, held = known(Admission.OPEN).now, RollRequests()
    mine = enroll(0)
    assert held.note(mine, now, NAMES[0])
    for index in range(len(STRANGERS)):
        assert held.note(asked(flood(index)), now, NAMES[1])
    assert held.brought_by(NAMES[0]) == [mine]
    assert len(held.brought_by(NAMES[1])) == PLACES_EACH_MAX
    assert not held.holds(asked(flood(0)).request.id)  # its oldest
    assert not held.note(mine, now, NAMES[0])  # no news


def test_whom_its_bringer_vouches_for_is_pushed_out_by_nobody_who_comes_without_a_word() -> None:
    now, held = known().now, RollRequests()
    pair = [enroll(0), vouch(1, 0)]
    for item in pair:
        assert held.note(item, now, NAMES[1])
    for index in range(len(STRANGERS)):
        assert held.note(asked(flood(index)), now, NAMES[1])
    assert held.brought_by(NAMES[1])[:2] == pair
    assert len(held.brought_by(NAMES[1])) == PLACES_EACH_MAX


def test_a_word_is_brought_by_its_voucher_and_nothing_by_strangers() -> None:
    now, held = known().now, RollRequests()
    assert not held.note(enroll(0), now, NEW[0].node_id)
    assert held.note(enroll(0), now, NAMES[1])
    assert not held.note(vouch(1, 0), now, NAMES[2])
    assert held.note(vouch(1, 0), now, NAMES[1])


def test_what_a_set_has_carried_and_what_expires_is_forgotten() -> None:
    validators, held = known(), RollRequests()
    for item in (enroll(0), vouch(1, 0), enroll(1)):
        assert held.note(item, validators.now, NAMES[1])
    decided(validators, 1, enroll(0), vouch(1, 0))
    held.follow(validators.now)
    assert held.brought_by(NAMES[1]) == [enroll(1)]
    late = replace(validators.now, roll=replace(validators.now.roll, round=90))
    held.follow(late)
    assert not held.brought_by(NAMES[1])


def test_the_word_of_who_stands_convicted_waits_for_no_set() -> None:
    """None may carry it, and it would take the room of words that count."""
    validators, held = known(), RollRequests()
    for voucher in (1, 2):
        for item in (enroll(voucher), vouch(voucher, voucher)):
            assert held.note(item, validators.now, NAMES[voucher])
    caught = replace(validators.now, convicted=(NAMES[1],))
    held.follow(caught)
    assert held.words_of(NAMES[1]) == 0
    assert held.words_of(NAMES[2]) == 1
    assert not held.note(vouch(1, 2), caught, NAMES[1])


def test_who_is_on_the_roll_retires_without_a_member() -> None:
    validators, held = known(), RollRequests()
    decided(validators, 1, enroll(0), vouch(1, 0))
    name = NEW[0].node_id
    assert held.note(asked(Retire(name, name)), validators.now, name)
    assert not held.note(asked(Retire(name, NAMES[1])), validators.now, name)
