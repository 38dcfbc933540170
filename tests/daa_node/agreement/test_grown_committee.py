"""Who was away while the committee grew hears statements larger than it has room for: no fault."""

from dataclasses import replace

import pytest

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import Block, EmptyPayload
from daa_consensus.committee import VALIDATORS_MAX, Committee, Domain, Validator
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import BlockId, ChainId, ContributionRoot, NodeId
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.messages import (
    Body,
    Certified,
    Greeting,
    Message,
    Missed,
    Position,
    Stated,
    encode_message,
    message_bytes_max,
)
from daa_node.errors import PeerFault
from daa_node.wire.limits import MESSAGE_BYTES_MAX
from tests.daa_node.agreement.fixed_members import fixed_validators

CHAIN = ChainId(b"c" * 32)
NAMES = [NodeId(bytes([number]) * 32) for number in range(1, 13)]
THEN, NOW = (Committee(tuple(Validator(n, 1) for n in NAMES[:count])) for count in (4, 12))
LATER = 5  # epochs: one joins at each boundary, then more
ROOTS = [ContributionRoot(bytes([number]) * 32) for number in range(1, 13)]


def word(kind: Kind, value: canonical.Value, view: int = 0) -> Statement:
    return Statement(Domain(CHAIN, LATER, NOW.root), kind, view, 9, value)


def honest_bodies() -> dict[str, Body]:
    signed = Signed(word(Kind.ACK, [bytes(root) for root in ROOTS]), NAMES[0], b"s" * 3309)
    block = Block(CHAIN, LATER, 40, 9, BlockId(b"p" * 32), 39, EmptyPayload())
    final = word(Kind.FINALIZE, block.id, view=40)
    signatures = tuple((name, b"s" * 3309) for name in NAMES[: NOW.quorum])
    return {
        "an Ack of everybody's": Stated(signed),
        "a certificate": Certified(Certificate(final, signatures), block),
        "what a set leaves out": Missed(9, tuple(ROOTS)),
    }


def message(body: Body, epoch: int = LATER) -> bytes:
    return encode_message(Message(Position(epoch, 41, 40, 8, 1000), body))


def of_four() -> Inbound:
    return Inbound(fixed_validators(CHAIN, THEN, {}, 100))


@pytest.mark.parametrize("name", honest_bodies())
def test_what_a_larger_committee_says_tells_a_laggard_where_it_stands(name: str) -> None:
    """Ten faults are a ban, and all who could bring it its chain write this each second."""
    inbound = of_four()
    read = inbound.open(message(honest_bodies()[name]))
    assert read == Message(Position(LATER, 41, 40, 8, 1000), Greeting())


@pytest.mark.parametrize("name", honest_bodies())
def test_who_stands_where_we_do_may_not_say_more_than_there_is_room_for(name: str) -> None:
    with pytest.raises(PeerFault, match="malformed"):
        of_four().open(message(honest_bodies()[name], epoch=0))


def test_nonsense_from_a_later_epoch_is_nonsense() -> None:
    too_many = Missed(9, tuple(ContributionRoot(n.to_bytes(32)) for n in range(VALIDATORS_MAX + 1)))
    for body in (too_many, replace(too_many, roots=(ROOTS[0], ROOTS[0]))):
        with pytest.raises(PeerFault, match="malformed"):
            of_four().open(message(body))


def test_no_committee_writes_a_message_that_no_mailbox_reads() -> None:
    assert message_bytes_max(Limits(VALIDATORS_MAX, VALIDATORS_MAX)) <= MESSAGE_BYTES_MAX
