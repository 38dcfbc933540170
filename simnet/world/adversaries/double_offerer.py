"""A double offerer: one contribution to every second node, another one to the others, or both.

Met by evidence (two Offers in one slot) and by Acks: a validator acknowledges the first that it saw
of an author, so at most one of the two gets a quorum (daa_node/rounds/collect.py).
"""

from collections.abc import Sequence
from dataclasses import replace

from daa_consensus.bft.messages import offer_from_value
from daa_consensus.votes import Kind
from daa_node.agreement.messages import Message, Stated
from simnet.world.adversaries.behaviour import Behaviour, Voice

BOTH_ONE_IN = 4  # of its Offers


class DoubleOfferer(Behaviour):
    """Which of its two Offers depends on who gets it, as a rule."""

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        match message.body:
            case Stated(signed) if signed.statement.kind is Kind.OFFER and _other(voice, receiver):
                honest = offer_from_value(signed.statement.value)
                other = replace(honest, us_per_step=honest.us_per_step + 1)
                lie = voice.sign(replace(signed.statement, value=other.as_value()))
                own = lie.signer == signed.signer  # others' statements are passed on as they are
                return (replace(message, body=Stated(lie)) if own else message,)
            case _:
                return (message,)


def _other(voice: Voice, receiver: int) -> bool:
    is_usual = voice.chance.randrange(BOTH_ONE_IN)
    return bool(receiver % 2 if is_usual else voice.chance.randrange(2))
