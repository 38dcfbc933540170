"""An equivocator: proposes two blocks, and sends votes along with their opposite.

Every second node gets a block of its own making, a set that relies on one Ack less, or an empty
block. Met by one Notarize a view (no second
quorum forms), by evidence of two Proposals, two Notarize, or Finalize beside Nullify.
"""

from collections.abc import Sequence
from dataclasses import replace

from daa_consensus.bft.messages import Block, EmptyPayload, SetPayload
from daa_node.agreement.letters import Letter, Proposed, Said
from simnet.adversaries.conduct import Conduct, Voice
from simnet.adversaries.seen_blocks import SeenBlocks, votes_beside

LIES_ONE_IN = 4  # of own votes


class Equivocator(Conduct):
    """As leader it proposes two blocks; as voter it takes both sides."""

    def __init__(self) -> None:
        self._seen = SeenBlocks()

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        self._seen.note(letter)
        if isinstance(letter.body, Proposed):
            return [_another(voice, letter, letter.body) if receiver % 2 else letter]
        if voice.chance.randrange(2):
            return self._lies(voice, letter)
        return [letter, *self._lies(voice, letter)]

    def hears(self, letter: Letter) -> None:
        self._seen.note(letter)

    def _lies(self, voice: Voice, letter: Letter) -> list[Letter]:
        match letter.body:
            case Said(signed) if signed.statement.view > 0:
                statement = signed.statement
            case _:
                return []
        if voice.chance.randrange(LIES_ONE_IN):
            return []
        blocks = self._seen.of(statement)
        lies = votes_beside(statement, voice.chance.choice(blocks) if blocks else None)
        return [Letter(letter.position, Said(voice.sign(lie))) for lie in lies]


def _another(voice: Voice, letter: Letter, proposed: Proposed) -> Letter:
    other = another(proposed.block)
    words = replace(proposed.signed.statement, height=other.height, value=other.id)
    said = Proposed(voice.sign(words), other, None)  # never a result: none goes with it
    return replace(letter, body=said)


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
