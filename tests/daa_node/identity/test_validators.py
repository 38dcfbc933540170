"""The history of validators: led on by final blocks, asked by everybody who checks a signature."""

import random
from dataclasses import replace

import pytest

from daa_consensus.bft.evidence import conflict, encode_evidence
from daa_consensus.bft.messages import AbortPayload, Block, SetPayload, genesis_block
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.enrolment import (
    Enroll,
    Enrolment,
    Retire,
    TrainerRequest,
    Vouch,
    encode_enrolment,
)
from daa_consensus.errors import BadMessage
from daa_consensus.membership import Membership
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    Rotate,
    Withdraw,
    decode_operation,
    encode_operation,
    signers_of,
)
from daa_consensus.roll import Admission, Roll, RollRules
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import ChainId, Digest, NodeId, VertexId
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.messages import Asked, Greeting, Message, Position, Stated
from daa_node.errors import PeerFault
from daa_node.identity.envelope import Check, sign
from daa_node.identity.keys import NodeKeys, verify
from daa_node.identity.validators import (
    LATER_EPOCH,
    TAKEN,
    MemberKeys,
    Validators,
    decode_member_keys,
    recall,
    record_of,
)
from daa_node.identity.validators_record import decode_validators, encode_validators

CHAIN = ChainId(b"c" * 32)
GENESIS = genesis_block(CHAIN, VertexId(bytes(32)))
KEYS = sorted((NodeKeys.from_seed(bytes([i])) for i in range(4)), key=lambda k: k.node_id)
NEWCOMER = NodeKeys.from_seed(b"newcomer")
BY_NODE = {keys.node_id: keys for keys in (*KEYS, NEWCOMER)}


def history(rounds: int = 1, check: Check = verify) -> Validators:
    committee = Committee(tuple(Validator(keys.node_id, 1) for keys in KEYS))
    return Validators(
        CHAIN,
        rounds,
        Membership(committee),
        {keys.node_id: keys.ml_dsa_public_key for keys in KEYS},
        {keys.node_id: keys.peer_id for keys in KEYS},
        [keys.node_id for keys in KEYS[:3]],
        check,
    )


def card(keys: NodeKeys) -> bytes:
    return MemberKeys.of(keys).encode()


def signed(action: Action, chain_id: ChainId = CHAIN, expires: int = 9) -> Operation:
    request = Request(action, expires)
    said = request.statement(chain_id)
    return Operation(
        request,
        tuple(
            (name, BY_NODE[name].sign(said.sign_bytes(), said.context))
            for name in signers_of(action)
        ),
    )


JOIN = signed(Join(NEWCOMER.node_id, 1, card(NEWCOMER)))
APPROVED = [JOIN, *(signed(Approve(keys.node_id, JOIN.request.id)) for keys in KEYS[:3])]


def blocks_of_round(
    number: int, epoch: int, operations: list[Operation], evidence: tuple[bytes, ...] = ()
) -> list[Block]:
    """A round that decides these, and its closing."""
    encoded = tuple(encode_operation(operation) for operation in operations)
    payload = SetPayload(number, (), (), "mean", 0, evidence, encoded, ())
    view = 2 * number - 1
    decided = Block(CHAIN, epoch, view, number, GENESIS.id, view - 1, payload)
    closing = Block(CHAIN, epoch, view + 1, number, decided.id, view, AbortPayload(number))
    return [decided, closing]


def epoch_of_blocks(epoch: int, operations: list[Operation]) -> list[Block]:
    """An epoch of one round."""
    return blocks_of_round(epoch + 1, epoch, operations)


def certificate(domain: Domain, signers: list[NodeKeys]) -> Certificate:
    said = Statement(domain, Kind.FINALIZE, 5, 2, b"b" * 32)
    pairs = sorted((k.node_id, k.sign(said.sign_bytes(), said.context)) for k in signers)
    return Certificate(said, tuple(pairs))


