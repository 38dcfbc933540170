"""Empty blocks come along with the one above them, and only they do."""

import pytest

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import Block, EmptyPayload, Payload, encode_block
from daa_consensus.bft.values import INT_MAX
from daa_dag.ids import BlockId, ChainId
from daa_node.agreement.messages import (
    RUN_BLOCKS_MAX,
    Message,
    Position,
    SentBlock,
    decode_message,
    encode_message,
    message_bytes_max,
)
from daa_node.errors import PeerFault
from tests.daa_consensus.bft.simulation import empty_set

LIMITS = Limits(1, 1)
AT = Position(INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX)


def block(payload: Payload) -> Block:
    """As large as its payload allows."""
    below = BlockId(b"b" * 32)
    return Block(ChainId(b"c" * 32), INT_MAX, INT_MAX, INT_MAX, below, INT_MAX - 1, payload)


def test_the_longest_run_fits_beside_the_largest_block_in_the_smallest_network() -> None:
    empty = block(EmptyPayload())
    alone = len(encode_message(Message(AT, SentBlock(empty, ()))))
    with_run = len(encode_message(Message(AT, SentBlock(empty, (empty,) * RUN_BLOCKS_MAX))))
    largest = LIMITS.block_bytes_max - len(encode_block(empty)) + with_run
    assert alone < with_run < largest <= message_bytes_max(LIMITS)
    message = Message(AT, SentBlock(block(empty_set(1)), (empty,) * RUN_BLOCKS_MAX))
    assert decode_message(encode_message(message), LIMITS) == message


@pytest.mark.parametrize(
    "below",
    [(block(EmptyPayload()),) * (RUN_BLOCKS_MAX + 1), (block(empty_set(1)),)],
    ids=["too many", "a set"],
)
def test_a_run_of_anything_else_is_refused(below: tuple[Block, ...]) -> None:
    message = Message(AT, SentBlock(block(EmptyPayload()), below))
    with pytest.raises(PeerFault, match="malformed"):
        decode_message(encode_message(message), LIMITS)
