"""A false acker: acknowledges contributions that it does not hold, and that nobody offered.

Every Offer that it hears is acknowledged unseen, beside inventions; whoever then asks it for a blob
gets nothing. Met by the quorum that an Ack needs to make a contribution eligible (f+1 honest nodes
hold it), by asking other ackers for it, and by a limit on what one validator may acknowledge
(daa_node/rounds/collect.py).
"""

from collections.abc import Sequence

from daa_consensus.bft.messages import offer_from_value
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Kind, Statement
from daa_dag.ids import ContributionRoot
from daa_node.agreement.messages import Message, Stated
from simnet.world.adversaries.behaviour import Behaviour, Shelf, Voice

FALSE_ROOTS = 2  # in each Ack
OFFERS_KEPT = 256  # the newest


class FalseAcker(Behaviour):
    """Every vote goes along with an Ack of new inventions, and of what others offer."""

    shelf = Shelf.CLOSED

    def __init__(self) -> None:
        self._offered: dict[ContributionRoot, int] = {}  # with their rounds

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        if not isinstance(message.body, Stated) or message.body.signed.statement.view == 0:
            return (message,)
        at = voice.at()
        invented = [voice.chance.randbytes(32) for _ in range(FALSE_ROOTS)]
        heard = [root for root, round_ in self._offered.items() if round_ == at.round]
        ack = Statement(at.domain, Kind.ACK, 0, at.round, sorted([*invented, *heard]))
        return (message, Message(message.position, Stated(voice.sign(ack))))

    def hears(self, message: Message) -> None:
        match message.body:
            case Stated(signed) if signed.statement.kind is Kind.OFFER:
                try:
                    self._offered[offer_from_value(signed.statement.value).root] = (
                        signed.statement.height
                    )
                except BadMessage:
                    return  # somebody else's lie
                if len(self._offered) > OFFERS_KEPT:
                    del self._offered[next(iter(self._offered))]
