"""What is asked of the trainers' roll, on the wire."""

import pytest

from daa_consensus.enrolment import (
    ENROLMENT_BYTES_MAX,
    MARK,
    Enroll,
    Enrolment,
    Retire,
    TrainerAction,
    TrainerRequest,
    Vouch,
    decode_enrolment,
    encode_enrolment,
    signer_of,
)
from daa_consensus.errors import BadMessage
from daa_consensus.operations import KEYS_BYTES_MAX, membership_operations
from daa_consensus.votes import SIGNATURE_BYTES_MAX
from daa_dag import canonical
from daa_dag.ids import ChainId, Digest, NodeId

ALICE, BOB = NodeId(b"a" * 32), NodeId(b"b" * 32)
ACTIONS: list[TrainerAction] = [
    Enroll(ALICE, b"k" * KEYS_BYTES_MAX),
    Vouch(BOB, Digest(b"r" * 32)),
    Retire(ALICE, BOB),
]


@pytest.mark.parametrize("action", ACTIONS)
def test_an_enrolment_reads_back_and_is_no_operation_on_membership(action: TrainerAction) -> None:
    enrolment = Enrolment(TrainerRequest(action, 2**63 - 1), b"s" * SIGNATURE_BYTES_MAX)
    encoded = encode_enrolment(enrolment)
    assert decode_enrolment(encoded) == enrolment
    assert len(encoded) <= ENROLMENT_BYTES_MAX
    assert membership_operations([encoded]) == []


def test_each_is_signed_by_whom_it_binds_and_for_one_chain() -> None:
    assert [signer_of(action) for action in ACTIONS] == [ALICE, BOB, BOB]
    request = TrainerRequest(ACTIONS[1], 7)
    signed = {request.statement(ChainId(name * 32)).sign_bytes() for name in (b"c", b"d")}
    signed.add(TrainerRequest(ACTIONS[1], 8).statement(ChainId(b"c" * 32)).sign_bytes())
    assert len(signed) == 3
    assert request.id != TrainerRequest(ACTIONS[1], 8).id


@pytest.mark.parametrize(
    "value",
    [
        [],
        [MARK, -1, ["vouch", ALICE, BOB], b"s"],
        [MARK, True, ["vouch", ALICE, BOB], b"s"],
        [MARK, 1, ["vouch", ALICE, BOB], b""],
        [MARK, 1, ["vouch", ALICE, b"short"], b"s"],
        [MARK, 1, ["enroll", ALICE, b""], b"s"],
        [MARK, 1, ["enroll", ALICE, b"k" * (KEYS_BYTES_MAX + 1)], b"s"],
        [MARK, 1, ["retire", ALICE], b"s"],
        [MARK, 1, ["join", ALICE, 1, b"k"], b"s"],
        ["membership", 1, ["vouch", ALICE, BOB], b"s"],
    ],
)
def test_what_has_another_form_is_refused(value: canonical.Value) -> None:
    with pytest.raises(BadMessage):
        decode_enrolment(canonical.encode(value))
