"""What a set asks of the trainers' roll: what an honest leader loads, and what condemns a set."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from daa_consensus.bft.chain import follow
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload, SetPayload
from daa_consensus.committee import Committee, Validator
from daa_consensus.enrolment import (
    PAIRS_A_SET_MAX,
    Enroll,
    Enrolment,
    Retire,
    TrainerAction,
    TrainerRequest,
    Vouch,
    encode_enrolment,
)
from daa_consensus.membership import Membership
from daa_consensus.operations import encode_operation
from daa_consensus.roll import Admission, Roll, RollRules
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import BlockId, Digest, VertexId
from daa_node.agreement.carried import loaded, why_unproven
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import Inbound
from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys, Validators
from tests.daa_node.agreement.test_carried import (
    CHAIN,
    COMMITTEE,
    MEMBERS,
    NAMES,
    approve,
    join,
    offence,
)

NEW = [NodeKeys.from_seed(b"trainer %d" % index) for index in range(12)]
EMPTY = SetPayload(1, (), (), "mean", 0, (), (), ())


def known(admission: Admission = Admission.VOUCHED, per_voucher: int = 2) -> Validators:
    rules = RollRules(admission, per_voucher)
    return Validators(
        CHAIN,
        4,
        Membership(COMMITTEE, roll=Roll(rules)),
        {keys.node_id: keys.ml_dsa_public_key for keys in MEMBERS},
        {keys.node_id: keys.peer_id for keys in MEMBERS},
        NAMES[:4],
        check=lambda _key, signature, _payload, _context: signature == b"signature",
    )


def asked(action: TrainerAction, signature: bytes = b"signature", expires: int = 90) -> Enrolment:
    return Enrolment(TrainerRequest(action, expires), signature)


def enroll(index: int, peer: int | None = None) -> Enrolment:
    keys, of_peer = NEW[index], NEW[index if peer is None else peer]
    return asked(Enroll(keys.node_id, MemberKeys.of(keys, of_peer).encode()))


def vouch(member: int, index: int) -> Enrolment:
    return asked(Vouch(NAMES[member], enroll(index).request.id))


def why(validators: Validators, *items: Enrolment, evidence: Sequence[bytes] = ()) -> str | None:
    operations = tuple(encode_enrolment(item) for item in items)
    proposed = replace(EMPTY, operations=operations, evidence=tuple(evidence))
    return why_unproven(proposed, Inbound(validators))


def decided(validators: Validators, round_number: int, *items: Enrolment) -> None:
    """A set of the round is final, and its closing."""
    operations = tuple(encode_enrolment(item) for item in items)
    of_round = replace(EMPTY, round=round_number, operations=operations)
    view, below = 2 * round_number, BlockId(b"b" * 32)
    block = Block(CHAIN, 0, view, round_number, below, view - 1, of_round)
    result = ResultPayload(round_number, VertexId(b"v" * 32), Digest(b"r" * 32))
    closing = replace(block, view=view + 1, parent_view=view, payload=result)
    validators.follow([block, closing])


def test_an_enrolment_goes_with_a_members_word_for_it_and_not_alone() -> None:
    assert why(known(), enroll(0), vouch(1, 0)) is None
    assert "without a voucher's word" in (why(known(), enroll(0)) or "")
    assert "must stand before it" in (why(known(), vouch(1, 0)) or "")
    assert "must stand before it" in (why(known(), enroll(1), vouch(1, 0)) or "")


def test_a_voucher_over_its_quota_condemns_the_set() -> None:
    pairs = [item for at in range(3) for item in (enroll(at), vouch(1, at))]
    assert "vouches for 2 of 2 already" in (why(known(), *pairs) or "")
    assert why(known(per_voucher=3), *pairs) is None
    before = known()
    decided(before, 1, *pairs[:4])
    assert "vouches for 2 of 2 already" in (why(before, enroll(2), vouch(1, 2)) or "")
    assert why(before, enroll(2), vouch(0, 2)) is None


def test_the_word_of_a_convicted_member_or_of_none_condemns_the_set() -> None:
    proof = offence(1)
    assert "none that stands convicted" in (
        why(known(), enroll(0), vouch(1, 0), evidence=[proof]) or ""
    )
    left = known()
    left.now = replace(left.now, convicted=(NAMES[1],))
    assert why(left, enroll(0), vouch(1, 0)) is not None
    stranger = asked(Vouch(NEW[5].node_id, enroll(0).request.id))
    assert why(known(), enroll(0), stranger) is not None


@pytest.mark.parametrize(
    ("admission", "is_taken"),
    [(Admission.OPEN, True), (Admission.VOUCHED, False), (Admission.CLOSED, False)],
)
def test_an_enrolment_alone_is_enough_only_in_an_open_network(
    admission: Admission, is_taken: bool
) -> None:
    assert (why(known(admission), enroll(0)) is None) is is_taken


def test_nobody_takes_anothers_name_peer_or_signature() -> None:
    forged = replace(enroll(0), signature=b"forged")
    assert "in the name of" in (why(known(), forged, vouch(1, 0)) or "")
    stolen = asked(Enroll(NEW[0].node_id, MemberKeys.of(NEW[1]).encode()))
    assert why(known(Admission.OPEN), stolen) is not None
    shared = enroll(1, peer=0)
    assert "one peer" in (why(known(Admission.OPEN), enroll(0), shared) or "")
    here = known(Admission.OPEN)
    decided(here, 1, enroll(0))
    assert "is another member" in (why(here, shared) or "")


def test_only_a_trainer_or_its_voucher_retires_it() -> None:
    validators = known()
    decided(validators, 1, enroll(0), vouch(1, 0))
    name = NEW[0].node_id
    assert why(validators, asked(Retire(name, name))) is None
    assert why(validators, asked(Retire(name, NAMES[1]))) is None
    assert "another's trainer" in (why(validators, asked(Retire(name, NAMES[2]))) or "")


def test_a_set_asks_of_the_roll_in_room_of_its_own() -> None:
    """A flood of either keeps the other out of no set."""
    validators = known(per_voucher=8)
    facts = Facts(Limits(0, 0))
    operations = [join(4), approve(0, join(4)), approve(1, join(4)), approve(2, join(4))]
    facts.operations = {operation.request.id: operation for operation in operations}
    for at in range(len(NEW)):
        member = NAMES[at % 2]
        for item in (enroll(at), vouch(at % 2, at)):
            assert facts.of_roll.note(item, validators.now, member)
    made = loaded(EMPTY, facts, Inbound(validators))
    assert why_unproven(made, Inbound(validators)) is None
    changes = {encode_operation(operation) for operation in operations}
    assert changes <= {*made.operations}
    assert len(made.operations) == len(changes) + 2 * PAIRS_A_SET_MAX
    assert sum(map(len, made.operations)) <= validators.limits.operations_total_bytes_max
    many = [item for at in range(9) for item in (enroll(at), vouch(at % 2, at))]
    assert "times of the roll" in (why(known(per_voucher=8), *many) or "")


def test_one_bad_fact_costs_itself_only() -> None:
    validators, facts = known(), Facts(Limits(0, 0))
    lonely, good = enroll(3), (enroll(0), vouch(1, 0))
    for item in (lonely, *good):
        assert facts.of_roll.note(item, validators.now, NAMES[1])
    made = loaded(EMPTY, facts, Inbound(validators))
    assert made.operations == tuple(encode_enrolment(item) for item in good)


def test_what_the_set_says_holds_for_the_keys_the_plan_and_the_listeners() -> None:
    validators, name = known(), NEW[0].node_id
    decided(validators, 1, enroll(0), vouch(1, 0))
    assert validators.public_keys[name] == NEW[0].ml_dsa_public_key
    assert validators.peer_ids[name] == NEW[0].peer_id
    assert name in validators.listeners
    assert name not in validators.contributors(2)
    decided(validators, 2)
    assert name in validators.contributors(3)
    assert validators.rolls.trainers(3) == {name: NAMES[1]}
    assert validators.rolls.root(2) == validators.rolls.root(1) != validators.rolls.root(0)
    decided(validators, 3, asked(Retire(name, NAMES[1])))
    decided(validators, 4)
    assert name not in validators.contributors(5)
    decided(validators, 5)
    assert name not in validators.peer_ids
    assert name not in validators.listeners
    assert validators.may_contribute(name, 0)  # what it has said before is still shown
    decided(validators, 6, enroll(0), vouch(2, 0))
    assert validators.peer_ids[name] == NEW[0].peer_id


def test_a_copy_led_on_is_another_and_the_root_of_a_set_is_known_before_it_is_final() -> None:
    validators = known()
    twin = validators.copy()
    operations = tuple(map(encode_enrolment, (enroll(0), vouch(1, 0))))
    block = Block(CHAIN, 0, 2, 1, BlockId(b"b" * 32), 1, replace(EMPTY, operations=operations))
    root = validators.roll_root_above(block)
    assert root == follow(validators.now, block, 4).roll.root
    twin.follow([block])
    assert twin.roll_root_above(block) == twin.now.roll.root == root
    assert validators.rolls.root(1) != root


def test_the_lot_after_an_aborted_round_is_of_the_newest_vertex() -> None:
    validators, vertex = known(), Digest(b"v" * 32)
    decided(validators, 1, enroll(0), vouch(1, 0))
    made = ResultPayload(2, VertexId(vertex), Digest(b"r" * 32))
    now = validators.now
    for round_number, payload in ((2, made), (3, AbortPayload(3))):
        closing = Block(CHAIN, 0, 9, round_number, BlockId(b"b" * 32), 8, payload)
        now = follow(now, closing, 4)
        assert now.roll.seed == vertex


def test_what_a_trainer_said_before_it_was_voted_in_is_no_strangers_word() -> None:
    """It says it again, and others show it, when the epoch that made it a member has begun."""
    validators, keys = known(), NEW[0]
    decided(validators, 1, enroll(0), vouch(1, 0))
    for number in (2, 3):
        decided(validators, number)
    domain = validators.domain(0)
    said = Signed(Statement(domain, Kind.OFFER, 4, 0, b"o" * 32), keys.node_id, b"signature")
    Inbound(validators).verify(said)
    seat = Validator(keys.node_id, 1)
    seats = tuple(sorted((*COMMITTEE.validators, seat), key=lambda each: each.node_id))
    validators.now = replace(validators.now, committee=Committee(seats))  # voted in meanwhile
    decided(validators, 4)
    assert validators.now.roll.entry_of(keys.node_id) is None
    assert validators.now.epoch == 1
    Inbound(validators).verify(said)
    assert not validators.rolls.has_drawn(keys.node_id, 1, 2)
    assert not validators.rolls.has_drawn(keys.node_id, 5, 8)
    stranger = replace(said, signer=NEW[1].node_id)
    with pytest.raises(PeerFault, match="unknown-signer"):
        Inbound(validators).verify(stranger)
