"""A sybil: one node that speaks under many names, none of which has stake.

Its own vote comes back under every invented name. Met by counting stake, not names: words of
whoever is no validator are refused before any machine sees them, and their sender is scored.
"""

from collections.abc import Sequence
from dataclasses import replace

from daa_dag.ids import NodeId, tagged_digest
from daa_node.agreement.letters import Letter, Said
from simnet.adversaries.conduct import Conduct, Voice

NAMES = 3  # a quorum of four, if names counted


class Sybil(Conduct):
    """Honest under its own name."""

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        if not isinstance(letter.body, Said):
            return (letter,)
        own = letter.body.signed
        names = [NodeId(tagged_digest("sybil", [own.signer, index])) for index in range(NAMES)]
        echoes = [Letter(letter.position, Said(replace(own, signer=name))) for name in names]
        return (letter, *echoes)
