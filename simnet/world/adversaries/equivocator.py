"""An equivocator: proposes two blocks, and sends votes along with their opposite.

Every second node gets a block of its own making, a set that relies on one Ack less, or an empty
block. Met by one Notarize a view (no second
quorum forms), by evidence of two Proposals, two Notarize, or Finalize beside Nullify.
"""

from collections.abc import Sequence
from dataclasses import replace

from daa_consensus.bft.messages import Block, EmptyPayload, SetPayload
from daa_node.agreement.messages import Message, Proposed, Stated
from simnet.world.adversaries.behaviour import Behaviour, Voice
from simnet.world.adversaries.seen_blocks import SeenBlocks, votes_beside

LIES_ONE_IN = 4  # of own votes


class Equivocator(Behaviour):
    """As leader it proposes two blocks; as voter it takes both sides."""

    def __init__(self) -> None:
        self._seen = SeenBlocks()

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        self._seen.note(message)
        if isinstance(message.body, Proposed):
            return [_another(voice, message, message.body) if receiver % 2 else message]
        if voice.chance.randrange(2):
            return self._lies(voice, message)
        return [message, *self._lies(voice, message)]

    def hears(self, message: Message) -> None:
        self._seen.note(message)

    def _lies(self, voice: Voice, message: Message) -> list[Message]:
        match message.body:
            case Stated(signed) if signed.statement.view > 0:
                statement = signed.statement
            case _:
                return []
        if voice.chance.randrange(LIES_ONE_IN):
            return []
        blocks = self._seen.of(statement)
        lies = votes_beside(statement, voice.chance.choice(blocks) if blocks else None)
        return [Message(message.position, Stated(voice.sign(lie))) for lie in lies]


def _another(voice: Voice, message: Message, proposed: Proposed) -> Message:
    other = another(proposed.block)
    words = replace(proposed.signed.statement, height=other.height, value=other.id)
    said = Proposed(voice.sign(words), other, None)  # never a result: none goes with it
    return replace(message, body=said)


def another(block: Block) -> Block:
    """A block of the same view that its leader might as well have proposed."""
    payload = block.payload
    match payload:
        case SetPayload() if payload.ack_ids:
            return replace(block, payload=replace(payload, ack_ids=payload.ack_ids[1:]))
        case SetPayload():
            return replace(block, height=block.height - 1, payload=EmptyPayload())
        case _:
            return replace(block, payload=EmptyPayload())