def test_a_thousand_epochs_that_change_nothing_are_remembered_as_one() -> None:
    validators = history()
    for epoch in range(1000):
        validators.follow(epoch_of_blocks(epoch, []))
    assert validators.now.epoch == 1000
    assert len({id(validators.committee(epoch)) for epoch in range(1001)}) == 1
    assert len(validators._epochs.runs()) == 1


def test_each_epoch_is_judged_by_its_own_committee_and_keys() -> None:
    validators = history()
    assert validators.follow(epoch_of_blocks(0, APPROVED))
    assert NEWCOMER.node_id in validators.committee(1).stake_of
    validators.verify(certificate(validators.domain(0), KEYS[:3]))
    validators.verify(certificate(validators.domain(1), [*KEYS[:3], NEWCOMER]))
    for domain, signers in (
        (validators.domain(1), KEYS[:3]),
        (validators.domain(0), [*KEYS[:2], NEWCOMER]),
        (Domain(CHAIN, 1, validators.domain(0).validator_set_root), KEYS),
    ):
        with pytest.raises(PeerFault) as refused:
            validators.verify(certificate(domain, signers))
        assert refused.value.reason != LATER_EPOCH


def test_what_is_of_a_later_epoch_is_no_lie_and_counts_if_it_is_of_the_same_committee() -> None:
    ahead, behind = history(), history()
    ahead.follow(epoch_of_blocks(0, APPROVED))
    with pytest.raises(PeerFault) as refused:
        behind.verify(certificate(ahead.domain(1), [*KEYS[:3], NEWCOMER]))
    assert refused.value.reason == LATER_EPOCH
    behind.verify(certificate(behind.domain(7), KEYS[:3]))


def test_blocks_that_were_taken_in_before_change_nothing() -> None:
    validators = history()
    blocks = epoch_of_blocks(0, APPROVED)
    validators.follow(blocks)
    assert not validators.follow(blocks)
    assert validators.now.epoch == 1


def test_a_record_tells_a_later_process_all_that_the_chain_told() -> None:
    ahead = history()
    evidence = (equivocation(KEYS[1], ahead.domain(0)),)
    ahead.follow([*blocks_of_round(1, 0, APPROVED, evidence), *epoch_of_blocks(1, [])])
    for epoch in range(2, 100):
        ahead.follow(epoch_of_blocks(epoch, []))
    later = history()
    recall(later, decode_validators(encode_validators(record_of(ahead))))
    assert record_of(later) == record_of(ahead)
    assert (later.listeners, later.limits) == (ahead.listeners, ahead.limits)
    for round_number in range(1, 102):
        assert later.contributors(round_number) == ahead.contributors(round_number)
        epoch = later.epoch_of(round_number)
        assert later.committee(epoch) == ahead.committee(epoch)
    assert later._epochs.runs() == ahead._epochs.runs()
    assert not later.follow(epoch_of_blocks(99, []))  # taken in before
    more = epoch_of_blocks(100, [])
    assert later.follow(more) == ahead.follow(more)
    assert later.now == ahead.now


TRAINERS = [NodeKeys.from_seed(b"trainer %d" % i) for i in range(6)]


def history_with_roll() -> Validators:
    """Of a network in which members vouch for trainers."""
    roll = Roll(RollRules(Admission.VOUCHED, per_voucher=2, contributors_max=6))
    committee = Committee(tuple(Validator(keys.node_id, 1) for keys in KEYS))
    return Validators(
        CHAIN,
        3,
        Membership(committee, roll=roll),
        {keys.node_id: keys.ml_dsa_public_key for keys in KEYS},
        {keys.node_id: keys.peer_id for keys in KEYS},
        [keys.node_id for keys in KEYS[:3]],
    )


