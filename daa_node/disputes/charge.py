"""What somebody is accused of: a step that does not follow, a segment, a seal, or what names tell.

Only a checker whom the lot has drawn may accuse, of the segment that it has drawn, by what the
author itself has signed: its Offer, and the states that it opened. So an accusation is decided by
replaying one step or one seal, or by comparing names, and whoever accuses falsely is convicted by
the same replay. Where an author opens nothing, all steps of the segment are replayed. Where no
canonical kernels take the model's steps, nobody may accuse of steps at all.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import signed_from_value, signed_value
from daa_consensus.committee import Domain
from daa_consensus.errors import BadMessage
from daa_consensus.votes import SIGNATURE_BYTES_MAX, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, Digest, NodeId
from daa_node.disputes.decided_sets import DecidedSets, Drawn
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import SegmentOrder

NO_OPENING = Digest(bytes(DIGEST_BYTES))  # only steps are opened


class Part(StrEnum):
    """Of a contribution."""

    NAMES = "names"  # its boundaries do not continue what is certified, or each other
    STEP = "step"
    SEGMENT = "segment"  # its steps, of which its author opens none
    SEAL = "seal"


# Three signed statements, the largest of them an opening.
SAID_BYTES_MAX = 3 * (SIGNATURE_BYTES_MAX + 256) + 129 * (DIGEST_BYTES + 2)
LIMITS = Limits(0, 0)  # none of these statements lists validators or contributors


@dataclass(frozen=True, slots=True)
class Charge:
    """An accusation that may be brought; whether it is true is for the replay to say."""

    accusation: Signed
    part: Part
    opening: Signed | None  # of the segment's states, by its author; of a step
    drawn: Drawn
    step: int  # of the segment, counted from its first

    @property
    def id(self) -> Digest:
        return self.accusation.id

    @property
    def accuser(self) -> NodeId:
        return self.accusation.signer

    @property
    def order(self) -> SegmentOrder | None:
        """What to replay exactly; None where names tell."""
        match self.part:
            case Part.NAMES:
                return None
            case Part.STEP:
                assert self.opening is not None
                start, end = opened_states(self.opening)[self.step :][:2]
                return self.drawn.order(self.step, 1, start, end, exact=True)
            case Part.SEGMENT:
                return self.drawn.order(0, self.drawn.steps, *self.drawn.ends, exact=True)
            case Part.SEAL:
                return self.drawn.seal_order()
            case _:
                assert_never(self.part)


@dataclass(frozen=True, slots=True)
class Said:
    """What members tell each other of a dispute; signatures are to be checked."""

    accusation: Signed
    opening: Signed | None
    verdict: Signed


def encode_said(charge: Charge, verdict: Signed) -> bytes:
    opening = None if charge.opening is None else signed_value(charge.opening)
    return canonical.encode([signed_value(charge.accusation), opening, signed_value(verdict)])


def decode_said(payload: bytes) -> Said:
    """Raises PeerFault."""
    try:
        match canonical.decode(payload, SAID_BYTES_MAX):
            case [accusation, opening, verdict]:
                return Said(
                    _of_kind(Kind.ACCUSATION, accusation),
                    None if opening is None else _of_kind(Kind.OPENING, opening),
                    _of_kind(Kind.VERDICT, verdict),
                )
            case _:
                raise BadMessage("it is an accusation, maybe an opening, and a verdict")
    except (NotCanonical, BadMessage) as fault:
        raise PeerFault("malformed", f"dispute: {fault}") from None


def decode_opening(payload: bytes) -> Signed:
    """Raises PeerFault."""
    try:
        return _of_kind(Kind.OPENING, canonical.decode(payload, SAID_BYTES_MAX))
    except (NotCanonical, BadMessage) as fault:
        raise PeerFault("malformed", f"opening: {fault}") from None


def opened_states(opening: Signed) -> list[Digest]:
    """Roots of the states at a segment's ends and between its steps."""
    match opening.statement.value:
        case [bytes(), int(), list() as states]:
            return [Digest(state) for state in states if isinstance(state, bytes)]
        case _:
            raise AssertionError("the decoder lets no other opening through")


def opening_statement(domain: Domain, drawn: Drawn, between: tuple[Digest, ...]) -> Statement:
    """By which an author opens a segment; its ends are what the Offer says."""
    first, last = drawn.ends
    states: list[canonical.Value] = [first, *between, last]
    value: list[canonical.Value] = [drawn.draw.offer.root, drawn.draw.segment, states]
    return Statement(domain, Kind.OPENING, 0, drawn.round, value)


def accusation_statement(
    domain: Domain, drawn: Drawn, part: Part, opening: Signed | None = None, step: int = 0
) -> Statement:
    opened = NO_OPENING if opening is None else opening.id
    value: list[canonical.Value] = [drawn.draw.offer.root, str(part), opened, step]
    return Statement(domain, Kind.ACCUSATION, 0, drawn.round, value)


def verdict_statement(domain: Domain, charge: Charge, convicted: NodeId) -> Statement:
    return Statement(domain, Kind.VERDICT, 0, charge.drawn.round, [convicted, charge.id])


def check_opening(opening: Signed, drawn: Drawn) -> None:
    """Return if the author may open the segment so. Raises PeerFault."""
    states, ends = opened_states(opening), drawn.ends
    said: Any = opening.statement.value
    named = said[:2] == [drawn.draw.offer.root, drawn.draw.segment]
    if opening.signer != drawn.author or not named or opening.statement.height != drawn.round:
        raise PeerFault("bad_opening", "it is of another segment")
    if len(states) != drawn.steps + 1 or (states[0], states[-1]) != ends:
        raise PeerFault("bad_opening", "it is not what the contribution commits to")


def charge_of(accusation: Signed, opening: Signed | None, sets: DecidedSets) -> Charge:
    """The charge, its signatures verified by the caller.

    Raises Unavailable if this node does not know the round, PeerFault for what nobody may bring.
    """
    round_number, value = accusation.statement.height, accusation.statement.value
    if not sets.is_open(round_number) or not sets.knows(round_number):
        raise Unavailable(f"no dispute over round {round_number} can be decided here")
    match value:
        case [bytes(contribution), str(part), bytes(opened), int(step)]:
            drawn = sets.find(round_number, contribution)
        case _:
            raise AssertionError("the decoder lets no other accusation through")
    if drawn is None or accusation.signer not in drawn.draw.checkers:
        raise PeerFault("bad_accusation", "the lot has drawn no such check")
    if Part(part) in (Part.STEP, Part.SEGMENT) and not sets.steps_convict:
        raise PeerFault("bad_accusation", "steps of this network's model convict nobody")
    match Part(part):
        case Part.STEP if opening is not None and opened == opening.id:
            check_opening(opening, drawn)
            if step < drawn.steps:
                return Charge(accusation, Part.STEP, opening, drawn, step)
        case _ if Part(part) is not Part.STEP and (opening, opened, step) == (None, NO_OPENING, 0):
            return Charge(accusation, Part(part), None, drawn, 0)
        case _:
            pass
    raise PeerFault("bad_accusation", f"of {part} {step}, and what it shows is something else")


def _of_kind(kind: Kind, value: object) -> Signed:
    signed = signed_from_value(value, LIMITS)
    if signed.statement.kind is not kind:
        raise BadMessage(f"{signed.statement.kind}, not {kind}")
    return signed
