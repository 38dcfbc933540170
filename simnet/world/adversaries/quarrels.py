"""What a puppet says in disputes: it has segments opened, accuses, and judges, of what it heard.

    question   whether drawn or not, of anybody's contribution
    accusation of names, a seal, or a step that somebody has opened, itself for one
    verdict    on the author, or on the accuser

Now and then a place of it is another one. Met by the lot, which says who may ask and accuse of
what; by the replay of every member; and by the places that an accuser has.
"""

from typing import Final, cast

from daa_consensus.bft.limits import OPENED_MAX
from daa_consensus.bft.messages import (
    ACCUSED_PARTS,
    OfferBody,
    encode_signed,
    signed_value,
)
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import Digest
from daa_node.disputes.charge import NO_OPENING, decode_opening
from daa_node.errors import PeerFault
from simnet.world.adversaries.puppet import Mind

VARIED_ONE_IN = 4  # things said
STEPS: Final = (0, 0, 1, 1, 2, 3, OPENED_MAX)


def question(mind: Mind) -> bytes:
    """For an opening."""
    offer = _offer(mind)
    return canonical.encode([offer.round, offer.root])


def dispute(mind: Mind) -> bytes:
    """An accusation with a verdict on it."""
    offer, part = _offer(mind), mind.chance.choice(ACCUSED_PARTS)
    opening = _opening(mind, offer) if part == "step" else None
    opened = NO_OPENING if opening is None else opening.id
    step = 0 if opening is None else mind.chance.choice(STEPS)
    accusation = _said(mind, Kind.ACCUSATION, offer, [offer.root, part, opened, step])
    convicted = mind.chance.choice((offer.author, accusation.signer))
    verdict = _said(mind, Kind.VERDICT, offer, [convicted, accusation.id])
    shown = None if opening is None else signed_value(opening)
    return canonical.encode([signed_value(accusation), shown, signed_value(verdict)])


def reopened(mind: Mind, opening: Signed) -> bytes:
    """What it answers in place of its daemon's opening."""
    return encode_signed(mind.variations.varied(opening))


def hear(mind: Mind, answer: bytes) -> None:
    """An answer to a question of its own: what was opened it can accuse of."""
    match canonical.decode(answer, len(answer)):
        case ["ok", bytes(body)] if body:
            mind.composer.heard.note(Signed, "signed", decode_opening(body))
        case _:
            raise PeerFault("refused", "nothing was opened")


def _offer(mind: Mind) -> OfferBody:
    """One that it has heard of, or makes up."""
    known = mind.composer.heard.things(OfferBody)
    made = mind.chance.choice(known) if known else mind.composer.made(OfferBody)
    return cast(OfferBody, made)


def _opening(mind: Mind, offer: OfferBody) -> Signed:
    """One of this contribution, or a made-up one."""
    for signed in mind.composer.heard.things(Signed):
        match signed.statement.kind, signed.statement.value:
            case Kind.OPENING, [bytes(root), int(), list()] if root == offer.root:
                return cast(Signed, signed)
            case _:
                pass
    states = [Digest(mind.chance.randbytes(32)) for _ in range(mind.chance.randint(2, 4))]
    ends = offer.snapshot_roots
    value: list[canonical.Value] = [offer.root, 0, [*ends[:1], *states, *ends[1:2]]]
    return _said(mind, Kind.OPENING, offer, value)


def _said(mind: Mind, kind: Kind, offer: OfferBody, value: list[canonical.Value]) -> Signed:
    domain = mind.pens.voice.domain
    said = mind.pens.sign(Statement(domain, kind, 0, offer.round, value))
    if not mind.chance.randrange(VARIED_ONE_IN):
        said = mind.variations.varied(said)
    return said
