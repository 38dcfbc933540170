"""A sybil: one node that speaks under many names, none of which has stake.

Its own vote comes back under every invented name. Met by counting stake, not names: statements of
whoever is no validator are refused before any machine sees them, and their sender is scored.
"""

from collections.abc import Sequence
from dataclasses import replace

from daa_dag.ids import NodeId, tagged_digest
from daa_node.agreement.messages import Message, Stated
from simnet.world.adversaries.behaviour import Behaviour, Voice

NAMES = 3  # a quorum of four, if names counted


class Sybil(Behaviour):
    """Honest under its own name."""

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        if not isinstance(message.body, Stated):
            return (message,)
        own = message.body.signed
        names = [NodeId(tagged_digest("sybil", [own.signer, index])) for index in range(NAMES)]
        echoes = [Message(message.position, Stated(replace(own, signer=name))) for name in names]
        return (message, *echoes)
