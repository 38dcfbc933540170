"""An equivocator: proposes two blocks, and sends votes along with their opposite.

Two bodies speak to about half of the others each. Met by one Notarize a view (no second quorum
forms), by evidence of two Proposals, two Notarize, or Finalize beside Nullify.
"""

from collections.abc import Sequence

from daa_node.agreement.letters import Letter, Said
from simnet.adversaries.conduct import Conduct, Voice
from simnet.adversaries.seen_blocks import SeenBlocks, votes_beside

LIES_ONE_IN = 4  # of own votes


class Equivocator(Conduct):
    """As leader the bodies propose two blocks; as voters they take both sides."""

    bodies = 2

    def __init__(self) -> None:
        self._seen = SeenBlocks()

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        self._seen.note(letter)
        if voice.chance.randrange(2):
            return self._lies(voice, letter)
        return [letter, *self._lies(voice, letter)]

    def hears(self, body: int, sender: int, letter: Letter) -> bool:
        self._seen.note(letter)
        return True

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
