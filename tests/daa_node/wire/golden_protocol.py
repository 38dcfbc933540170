"""What nodes sign, and what is named by its content, in protocol version 1: by its digests.

python -m tests.daa_node.wire.golden_protocol > tests/golden/protocol.json
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    OfferBody,
    Payload,
    ResultPayload,
    SetPayload,
    encode_block,
    encode_certificate,
    encode_signed,
    genesis_block,
)
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.enrolment import (
    Enroll,
    Enrolment,
    Retire,
    TrainerAction,
    TrainerRequest,
    Vouch,
    encode_enrolment,
)
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    Rotate,
    Speak,
    Stake,
    Withdraw,
    encode_operation,
    signers_of,
)
from daa_consensus.roll import Entry, Roll
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.checkpoint import Contributor, Vertex, result_root
from daa_dag.chunking import Manifest
from daa_dag.ids import (
    BlobRoot,
    BlockId,
    ChainId,
    ContributionRoot,
    NodeId,
    ValidatorSetRoot,
    VertexId,
    digest_of,
)
from daa_node.agreement import messages
from daa_node.agreement.messages import (
    Asked,
    AskedOfRoll,
    Body,
    Certified,
    Message,
    Missed,
    Position,
    Proposed,
    SentBlock,
    Shown,
    Stated,
    WantBlock,
    WantCertificates,
    WantStatements,
    encode_message,
)
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import NodeRecord, Role
from daa_node.identity.validators import MemberKeys
from daa_node.network.hello import Greeting, encode_greeting
from daa_node.seams import Address

A, B, C = (digest_of(name) for name in (b"a", b"b", b"c"))
ONE, TWO = NodeId(min(A, B)), NodeId(max(A, B))
CHAIN = ChainId(C)
COMMITTEE = Committee((Validator(ONE, 1), Validator(TWO, 3)))
DOMAIN = Domain(CHAIN, 7, COMMITTEE.root)
KEYS = NodeKeys.from_seed(b"golden protocol")
RECORD = NodeRecord(
    KEYS.ml_dsa_public_key,
    KEYS.ml_kem_public_key,
    KEYS.peer_id,
    (Address("/ip4/192.0.2.7/tcp/4001"),),
    Role.EDGE,
    ("relay", "validator"),
    sequence=3,
    issued_ns=10**18,
    expiry_ns=10**18 + 10**12,
)
OFFER = OfferBody(3, ONE, VertexId(B), BlobRoot(C), 9, "int8", 5, 6, 7, 8, 9, (A, B))
PAYLOADS: dict[str, Payload] = {
    "set": SetPayload(3, (OFFER,), (6,), "trimmed_mean", 1, (b"proof",), (b"asked",), (A,)),
    "empty set": SetPayload(3, (), (), "mean", 0, (), (), ()),
    "result": ResultPayload(3, VertexId(B), C),
    "abort": AbortPayload(3),
    "empty": EmptyPayload(),
}
ACTIONS: tuple[Action, ...] = (
    Join(ONE, 2, b"keys"),
    Leave(ONE),
    Rotate(ONE, TWO, b"keys"),
    Stake(ONE, 4),
    Approve(ONE, A),
    Withdraw(ONE, A),
    Speak(ONE, 2),
)
TRAINER_ACTIONS: tuple[TrainerAction, ...] = (Enroll(ONE, b"keys"), Vouch(TWO, A), Retire(ONE, TWO))
VERTEX = Vertex(
    parents=(VertexId(A),),
    height=4,
    training_round=5,
    decided_block=BlockId(B),
    contributors=(Contributor(ONE, ContributionRoot(C), 1, 2, 3, 4, 5, 6),),
    rule="trimmed_mean",
    f_agg=1,
    delta_root=BlobRoot(A),
    model_root=BlobRoot(B),
    outer_state_root=BlobRoot(C),
    ledger_root=A,
    validator_set_root=ValidatorSetRoot(B),
    tokens_total=1000,
    excluded=(TWO,),
    roll_root=C,
)


def statement(kind: Kind) -> Statement:
    return Statement(DOMAIN, kind, 2, 3, [A, 4])


def golden() -> dict[str, str]:
    """Digests in hexadecimal digits, by what they are of."""
    named = dict(_ids())
    named |= {f"bytes of {name}": digest_of(payload) for name, payload in _encoded()}
    return {name: digest.hex() for name, digest in named.items()}


def _ids() -> Iterator[tuple[str, bytes]]:
    """Of all that is known by an id or a root."""
    yield "a committee's root", COMMITTEE.root
    yield "a committee's root in version 2", replace(COMMITTEE, version=2).root
    yield "a contribution's root", OFFER.root
    yield "a vertex", VERTEX.vertex_id
    yield "a result's root", result_root(BlobRoot(A), BlobRoot(B), BlobRoot(C))
    yield "a manifest's root", Manifest((5, 6), (A, B)).root
    yield "a node", KEYS.node_id
    yield "the genesis block", genesis_block(CHAIN, VertexId(A)).id
    for name, payload in PAYLOADS.items():
        yield f"a block: {name}", _block(payload).id
    for action in ACTIONS:
        yield f"a request: {type(action).__name__}", Request(action, 9).id
    for asked in TRAINER_ACTIONS:
        yield f"a request: {type(asked).__name__}", TrainerRequest(asked, 9).id
    yield "a roll's root", Roll(entries=(Entry(ONE, b"keys", TWO, 3, 1, 5, 9),)).root


def _encoded() -> Iterator[tuple[str, bytes]]:
    """All that is signed, and what it travels in."""
    signed = Signed(statement(Kind.NOTARIZE), ONE, b"signature")
    certificate = Certificate(signed.statement, ((ONE, b"one"), (TWO, b"two")))
    for kind in Kind:
        yield f"a statement: {kind}", statement(kind).sign_bytes()
    yield "a signed statement", encode_signed(signed)
    yield "a certificate", encode_certificate(certificate)
    yield "a vertex", VERTEX.encode()
    for name, payload in PAYLOADS.items():
        yield f"a block: {name}", encode_block(_block(payload))
    for action in ACTIONS:
        words = tuple((signer, b"word") for signer in signers_of(action))
        operation = Operation(Request(action, 9), words)
        yield f"a request: {type(action).__name__}", encode_operation(operation)
        yield f"what signs {type(action).__name__}", operation.request.statement(CHAIN).sign_bytes()
    for asked in TRAINER_ACTIONS:
        enrolment = Enrolment(TrainerRequest(asked, 9), b"word")
        yield f"a request: {type(asked).__name__}", encode_enrolment(enrolment)
        yield f"what signs {type(asked).__name__}", enrolment.request.statement(CHAIN).sign_bytes()
    yield "what signs a record", RECORD.sign_bytes()
    yield "a member's keys", MemberKeys.of(KEYS).encode()
    yield "a hello", encode_greeting(Greeting(1, 1, CHAIN, b"record", 10**18, 4))
    block = _block(PAYLOADS["result"])
    request = Request(Leave(ONE), 9)
    bodies: tuple[Body, ...] = (
        Stated(signed),
        Proposed(signed, block, certificate),
        Certified(certificate, block),
        WantBlock(BlockId(A)),
        WantCertificates(7, 3, 5),
        WantStatements(3, (ContributionRoot(A),)),
        Shown(3, (OFFER,), (signed,)),
        Missed(3, (ContributionRoot(A),)),
        SentBlock(block, (_block(PAYLOADS["empty"]),)),
        Asked(Operation(request, ((ONE, b"word"),))),
        AskedOfRoll(Enrolment(TrainerRequest(Vouch(TWO, A), 9), b"word")),
        messages.Greeting(),
    )
    assert {type(body) for body in bodies} == {*get_args(Body)}
    for body in bodies:
        message = Message(Position(7, 2, 1, 3, 40), body)
        yield f"a message: {type(body).__name__}", encode_message(message)


def _block(payload: Payload) -> Block:
    return Block(CHAIN, 7, 12, 3, BlockId(A), 11, payload)


if __name__ == "__main__":
    print(json.dumps(golden(), indent=0))
