"""Membership operations: one form, whose signatures, bound to what."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daa_consensus.errors import BadMessage
from daa_consensus.operations import (
    KEYS_BYTES_MAX,
    OPERATION_BYTES_MAX,
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
    decode_operation,
    encode_operation,
    membership_operations,
    signers_of,
)
from daa_consensus.votes import SIGNATURE_BYTES_MAX
from daa_dag import canonical
from daa_dag.ids import ChainId, Digest
from tests.daa_consensus.bft.simulation import node_id

ACTIONS: list[Action] = [
    Join(node_id(0), 3, b"keys"),
    Leave(node_id(1)),
    Rotate(node_id(3), node_id(2), b"keys"),
    Stake(node_id(1), 9),
    Approve(node_id(1), Digest(b"r" * 32)),
    Withdraw(node_id(1), Digest(b"r" * 32)),
    Speak(node_id(1), 2),
]


def signed(action: Action, expires_epoch: int = 4) -> Operation:
    pairs = tuple((name, b"word of " + name[:1]) for name in signers_of(action))
    return Operation(Request(action, expires_epoch), pairs)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: type(a).__name__)
def test_an_operation_reads_back_as_it_was_written(action: Action) -> None:
    assert decode_operation(encode_operation(signed(action))) == signed(action)


def test_a_rotation_binds_the_old_key_and_the_new_one_and_all_else_its_subject() -> None:
    assert signers_of(ACTIONS[2]) == (node_id(2), node_id(3))
    for action in (*ACTIONS[:2], *ACTIONS[3:]):
        assert signers_of(action) == (action.subject,)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: type(a).__name__)
def test_a_missing_a_surplus_and_a_strangers_signature_are_refused(action: Action) -> None:
    whole = signed(action)
    stranger = (node_id(9), b"s")
    for pairs in (whole.signatures[1:], (*whole.signatures, stranger), (stranger,)):
        with pytest.raises(BadMessage, match="signed by exactly"):
            decode_operation(encode_operation(Operation(whole.request, pairs)))


def test_its_words_are_bound_to_chain_and_expiry() -> None:
    one, later = Request(ACTIONS[1], 4), Request(ACTIONS[1], 5)
    words = {
        request.statement(ChainId(chain)).sign_bytes()
        for request in (one, later)
        for chain in (b"a" * 32, b"b" * 32)
    }
    assert len(words) == 4
    assert one.id != later.id
    assert len({Request(action, 4).id for action in ACTIONS}) == len(ACTIONS)


def test_the_heaviest_operation_fits() -> None:
    rotate = Rotate(node_id(0), node_id(1), b"k" * KEYS_BYTES_MAX)
    word = b"s" * SIGNATURE_BYTES_MAX
    heavy = Operation(
        Request(rotate, 2**63 - 1), tuple((name, word) for name in signers_of(rotate))
    )
    assert len(encode_operation(heavy)) <= OPERATION_BYTES_MAX
    assert decode_operation(encode_operation(heavy)) == heavy


BROKEN: list[canonical.Value] = [
    ["join", node_id(0), 0, b"keys"],
    ["join", node_id(0), 2**41, b"keys"],
    ["join", node_id(0), True, b"keys"],
    ["join", node_id(0), 1, b""],
    ["join", node_id(0), 1, b"k" * (KEYS_BYTES_MAX + 1)],
    ["leave", b"short"],
    ["leave", node_id(0), 1],
    ["rotate", node_id(0), node_id(0), b"keys"],
    ["stake", node_id(0), -1],
    ["approve", node_id(0), b""],
    ["crown", node_id(0)],
    [],
]


@pytest.mark.parametrize("action", BROKEN, ids=str)
def test_other_forms_are_refused(action: canonical.Value) -> None:
    pairs: canonical.Value = [[node_id(0), b"s"]]
    with pytest.raises(BadMessage):
        decode_operation(canonical.encode(["membership", 4, action, pairs]))
    with pytest.raises(BadMessage):
        decode_operation(canonical.encode(["membership", -1, ["leave", node_id(0)], pairs]))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_operation_or_a_bad_message(payload: bytes) -> None:
    with contextlib.suppress(BadMessage):
        assert encode_operation(decode_operation(payload)) == payload


def test_what_else_a_set_carries_is_passed_over() -> None:
    one, other = signed(ACTIONS[0]), signed(ACTIONS[1])
    encoded = [encode_operation(one), canonical.encode(["rejoin"]), encode_operation(other)]
    assert membership_operations(encoded) == [one, other]
