"""A conflicter: votes for everything that it has seen, and for giving up, in every view.

Met by evidence (Finalize beside Nullify, two Notarize) and by counting one vote a key and kind.
What it says always convicts it, so it cannot stay long where evidence takes stake.
"""

from collections.abc import Sequence

from daa_node.agreement.messages import Message, Stated
from simnet.world.adversaries.behaviour import Behaviour, Voice
from simnet.world.adversaries.seen_blocks import SeenBlocks, votes_beside


class Conflicter(Behaviour):
    """Every own vote goes along with every other one of its view."""

    def __init__(self) -> None:
        self._seen = SeenBlocks()

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        self._seen.note(message)
        match message.body:
            case Stated(signed) if signed.statement.view > 0:
                statement = signed.statement
            case _:
                return [message]
        lies = [lie for block in self._seen.of(statement) for lie in votes_beside(statement, block)]
        return [message, *(Message(message.position, Stated(voice.sign(lie))) for lie in lies)]

    def hears(self, message: Message) -> None:
        self._seen.note(message)
