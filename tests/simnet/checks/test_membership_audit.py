"""The audit of committees: what no boundary may do is seen, whoever computed it."""

from dataclasses import replace

import pytest

from daa_consensus.bft.evidence import conflict, encode_evidence
from daa_consensus.bft.messages import Block, ResultPayload, SetPayload, genesis_block
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.membership import Membership
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    Rotate,
    Stake,
    Withdraw,
    encode_operation,
    signers_of,
)
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import ChainId, Digest, NodeId, VertexId
from simnet.checks.membership_audit import MembershipAudit, is_hopeless
from simnet.world.scenario import ChangeConfig

CHAIN = ChainId(b"c" * 32)
GENESIS = genesis_block(CHAIN, VertexId(bytes(32)))
NODES = [NodeId(bytes([65 + i]) * 32) for i in range(7)]
FOUR = Committee(tuple(Validator(node, 2) for node in NODES[:4]))
RESULT = ResultPayload(1, VertexId(bytes(32)), Digest(bytes(32)))


def asked(*actions: Action, expires: int = 4) -> Block:
    """The first round's set with these requests."""
    requests = [Request(action, expires) for action in actions]
    operations = tuple(
        encode_operation(Operation(r, tuple((name, b"s") for name in signers_of(r.action))))
        for r in requests
    )
    payload = SetPayload(1, (), (), "mean", 0, (), operations, ())
    return Block(CHAIN, 0, 1, 1, GENESIS.id, 0, payload)


def approved(action: Action, count: int = 4) -> list[Action]:
    name = Request(action, 4).id
    return [action, *(Approve(node, name) for node in NODES[:count])]


CLOSING = Block(CHAIN, 0, 2, 1, GENESIS.id, 1, RESULT)
JOIN = Join(NODES[4], 1, b"keys")


@pytest.mark.parametrize(
    ("actions", "stakes"),
    [
        (approved(JOIN), {**FOUR.stake_of, NODES[4]: 1}),
        ([Leave(NODES[0])], {node: 2 for node in NODES[1:4]}),
        (approved(Rotate(NODES[0], NODES[5], b"k")), FOUR.stake_of),  # it waits an epoch
        ([Stake(NODES[0], 1)], {**FOUR.stake_of, NODES[0]: 1}),
        (approved(JOIN, count=2), FOUR.stake_of),  # nobody agreed: it waits
    ],
)
def test_a_boundary_makes_of_the_stakes_what_the_requests_say(
    actions: list[Action], stakes: dict[NodeId, int]
) -> None:
    audit = MembershipAudit(FOUR, epoch_rounds=1)
    assert audit.extend(asked(*actions)) is None
    assert audit.committee(1) is None
    assert audit.extend(CLOSING) is None
    made = audit.committee(1)
    assert made is not None
    assert made.stake_of == stakes


def test_a_rotation_that_nobody_could_object_to_or_that_somebody_did_is_seen() -> None:
    rotate = Rotate(NODES[0], NODES[5], b"k")
    made = _made({node: 2 for node in (*NODES[1:4], NODES[5])}, rotate)
    assert "whole epoch" in str(_boundary_that(made, *approved(rotate)))
    audit = MembershipAudit(FOUR, epoch_rounds=1)
    audit.extend(asked(*approved(rotate)))
    later = replace(made, epoch=2)
    assert audit.fault(FOUR, later) is None
    audit.extend(asked(Withdraw(NODES[0], Request(rotate, 4).id)))
    assert "withdrawn" in str(audit.fault(FOUR, later))


def _boundary_that(changed: Membership, *actions: Action) -> str | None:
    """What the audit says of a boundary that came to `changed`."""
    audit = MembershipAudit(FOUR, epoch_rounds=1)
    assert audit.extend(asked(*actions)) is None
    return audit.fault(FOUR, changed)


def _made(stakes: dict[NodeId, int], *applied: Action, expires: int = 4) -> Membership:
    committee = Committee(tuple(Validator(node, stakes[node]) for node in sorted(stakes)))
    return Membership(committee, 1, applied=tuple(Request(a, expires) for a in applied))


