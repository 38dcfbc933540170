"""A withholder: takes part, and gives nobody what only it may have.

Certificates, blocks and what proves a result stay with it, and its Finalize too. Met by asking
another holder each time (what a quorum certified, f+1 honest nodes hold) and by timers: the views
that it leads are nullified.
"""

from collections.abc import Sequence

from daa_consensus.votes import Kind
from daa_node.agreement.messages import Certified, Message, Proposed, SentBlock, Stated
from simnet.world.adversaries.behaviour import Behaviour, Shelf, Voice


class Withholder(Behaviour):
    """Answers nothing, and proposes to one node only."""

    shelf = Shelf.CLOSED

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        match message.body:
            case Certified() | SentBlock():
                return ()
            case Stated(signed) if signed.statement.kind is Kind.FINALIZE:
                return ()
            case Proposed(signed, block, _):
                favoured = signed.statement.view % voice.nodes
                bare = Message(message.position, Proposed(signed, block, None))
                return (bare,) if receiver == favoured else ()
            case _:
                return (message,)
