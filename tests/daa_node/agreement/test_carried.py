"""What a set carries beside contributions: item by item, what passes and what is refused."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from daa_consensus.bft.evidence import (
    VERDICT_ROUNDS_MAX,
    Evidence,
    conflict,
    contradiction,
    conviction,
    decode_evidence,
    encode_evidence,
)
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    OfferBody,
    SetPayload,
    decode_block,
    encode_block,
    encode_signed,
)
from daa_consensus.committee import Committee, Validator
from daa_consensus.membership import EXPIRY_EPOCHS_MAX, Membership
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    Speak,
    Stake,
    Withdraw,
    encode_operation,
    membership_operations,
    signers_of,
)
from daa_consensus.votes import SIGNATURE_BYTES_MAX, Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import BlobRoot, BlockId, ChainId, NodeId, VertexId
from daa_node.agreement.carried import loaded, why_unproven
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import Inbound
from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys, Validators

CHAIN = ChainId(b"c" * 32)
KEYS = [NodeKeys.from_seed(b"carried %d" % index) for index in range(8)]
MEMBERS, STRANGERS = KEYS[:4], KEYS[4:]
NAMES = [keys.node_id for keys in KEYS]
COMMITTEE = Committee(tuple(Validator(name, 1) for name in sorted(NAMES[:4])))
EPOCH_ROUNDS = 1


def history() -> Validators:
    """Four members; whoever is named has signed."""
    return Validators(
        CHAIN,
        EPOCH_ROUNDS,
        Membership(COMMITTEE),
        {keys.node_id: keys.ml_dsa_public_key for keys in MEMBERS},
        {keys.node_id: keys.peer_id for keys in MEMBERS},
        NAMES[:4],
        check=lambda *_: True,
    )


def asked(action: Action, expires_epoch: int = 4) -> Operation:
    pairs = tuple((name, b"signature") for name in signers_of(action))
    return Operation(Request(action, expires_epoch), pairs)


def card(index: int, peer: int) -> bytes:
    return MemberKeys.of(KEYS[index], KEYS[peer]).encode()


def join(index: int, peer: int | None = None, stake: int = 1, expires_epoch: int = 4) -> Operation:
    peer = index if peer is None else peer
    return asked(Join(NAMES[index], stake, card(index, peer)), expires_epoch)


def approve(index: int, operation: Operation) -> Operation:
    return asked(Approve(NAMES[index], operation.request.id))


def said(index: int, kind: Kind, value: canonical.Value, epoch: int = 0, view: int = 0) -> Signed:
    domain = history().domain(epoch)
    height = 1 if kind is Kind.OFFER else 0
    statement = Statement(domain, kind, view, height, value)
    return Signed(statement, NAMES[index], b"signature")


def offer(index: int, name: bytes) -> OfferBody:
    root = BlobRoot(name * 32)
    return OfferBody(1, NAMES[index], VertexId(b"v" * 32), root, 9, "int8", 1, 1, 1, 1, 0, ())


def offence(index: int, kind: Kind = Kind.NOTARIZE, epoch: int = 0, view: int = 3) -> bytes:
    return encode_evidence(equivocation(index, kind, epoch, view))


def equivocation(index: int, kind: Kind, epoch: int, view: int) -> Evidence:
    values: list[canonical.Value] = [b"x" * 32, b"y" * 32]
    if kind is Kind.OFFER:
        values = [offer(index, name).as_value() for name in (b"x", b"y")]
        view = 0
    found = conflict(*(said(index, kind, value, epoch, view) for value in values))
    assert found is not None
    return found


def rejoin(index: int, epoch: int = 0, nonce: bytes = b"n") -> bytes:
    return encode_signed(said(index, Kind.REJOIN, nonce * 32, epoch))


def facts_of(
    operations: Iterable[Operation] = (),
    proofs: Iterable[bytes] = (),
    rejoins: Iterable[bytes] = (),
) -> Facts:
    """As if everything had been taken in."""
    facts = Facts(Limits(4, 4))
    facts.operations = {operation.request.id: operation for operation in operations}
    facts.evidence = {
        NodeId(bytes([n]) * 32): decode_evidence(proof, Limits(9, 9))
        for n, proof in enumerate(proofs)
    }
    facts.rejoins = {NodeId(bytes([n]) * 32): held for n, held in enumerate(rejoins)}
    return facts


CHOSEN = SetPayload(1, (), (), "mean", 0, (), (), ())


def carried(facts: Facts, known: Validators) -> SetPayload:
    return loaded(CHOSEN, facts, Inbound(known))


def block_of(payload: SetPayload, view: int) -> Block:
    return Block(CHAIN, 0, view, payload.round, BlockId(b"p" * 32), view - 1, payload)


def test_one_bad_fact_costs_itself_only() -> None:
    bad, good = join(4, peer=0), join(5)
    words = [approve(0, bad), approve(3, good)]
    facts = facts_of([bad, good, *words], [offence(6), offence(1)], [rejoin(7), rejoin(2)])
    payload = carried(facts, history())
    assert payload.evidence == (offence(1),)
    assert set(payload.operations) == {
        rejoin(2),
        encode_operation(good),
        encode_operation(words[1]),
    }


def test_of_two_joins_with_one_peer_id_one_is_carried_and_the_other_never_again() -> None:
    first, second = join(4, peer=4), join(5, peer=4)
    held = [first, second, approve(0, first), approve(1, second)]
    known = history()
    payload = carried(facts_of(held), known)
    assert encode_operation(first) in payload.operations
    assert encode_operation(second) not in payload.operations
    known.follow([block_of(payload, 1)])
    assert carried(facts_of(held), known).operations == ()


def test_what_overflows_one_set_waits_for_the_next() -> None:
    known = history()
    facts = facts_of(proofs=[offence(3)], rejoins=[rejoin(n) for n in range(3)])
    joins = [join(4), join(5), join(6)]
    facts.operations = {
        o.request.id: o for o in [*joins, *(approve(n, j) for n, j in enumerate(joins))]
    }
    payload = carried(facts, known)
    assert len(payload.evidence) == 1
    assert len(payload.operations) == len(COMMITTEE.validators) + 1
    seen = list(payload.operations)
    for view in (1, 3, 5):
        known.follow([block_of(payload, view)])
        facts.settle(payload)
        facts.rejoins = {}
        facts.follow(known.now, known.domain)
        payload = carried(facts, known)
        seen += payload.operations
    assert {encode_operation(j) for j in joins} <= set(seen)


def test_evidence_of_more_bytes_than_one_set_holds_goes_into_the_next() -> None:
    known = history()
    whole = Certificate(
        said(0, Kind.EXEC, [b"x" * 32, b"y" * 32]).statement,
        tuple((name, b"s" * SIGNATURE_BYTES_MAX) for name in sorted(NAMES[:4])),
    )
    found = contradiction(said(3, Kind.EXEC, [b"x" * 32, b"z" * 32]), whole)
    assert found is not None
    large = encode_evidence(found)
    pairs = [encode_evidence(large_pair(index)) for index in (1, 2)]
    most = known.limits.evidence_total_bytes_max
    assert max(map(len, [large, *pairs])) <= most < len(large) + len(pairs[0]) + len(pairs[1])
    facts = facts_of(proofs=[*pairs, large])
    seen: list[bytes] = []
    for view in (1, 3):
        payload = carried(facts, known)
        assert sum(map(len, payload.evidence)) <= most
        assert decode_block(encode_block(block_of(payload, view)), known.limits).payload == payload
        known.follow([block_of(payload, view)])
        seen += payload.evidence
    assert sorted(seen) == sorted([*pairs, large])
    crowded = replace(CHOSEN, evidence=(*pairs, large))
    assert "bytes of evidence" in (why_unproven(crowded, Inbound(history())) or "")


def large_pair(index: int) -> Evidence:
    words = [said(index, Kind.NOTARIZE, value * 32, 0, 3) for value in (b"x", b"y")]
    found = conflict(*(replace(word, signature=b"s" * SIGNATURE_BYTES_MAX) for word in words))
    assert found is not None
    return found


def test_a_join_goes_into_a_set_with_a_word_that_sponsors_it_and_not_alone() -> None:
    wanted = join(4)
    assert carried(facts_of([wanted]), history()).operations == ()
    whole = [wanted, approve(0, wanted), approve(1, wanted)]
    found = carried(facts_of(reversed(whole)), history()).operations
    assert set(found) == {encode_operation(operation) for operation in whole}
    leave = asked(Leave(NAMES[3]))
    assert carried(facts_of([leave]), history()).operations == (encode_operation(leave),)


def test_a_join_whose_first_approver_sponsors_another_one_goes_in_with_the_word_of_the_next() -> (
    None
):
    known, first, second = history(), join(4), join(5)
    known.follow([block_of(carried(facts_of([first, approve(0, first)]), known), 1)])
    held = [second, approve(0, second), approve(1, second)]
    assert encode_operation(second) in carried(facts_of(held), known).operations


def test_a_set_carries_no_more_operations_than_it_may_and_always_a_sponsors_word() -> None:
    joins = [join(index) for index in (4, 5, 6, 7)]
    words = [approve(member, wanted) for wanted in joins for member in range(4)]
    found = carried(facts_of([*joins, *words]), history()).operations
    assert len(found) == len(COMMITTEE.validators) + 1
    assert history().now.decided(membership_operations(found)).waiting


def test_however_many_requests_there_are_approvals_of_what_waits_find_room() -> None:
    known, wanted = history(), join(4)
    known.follow([block_of(carried(facts_of([wanted, approve(0, wanted)]), known), 1)])
    requests = [*(asked(Stake(NAMES[n], 2)) for n in range(4)), join(5)]
    words = [approve(1, requests[-1]), approve(2, wanted), approve(3, wanted)]
    found = carried(facts_of([*requests, *words]), known).operations
    assert {encode_operation(word) for word in words[1:]} <= set(found)
    assert set(found) & {encode_operation(request) for request in requests}


def changed(proof: Iterable[bytes] = (), *carries: Operation | bytes) -> SetPayload:
    encoded = [each if isinstance(each, bytes) else encode_operation(each) for each in carries]
    return replace(CHOSEN, evidence=tuple(proof), operations=tuple(encoded))


def speak(index: int, version: int, expires_epoch: int = 1) -> Operation:
    return asked(Speak(NAMES[index], version), expires_epoch)


def test_a_member_has_one_place_to_say_what_it_speaks_and_a_set_takes_each_word_once() -> None:
    known = history()
    facts = facts_of([])
    for operation in (LEAVE, *(speak(index, 2) for index in (1, 2, 3))):
        assert facts.note_operation(operation, known.now, operation.request.action.subject)
    assert not facts.note_operation(speak(1, 3), known.now, NAMES[1])
    chosen = carried(facts, known)
    said = {encode_operation(speak(index, 2)) for index in (1, 2)}
    assert set(chosen.operations) == said | {encode_operation(LEAVE)}  # half is for approvals
    known.follow([block_of(chosen, 1)])
    facts.follow(known.now, known.domain)
    assert carried(facts, known).operations == (encode_operation(speak(3, 2)),)
    known.follow([Block(CHAIN, 0, 2, 1, BlockId(b"p" * 32), 1, AbortPayload(1))])
    facts.follow(known.now, known.domain)
    assert not facts.operations, "a word is for the epoch that it was said in"


def test_a_member_that_asks_for_much_at_once_takes_no_others_turn() -> None:
    """Three requests go into a set of four members, and one of them has as many at hand."""
    newcomer, waits = join(4), join(5)
    much = [speak(0, 9), asked(Stake(NAMES[0], 2)), newcomer, approve(0, newcomer)]
    others = [speak(1, 2), asked(Leave(NAMES[2]))]
    found = carried(facts_of([*much, *others]), history()).operations
    assert found == tuple(map(encode_operation, (much[0], *others)))
    # What a newcomer takes back is asked in its sponsor's turn, else each would bring one more.
    known = history()
    known.follow([block_of(changed([], approve(0, waits), waits), 1)])
    back = asked(Withdraw(NAMES[5], waits.request.id))
    words = [speak(1, 2), asked(Leave(NAMES[2])), speak(3, 2)]
    found = carried(facts_of([speak(0, 9), back, *words]), known).operations
    assert found == tuple(map(encode_operation, (speak(0, 9), *words[:2])))


def test_whoever_asks_for_something_may_say_what_it_speaks_besides() -> None:
    known, facts = history(), facts_of([])
    for operation in (asked(Stake(NAMES[1], 2)), speak(1, 2), asked(Leave(NAMES[1]))):
        assert facts.note_operation(operation, known.now, NAMES[1])


SOME_JOIN, LEAVE = join(4), asked(Leave(NAMES[0]))


@pytest.mark.parametrize(
    ("proposed", "why"),
    [
        (changed([b"none"]), "evidence"),
        (changed([offence(1), offence(1)]), "convicts no member, or again"),
        (changed([offence(1), offence(1, view=2)]), "convicts no member, or again"),
        (changed([offence(5)]), "convicts no member"),
        (changed([], rejoin(1), rejoin(1)), "or again"),
        (changed([], rejoin(1), rejoin(1, nonce=b"m")), "or again"),
        (changed([], rejoin(5)), "no member"),
        (changed([], SOME_JOIN), "read and forgotten"),
        (changed([], approve(5, SOME_JOIN), SOME_JOIN), "no key is known"),
        (changed([], LEAVE, LEAVE), "stands there already"),
        (changed([], LEAVE, asked(Stake(NAMES[0], 3))), "read and forgotten"),
        (changed([], asked(Leave(NAMES[0]), EXPIRY_EPOCHS_MAX + 2)), "read and forgotten"),
        (changed([], approve(0, join(4, peer=1)), join(4, peer=1)), "is another member"),
        (
            changed([], approve(0, SOME_JOIN), SOME_JOIN, approve(1, join(5, 4)), join(5, 4)),
            "two newcomers are one peer",
        ),
        (changed([], approve(0, SOME_JOIN), approve(0, SOME_JOIN)), "stands there already"),
        (changed([], *[approve(0, join(4, stake=n)) for n in range(1, 7)]), "5 operations at most"),
        (changed([], speak(1, 2), speak(1, 3)), "read and forgotten"),
        (changed([], speak(1, 2), speak(1, 2)), "stands there already"),
        (changed([], speak(1, 1)), "read and forgotten"),
        (changed([], speak(1, 2, expires_epoch=2)), "read and forgotten"),
        (changed([offence(1)], speak(1, 2)), "read and forgotten"),
    ],
)
def test_a_voter_refuses_what_no_honest_leader_carries(proposed: SetPayload, why: str) -> None:
    reason = why_unproven(proposed, Inbound(history()))
    assert reason is not None
    assert why in reason


def test_what_waits_in_the_chain_is_not_carried_again() -> None:
    known = history()
    known.follow([block_of(changed([], approve(0, SOME_JOIN), SOME_JOIN), 1)])
    reason = why_unproven(changed([], approve(1, SOME_JOIN), SOME_JOIN), Inbound(known))
    assert reason is not None
    assert "read and forgotten" in reason
    words = [approve(1, SOME_JOIN), approve(2, SOME_JOIN)]
    assert carried(facts_of([SOME_JOIN, *words]), known).operations == tuple(
        encode_operation(word) for word in words
    )


def test_whose_word_it_is_is_asked_each_time_and_not_remembered() -> None:
    """Of the next epoch a statement counts while its committee may be the same, and no longer."""
    known = history()
    inbound = Inbound(known)
    early = offence(1, epoch=1)
    assert carried(facts_of(proofs=[early]), known).evidence == (early,)
    assert why_unproven(changed([early]), inbound) is None
    blocks = [
        block_of(changed([], LEAVE), 1),
        Block(CHAIN, 0, 2, 1, BlockId(b"s" * 32), 1, AbortPayload(1)),
    ]
    known.follow(blocks)
    assert known.now.epoch == 1
    assert known.domain(1) != history().domain(1)
    reason = why_unproven(changed([early]), inbound)
    assert reason is not None
    assert "signed for chain" in reason


def test_evidence_that_a_change_of_members_makes_void_shields_nobody() -> None:
    """Who is about to offend offends first in the name of an epoch that never comes so."""
    known = history()
    facts = Facts(known.limits)
    void, real = equivocation(1, Kind.OFFER, 1, 0), equivocation(1, Kind.NOTARIZE, 0, 3)
    assert facts.note_evidence(void, known.now)
    blocks = [
        block_of(changed([], LEAVE), 1),
        Block(CHAIN, 0, 2, 1, BlockId(b"s" * 32), 1, AbortPayload(1)),
        block_of(replace(CHOSEN, round=2), 3),
        Block(CHAIN, 1, 4, 2, BlockId(b"s" * 32), 3, AbortPayload(2)),
    ]
    known.follow(blocks)
    facts.follow(known.now, known.domain)
    assert carried(facts, known).evidence == ()
    assert facts.note_evidence(real, known.now)
    assert carried(facts, known).evidence == (encode_evidence(real),)


def test_who_waits_to_be_a_member_has_a_key_and_says_nothing_yet() -> None:
    known, wanted = history(), join(4)
    known.follow([block_of(changed([], approve(0, wanted), wanted), 1)])
    assert NAMES[4] in known.public_keys
    for kind in (Kind.OFFER, Kind.NOTARIZE, Kind.REJOIN):
        value = offer(4, b"x").as_value() if kind is Kind.OFFER else b"x" * 32
        with pytest.raises(PeerFault, match="unknown-signer"):
            Inbound(known).verify(said(4, kind, value))


def verdict(convicted: int, round_: int, signers: Iterable[int] = (0, 1, 2)) -> bytes:
    domain = history().domain(0)
    value: list[canonical.Value] = [NAMES[convicted], b"a" * 32]
    statement = Statement(domain, Kind.VERDICT, 0, round_, value)
    pairs = tuple(sorted((NAMES[signer], b"signature") for signer in signers))
    evidence = conviction(Certificate(statement, pairs))
    assert evidence is not None
    return encode_evidence(evidence)


def test_a_quorums_verdict_convicts_and_one_of_fewer_does_not() -> None:
    known = history()
    assert carried(facts_of(proofs=[verdict(3, 1)]), known).evidence == (verdict(3, 1),)
    known.follow([block_of(carried(facts_of(proofs=[verdict(3, 1)]), known), 1)])
    assert known.now.convicted == (NAMES[3],)
    few = verdict(3, 1, signers=(0, 1))
    assert carried(facts_of(proofs=[few]), history()).evidence == ()
    fault = why_unproven(replace(CHOSEN, evidence=(few,)), Inbound(history()))
    assert fault is not None
    assert "no-quorum" in fault


def test_a_verdict_of_a_round_to_come_or_long_past_is_refused() -> None:
    late = replace(CHOSEN, round=1 + VERDICT_ROUNDS_MAX)
    inbound = Inbound(history())
    for round_, passes in ((1, True), (0, False), (2 + VERDICT_ROUNDS_MAX, False)):
        proof = verdict(3, round_)
        fault = why_unproven(replace(late, evidence=(proof,)), inbound)
        assert (fault is None) is passes
        assert bool(loaded(late, facts_of(proofs=[proof]), inbound).evidence) is passes


def test_a_verdict_that_can_be_carried_no_more_keeps_no_other_evidence_out() -> None:
    facts = Facts(Limits(4, 4))
    known = history()
    assert facts.note_evidence(decode_evidence(verdict(3, 1), Limits(9, 9)), known.now)
    assert not facts.note_evidence(decode_evidence(offence(3), Limits(9, 9)), known.now)
    facts.settle(replace(CHOSEN, round=VERDICT_ROUNDS_MAX))
    assert not facts.note_evidence(decode_evidence(offence(3), Limits(9, 9)), known.now)
    facts.settle(replace(CHOSEN, round=VERDICT_ROUNDS_MAX + 1))
    assert facts.note_evidence(decode_evidence(offence(3), Limits(9, 9)), known.now)