def test_what_no_set_asked_for_or_expired_or_nobody_approved_is_seen() -> None:
    joined = {**FOUR.stake_of, NODES[4]: 1}
    assert _boundary_that(_made(joined, JOIN), *approved(JOIN)) is None
    assert "asked for by no set" in str(_boundary_that(_made(joined, JOIN)))
    assert "approval" in str(_boundary_that(_made(joined, JOIN), *approved(JOIN, count=2)))
    left = {node: 2 for node in NODES[1:4]}
    late = _made(left, Leave(NODES[0]), expires=0)
    audit = MembershipAudit(FOUR, epoch_rounds=1)
    audit.extend(asked(Leave(NODES[0]), expires=0))
    assert "expired" in str(audit.fault(FOUR, late))


def equivocation(name: NodeId, epoch: int = 0) -> bytes:
    domain = Domain(CHAIN, epoch, FOUR.root)
    words = [
        Signed(Statement(domain, Kind.NOTARIZE, 1, 1, bytes([i]) * 32), name, b"s") for i in (1, 2)
    ]
    found = conflict(*words)
    assert found is not None
    return encode_evidence(found)


def accusing(name: NodeId) -> Block:
    decided = asked()
    assert isinstance(decided.payload, SetPayload)
    return replace(decided, payload=replace(decided.payload, evidence=(equivocation(name),)))


def test_who_is_convicted_is_expelled_and_nobody_else() -> None:
    left = {node: 2 for node in NODES[1:4]}
    audit = MembershipAudit(FOUR, epoch_rounds=1)
    assert audit.extend(accusing(NODES[0])) is None
    assert audit.extend(CLOSING) is None
    assert audit.now.committee.stake_of == left
    audit = MembershipAudit(FOUR, epoch_rounds=1)
    audit.extend(accusing(NODES[0]))
    assert "somebody should be" in str(audit.fault(FOUR, _made(FOUR.stake_of)))
    other = replace(_made({n: 2 for n in (*NODES[:1], *NODES[2:4])}), expelled=(NODES[1],))
    assert "no evidence convicts it" in str(audit.fault(FOUR, other))


def test_stakes_that_do_not_add_up_or_move_a_third_are_seen() -> None:
    nothing = _made({**FOUR.stake_of, NODES[0]: 3})
    assert "requests make" in str(_boundary_that(nothing))
    two = [Leave(NODES[0]), Leave(NODES[1])]
    assert "went" in str(_boundary_that(_made({n: 2 for n in NODES[2:4]}, *two), *two))


def test_nothing_takes_effect_twice() -> None:
    audit = MembershipAudit(FOUR, epoch_rounds=1)
    audit.extend(asked(Leave(NODES[0])))
    audit.extend(CLOSING)
    again = replace(_made({n: 2 for n in NODES[2:4]}, Leave(NODES[0])), epoch=2)
    assert "twice" in str(audit.fault(audit.now.committee, again))


@pytest.mark.parametrize(
    ("fields", "hopeless"),
    [
        ({"kind": "join", "node": 5, "stake": 3}, True),  # three of eight are a third and more
        ({"kind": "join", "node": 5, "stake": 2}, False),
        ({"kind": "stake", "node": 1, "stake": 2}, True),  # what it has
        ({"kind": "stake", "node": 5, "stake": 1}, False),  # it may become a member yet
        ({"kind": "leave", "node": 1}, False),
        ({"kind": "rotate", "node": 1, "successor": 5}, False),
    ],
)
def test_nobody_waits_for_a_change_that_its_own_desk_calls_hopeless(
    fields: dict[str, object], hopeless: bool
) -> None:
    change = ChangeConfig.model_validate({"at_s": 0, **fields})
    names = [NODES[node] for node in change.nodes]
    assert is_hopeless(change, names, Membership(FOUR)) is hopeless
