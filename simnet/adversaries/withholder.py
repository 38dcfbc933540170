"""A withholder: takes part, and gives nobody what only it may have.

Certificates, blocks and what proves a result stay with it, and its Finalize too. Met by asking
another holder each time (what a quorum certified, f+1 honest nodes hold) and by timers: the views
that it leads are nullified.
"""

from collections.abc import Sequence

from daa_consensus.votes import Kind
from daa_node.agreement.letters import Certified, Letter, Proposed, Said, SentBlock
from simnet.adversaries.conduct import Conduct, Shelf, Voice


class Withholder(Conduct):
    """Answers nothing, and proposes to one node only."""

    shelf = Shelf.CLOSED

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        match letter.body:
            case Certified() | SentBlock():
                return ()
            case Said(signed) if signed.statement.kind is Kind.FINALIZE:
                return ()
            case Proposed(signed, block, _):
                favoured = signed.statement.view % voice.nodes
                bare = Letter(letter.position, Proposed(signed, block, None))
                return (bare,) if receiver == favoured else ()
            case _:
                return (letter,)