def random_round(number: int, rng: random.Random) -> list[Block]:
    """Trainers ask to come and to go, members vouch, some contribute, and one may lie."""
    asked: list[Enrolment] = []
    for keys in rng.sample(TRAINERS, 2):
        enroll = TrainerRequest(Enroll(keys.node_id, card(keys)), number + 5)
        vouch = TrainerRequest(Vouch(rng.choice(KEYS).node_id, enroll.id), number + 5)
        asked += [Enrolment(enroll, b"-"), Enrolment(vouch, b"-")]
        if rng.randrange(2):
            asked.append(
                Enrolment(TrainerRequest(Retire(keys.node_id, keys.node_id), number + 5), b"-")
            )
    operations = tuple(map(encode_enrolment, asked))
    evidence = (
        (equivocation(rng.choice(TRAINERS), history().domain(0)),) if rng.randrange(6) == 0 else ()
    )
    decided, closing = blocks_of_round(number, (number - 1) // 3, [], evidence)
    assert isinstance(decided.payload, SetPayload)
    payload = replace(decided.payload, operations=operations)
    decided = replace(decided, payload=payload)
    return [decided, replace(closing, parent_id=decided.id)]


@pytest.mark.parametrize("seed", range(3))
def test_a_record_of_a_chain_with_trainers_leads_on_to_the_same(seed: int) -> None:
    """Cut anywhere, between a set and its closing as well."""
    rng, ahead, left = random.Random(seed), history_with_roll(), set[NodeId]()
    roots, drawn = dict[int, Digest](), dict[int, tuple[NodeId, ...]]()
    for number in range(1, 40):
        for block in random_round(number, rng):
            later = history_with_roll()
            recall(later, decode_validators(encode_validators(record_of(ahead))))
            assert record_of(later) == record_of(ahead)
            for each in (later, ahead):
                each.follow([block])
            assert record_of(later) == record_of(ahead)
            assert (later.listeners, later.limits) == (ahead.listeners, ahead.limits)
            assert later.contributors(number) == ahead.contributors(number)
            if isinstance(block.payload, SetPayload):
                roots[number] = ahead.now.roll.root
        drawn[number + 1] = ahead.contributors(number + 1)
        left |= set(record_of(ahead).gone)
    for number, root in roots.items():  # what was long ago is told as it was then
        assert later.rolls.root(number) == root
    for number, names in drawn.items():
        if number < max(drawn):
            assert later.contributors(number) == names
    assert left
    assert len(record_of(ahead).rolls.drawn) > 10


def test_a_year_of_epochs_takes_no_room_in_a_record() -> None:
    validators = history()
    short = len(encode_validators(record_of(validators)))
    for epoch in range(3000):
        validators.follow(epoch_of_blocks(epoch, []))
    assert len(encode_validators(record_of(validators))) < short + 20
    with pytest.raises(BadMessage):
        decode_validators(b"\x01")


def test_a_copy_goes_its_own_way() -> None:
    validators = history()
    ahead = validators.copy()
    ahead.follow(epoch_of_blocks(0, APPROVED))
    assert (validators.now.epoch, ahead.now.epoch) == (0, 1)
    assert NEWCOMER.node_id not in validators.public_keys


def test_contributors_and_listeners_follow_the_members() -> None:
    validators = history()
    assert KEYS[3].node_id not in validators.contributors(1)
    validators.follow(epoch_of_blocks(0, APPROVED)[:1])
    assert NEWCOMER.node_id in validators.listeners  # it is about to begin
    validators.follow(epoch_of_blocks(0, APPROVED))
    assert NEWCOMER.node_id in validators.contributors(2)
    gone = KEYS[0].node_id
    validators.follow(epoch_of_blocks(1, [signed(Leave(gone))]))
    assert gone not in validators.contributors(3)
    assert gone in validators.contributors(2)
    assert gone in validators.listeners  # it has just stopped
    validators.follow(epoch_of_blocks(2, []))
    assert gone not in validators.listeners


def test_keys_of_whom_nobody_let_in_are_forgotten_when_their_request_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else one member that sponsors ever new keys makes everybody remember all of them."""
    validators, sponsor = history(), KEYS[0].node_id
    members = {keys.node_id for keys in KEYS}
    for epoch in range(0, 12, 2):
        newcomer = NodeKeys.from_seed(f"sybil {epoch}".encode())
        monkeypatch.setitem(BY_NODE, newcomer.node_id, newcomer)
        join = signed(Join(newcomer.node_id, 1, card(newcomer)), expires=epoch + 1)
        approve = signed(Approve(sponsor, join.request.id), expires=epoch + 1)
        validators.follow(epoch_of_blocks(epoch, [join, approve]))
        assert set(validators.peer_ids) == set(validators.public_keys)
        assert set(validators.public_keys) == members | {newcomer.node_id}  # it may be let in yet
        validators.follow(epoch_of_blocks(epoch + 1, []))  # it expires
        assert set(validators.public_keys) == set(validators.peer_ids) == members
    validators.check_operation(JOIN)


def test_a_withdrawn_request_gives_name_and_peer_back_at_once() -> None:
    validators, sponsor = history(rounds=9), KEYS[0].node_id
    successor = MemberKeys.of(NEWCOMER).encode()
    rotate = signed(Rotate(sponsor, NEWCOMER.node_id, successor))
    validators.follow(blocks_of_round(1, 0, [rotate]))
    assert NEWCOMER.node_id in validators.copy().public_keys
    asking = validators.copy()
    withdrawn = signed(Withdraw(sponsor, rotate.request.id))
    for history_of_one in (validators, asking):
        history_of_one.follow(blocks_of_round(2, 0, [withdrawn]))
        assert NEWCOMER.node_id not in history_of_one.public_keys
        assert NEWCOMER.node_id not in history_of_one.peer_ids


def test_who_takes_anothers_place_in_the_queue_is_known_and_the_other_one_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    validators, sponsor, other = history(rounds=9), KEYS[0].node_id, NodeKeys.from_seed(b"other")
    monkeypatch.setitem(BY_NODE, other.node_id, other)
    rotate = signed(Rotate(sponsor, NEWCOMER.node_id, card(NEWCOMER)))
    validators.follow(blocks_of_round(1, 0, [rotate]))
    join = signed(Join(other.node_id, 1, card(other)))
    approve = signed(Approve(sponsor, join.request.id))
    withdraw = signed(Withdraw(sponsor, rotate.request.id))
    validators.follow(blocks_of_round(2, 0, [withdraw, join, approve]))
    everybody = {keys.node_id for keys in (*KEYS, other)}
    assert validators.public_keys.keys() == validators.peer_ids.keys() == everybody


def test_keys_of_former_members_stay_for_what_they_signed() -> None:
    validators, gone = history(), KEYS[0].node_id
    validators.follow(epoch_of_blocks(0, APPROVED))
    validators.follow(epoch_of_blocks(1, [signed(Leave(NEWCOMER.node_id)), signed(Leave(gone))]))
    for epoch in range(2, 12):
        validators.follow(epoch_of_blocks(epoch, []))
    assert {gone, NEWCOMER.node_id}.isdisjoint(validators.now.committee.stake_of)
    validators.verify(certificate(validators.domain(1), [*KEYS[:3], NEWCOMER]))


def test_keys_of_who_had_a_seat_and_asks_for_it_again_stay_for_what_they_signed() -> None:
    """Else whoever lets a Join of its own wait takes back its part in every certificate."""
    validators, former = history(), KEYS[0].node_id
    validators.follow(epoch_of_blocks(0, [JOIN, signed(Approve(former, JOIN.request.id))]))
    rotate = signed(Rotate(former, NEWCOMER.node_id, card(NEWCOMER)))
    agreed = [signed(Approve(keys.node_id, rotate.request.id)) for keys in KEYS[:3]]
    validators.follow(epoch_of_blocks(1, [rotate, *agreed]))
    validators.follow(epoch_of_blocks(2, []))
    assert NEWCOMER.node_id in validators.now.committee.stake_of
    assert validators.now.waiting  # its Join, all the same
    proof = certificate(validators.domain(3), [*KEYS[1:3], NEWCOMER])
    validators.verify(proof)
    offence = equivocation(NEWCOMER, validators.domain(3))
    validators.follow(blocks_of_round(4, 3, [], (offence,)))  # it goes, and the Join with it
    assert validators.now.expelled == (NEWCOMER.node_id,)
    assert not validators.now.waiting
    validators.verify(proof)


def equivocation(offender: NodeKeys, domain: Domain) -> bytes:
    words = []
    for value in (b"x" * 32, b"y" * 32):
        said = Statement(domain, Kind.NOTARIZE, 1, 1, value)
        signature = offender.sign(said.sign_bytes(), said.context)
        words.append(Signed(said, offender.node_id, signature))
    found = conflict(*words)
    assert found is not None
    return encode_evidence(found)


def test_who_is_convicted_contributes_no_more_and_votes_until_the_epoch_ends() -> None:
    validators, liar = history(rounds=2), KEYS[1].node_id
    decided, closing = blocks_of_round(1, 0, [], (equivocation(KEYS[1], validators.domain(0)),))
    assert validators.convicted_by(decided) == (liar,)  # before it is followed, too
    validators.follow([decided])
    assert validators.convicted_by(decided) == (liar,)
    assert liar in validators.contributors(1)  # its round has begun
    validators.follow([closing])
    assert liar not in validators.contributors(2)
    assert liar in validators.committee(0).stake_of
    more = blocks_of_round(2, 0, [])
    validators.follow(more)
    assert liar not in validators.committee(1).stake_of
    assert validators.now.expelled == (liar,)
    assert liar not in validators.contributors(3)
    third = blocks_of_round(3, 1, [])
    assert validators.convicted_by(third[0]) == ()  # the name is gone from the list
    assert validators.convicted_by(more[0]) == (liar,)  # and a reader of the past finds it there


def test_a_seat_that_changes_hands_contributes_if_it_did() -> None:
    validators = history()
    old = KEYS[1].node_id
    rotate = signed(Rotate(old, NEWCOMER.node_id, card(NEWCOMER)))
    validators.check_operation(rotate)
    words = [signed(Approve(keys.node_id, rotate.request.id)) for keys in KEYS[:3]]
    validators.follow(epoch_of_blocks(0, [rotate, *words]))
    assert old in validators.committee(1).stake_of  # for a whole epoch it may object
    validators.follow(epoch_of_blocks(1, []))
    assert NEWCOMER.node_id in validators.contributors(3)
    assert old not in validators.committee(2).stake_of


def test_limits_leave_room_for_the_next_epoch_and_never_shrink() -> None:
    validators = history()
    limits = validators.limits
    assert limits.validators == 4 + 4 // 3 + 1
    validators.follow(epoch_of_blocks(0, APPROVED))
    assert limits.validators == 5 + 5 // 3 + 1
    validators.follow(epoch_of_blocks(1, [signed(Leave(KEYS[0].node_id))]))
    assert limits.validators == 5 + 5 // 3 + 1


def test_only_signatures_by_the_keys_that_it_binds_make_an_operation() -> None:
    validators = history()
    for operation in APPROVED:
        validators.check_operation(operation)
    elsewhere = signed(Leave(KEYS[0].node_id), ChainId(b"d" * 32))
    forged = Operation(
        JOIN.request, ((NEWCOMER.node_id, signed(Leave(KEYS[0].node_id)).signatures[0][1]),)
    )
    unknown = signed(Leave(NEWCOMER.node_id))
    other_keys = signed(Join(NEWCOMER.node_id, 1, card(KEYS[0])))
    taken_peer = MemberKeys.of(NEWCOMER, KEYS[0]).encode()
    as_another = signed(Join(NEWCOMER.node_id, 1, taken_peer))
    for operation in (elsewhere, forged, unknown, other_keys, as_another):
        with pytest.raises(PeerFault) as refused:
            validators.check_operation(operation)
        # Whoever passes on a word of a member that we have not heard of is no liar.
        assert (refused.value.reason == LATER_EPOCH) is (operation is unknown)
        assert (refused.value.reason == TAKEN) is (operation is as_another)


def test_nobody_takes_the_peer_id_of_another_who_has_not_agreed() -> None:
    victim, thief = NodeKeys.from_seed(b"victim"), MemberKeys.of(NEWCOMER)
    claimed = replace(thief, peer_id=victim.peer_id)
    validators = history()
    with pytest.raises(PeerFault, match="has not agreed"):
        validators.check_operation(signed(Join(NEWCOMER.node_id, 1, claimed.encode())))
    seen = MemberKeys.of(victim)  # what the victim itself said elsewhere proves nothing for others
    copied = replace(thief, peer_id=seen.peer_id, proof=seen.proof)
    with pytest.raises(PeerFault, match="has not agreed"):
        validators.check_operation(signed(Join(NEWCOMER.node_id, 1, copied.encode())))
    validators.check_operation(JOIN)


def test_a_request_that_the_chain_has_overtaken_is_held_against_nobody() -> None:
    """Who has not seen yet that the name or peer id was given away sends it again in good faith."""
    rival = NodeKeys.from_seed(b"rival")
    brought = MemberKeys.of(rival, NEWCOMER)
    request = Request(Join(rival.node_id, 1, brought.encode()), 9)
    said = request.statement(CHAIN)
    theirs = Operation(request, ((rival.node_id, rival.sign(said.sign_bytes(), said.context)),))
    validators = history()
    inbound = Inbound(validators)
    message = Message(Position(0, 1, 0, 0, 0), Asked(theirs))
    assert inbound.checked(message) == message
    validators.follow(epoch_of_blocks(0, APPROVED))
    assert inbound.checked(message).body == Greeting()
    forged = Asked(Operation(request, ((rival.node_id, bytes(len(theirs.signatures[0][1]))),)))
    with pytest.raises(PeerFault, match="bad-signature"):
        inbound.checked(replace(message, body=forged))


def test_an_operation_that_is_told_again_is_verified_once() -> None:
    checked: list[bytes] = []

    def check(public_key: bytes, signature: bytes, payload: bytes, context: bytes) -> bool:
        checked.append(signature)
        return verify(public_key, signature, payload, context)

    inbound = Inbound(history(check=check))
    for _ in range(3):
        message = Message(Position(0, 1, 0, 0, 0), Asked(decode_operation(encode_operation(JOIN))))
        assert inbound.checked(message) == message
    assert len(checked) == 1


def test_another_signature_on_a_statement_that_was_believed_is_verified_anew() -> None:
    validators = history()
    inbound = Inbound(validators)
    statement = Statement(validators.domain(0), Kind.NULLIFY, 3, 0, None)
    signed = sign(statement, KEYS[0])
    message = Message(Position(0, 3, 0, 0, 0), Stated(signed))
    for _ in range(2):
        assert inbound.checked(message) == message
        forged = replace(signed, signature=bytes(len(signed.signature)))
        with pytest.raises(PeerFault, match="bad-signature"):
            inbound.checked(replace(message, body=Stated(forged)))


def test_keys_read_back_as_they_were_written_and_nothing_else_does() -> None:
    assert decode_member_keys(card(NEWCOMER), NEWCOMER.node_id).encode() == card(NEWCOMER)
    for payload in (b"", b"\x90", card(KEYS[0]), card(NEWCOMER) + b"\0"):
        with pytest.raises(PeerFault):
            decode_member_keys(payload, NEWCOMER.node_id)
