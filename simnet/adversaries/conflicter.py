"""A conflicter: votes for everything that it has seen, and for giving up, in every view.

Met by evidence (Finalize beside Nullify, two Notarize) and by counting one vote a key and kind.
What it says always convicts it, so it cannot stay long where evidence takes stake.
"""

from collections.abc import Sequence

from daa_node.agreement.letters import Letter, Said
from simnet.adversaries.conduct import Conduct, Voice
from simnet.adversaries.seen_blocks import SeenBlocks, votes_beside


class Conflicter(Conduct):
    """Every own vote goes along with every other one of its view."""

    def __init__(self) -> None:
        self._seen = SeenBlocks()

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        self._seen.note(letter)
        match letter.body:
            case Said(signed) if signed.statement.view > 0:
                statement = signed.statement
            case _:
                return [letter]
        lies = [lie for block in self._seen.of(statement) for lie in votes_beside(statement, block)]
        return [letter, *(Letter(letter.position, Said(voice.sign(lie))) for lie in lies)]

    def hears(self, letter: Letter) -> None:
        self._seen.note(letter)
