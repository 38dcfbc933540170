"""A false acker: acknowledges contributions that it does not hold, and that nobody offered.

Met by the quorum that an Ack needs to make a contribution eligible (f+1 honest nodes hold it), by
asking other ackers for it, and by a limit on what one validator may acknowledge
(daa_node/rounds/collect.py).
"""

from collections.abc import Sequence

from daa_consensus.votes import Kind, Statement
from daa_node.agreement.letters import Letter, Said
from simnet.adversaries.conduct import Conduct, Voice

FALSE_ROOTS = 2  # in each Ack


class FalseAcker(Conduct):
    """Every vote goes along with an Ack of new inventions."""

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        if not isinstance(letter.body, Said) or letter.body.signed.statement.view == 0:
            return (letter,)
        known = voice.machine.known
        tip_open, height = known.chain.tip_open, known.chain.tip.height
        roots = sorted(voice.chance.randbytes(32) for _ in range(FALSE_ROOTS))
        round_ = height if tip_open else height + 1
        ack = Statement(known.domain, Kind.ACK, 0, round_, list(roots))
        return (letter, Letter(letter.position, Said(voice.sign(ack))))
