"""Proof that a validator broke a rule: its own messages that contradict each other, or a verdict.

Offences (compared by sign bytes, so that two signatures over the same words prove nothing):

  * two Notarize, two Proposals, two Offers or two Exec for one slot;
  * a Finalize and a Nullify in one view;
  * a Finalize of one block and a Notarize of another in one view;
  * an Exec that contradicts an execution certificate of its slot;
  * training that did not happen as it was said, or a false accusation of that: a quorum has
    replayed a step and says so. Sets of the next VERDICT_ROUNDS_MAX rounds may carry it.

Lateness and Nullify are never offences. The first message comes first in sign-byte order, so that
one offence has one encoding. Signatures are the host's to check.
"""

from dataclasses import dataclass

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    certificate_from_value,
    certificate_value,
    signed_from_value,
    signed_value,
)
from daa_consensus.committee import Domain
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import NodeId

# What a verdict is about is forgotten later: nobody could look into it again.
VERDICT_ROUNDS_MAX = 64
ONE_A_SLOT = frozenset({Kind.NOTARIZE, Kind.PROPOSAL, Kind.OFFER, Kind.EXEC})


@dataclass(frozen=True, slots=True)
class Evidence:
    """`offence` in words, who is to answer for it, and what proves it."""

    offence: str
    offender: NodeId
    parts: tuple[Signed | Certificate, ...]

    @property
    def domain(self) -> Domain:
        """In which the offence was committed."""
        return self.parts[0].statement.domain

    @property
    def epoch(self) -> int:
        return self.domain.epoch

    def is_late_for(self, round_number: int) -> bool:
        """Whether the set of that round is too late, or too early, to carry it."""
        statement = self.parts[0].statement
        age = round_number - statement.height
        return statement.kind is Kind.VERDICT and not 0 <= age <= VERDICT_ROUNDS_MAX


def conflict(one: Signed, other: Signed) -> Evidence | None:
    """Evidence if the two messages, by one signer, are an offence together."""
    if one.signer != other.signer:
        return None
    offence = _offence(one.statement, other.statement)
    if offence is None:
        return None
    first, second = sorted((one, other), key=lambda s: s.statement.sign_bytes())
    return Evidence(offence, one.signer, (first, second))


def contradiction(signed: Signed, certificate: Certificate) -> Evidence | None:
    """Evidence if `signed` is an Exec and `certificate` says that its slot ended otherwise."""
    mine, theirs = signed.statement, certificate.statement
    if mine.kind != Kind.EXEC or theirs.kind != Kind.EXEC or not _same_slot(mine, theirs):
        return None
    if mine == theirs or mine.sign_bytes() == theirs.sign_bytes():
        return None
    return Evidence("exec against its certificate", signed.signer, (signed, certificate))


def conviction(verdict: Certificate) -> Evidence | None:
    """Evidence if a quorum says that it has replayed what the certificate is about."""
    statement = verdict.statement
    match statement.kind, statement.value:
        case Kind.VERDICT, [bytes(convicted), bytes()]:
            return Evidence("found false by replay", NodeId(convicted), (verdict,))
        case _:
            return None


def _same_slot(one: Statement, other: Statement) -> bool:
    if one.domain != other.domain or one.view != other.view:
        return False
    # Votes have one slot a view, whatever height they claim; offers and Exec one a round (height).
    return one.view > 0 or one.height == other.height


def _offence(one: Statement, other: Statement) -> str | None:
    if not _same_slot(one, other):
        return None
    kinds = {one.kind, other.kind}
    if len(kinds) == 1:
        # Equal statements are most of what comes twice, and cost no encoding.
        repeated = one.kind not in ONE_A_SLOT or one == other
        repeated = repeated or one.sign_bytes() == other.sign_bytes()
        return None if repeated else f"two {one.kind} in one slot"
    if kinds == {Kind.FINALIZE, Kind.NULLIFY}:
        return "finalize and nullify in one view"
    if kinds == {Kind.FINALIZE, Kind.NOTARIZE} and one.value != other.value:
        return "finalize of one block, notarize of another"
    return None


def encode_evidence(evidence: Evidence) -> bytes:
    """Canonical: `["pair", signed, signed]`, `["exec", signed, certificate]`, `["verdict", it]`."""
    match evidence.parts:
        case [Signed() as first, Signed() as second]:
            return canonical.encode(["pair", signed_value(first), signed_value(second)])
        case [Signed() as first, Certificate() as second]:
            return canonical.encode(["exec", signed_value(first), certificate_value(second)])
        case [Certificate() as verdict]:
            return canonical.encode(["verdict", certificate_value(verdict)])
        case _:
            raise AssertionError("no evidence has these parts")


def decode_evidence(payload: bytes, limits: Limits) -> Evidence:
    """The offence that the bytes prove, if their signatures verify.

    Raises BadMessage for another shape, for messages that are no offence together, and for a pair
    in the wrong order. The caller checks each signature, the domain, and a certificate's weight.
    """
    try:
        value = canonical.decode(payload, limits.evidence_bytes_max)
    except DagError as fault:
        raise BadMessage(f"evidence: {fault}") from None
    match value:
        case ["pair", first, second]:
            one, other = signed_from_value(first, limits), signed_from_value(second, limits)
            found = conflict(one, other)
            if found is not None and found.parts[0] != one:
                raise BadMessage("evidence is ordered by sign bytes")
        case ["exec", first, second]:
            one = signed_from_value(first, limits)
            found = contradiction(one, certificate_from_value(second, limits))
        case ["verdict", verdict]:
            found = conviction(certificate_from_value(verdict, limits))
        case _:
            raise BadMessage("evidence is a pair, an exec and its certificate, or a verdict")
    if found is None:
        raise BadMessage("the messages do not prove an offence")
    return found
