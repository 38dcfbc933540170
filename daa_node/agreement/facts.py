"""What was learnt beside the votes: execution certificates, evidence, rejoins.

Facts only grow until a final block settles them, or newer ones push them out.
"""

from daa_consensus.bft.evidence import Evidence, encode_evidence
from daa_consensus.bft.messages import Limits, SetPayload, decode_signed, encode_signed
from daa_consensus.votes import Certificate, Signed
from daa_dag.ids import NodeId

EXEC_CERTIFICATES_KEPT = 16


class Facts:
    """One node's facts about the newest rounds and the committee."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.exec_certificates: dict[int, Certificate] = {}  # by round
        self.evidence: dict[bytes, Evidence] = {}  # by its encoding, one of each offender
        self.rejoins: dict[NodeId, bytes] = {}  # the newest of each validator, encoded

    def note_exec(self, certificate: Certificate) -> bool:
        """Hold an execution certificate, verified; True if it is the round's first, and kept.

        The oldest rounds go: certificates that are true and long over must push out no other.
        """
        round_number = certificate.statement.height
        if round_number in self.exec_certificates:
            return False
        self.exec_certificates[round_number] = certificate
        while len(self.exec_certificates) > EXEC_CERTIFICATES_KEPT:
            del self.exec_certificates[min(self.exec_certificates)]
        return round_number in self.exec_certificates

    def note_evidence(self, evidence: Evidence) -> bool:
        """Remember an offence for the next set; False if one of the same offender waits already.

        One is enough to exclude it, and its others must not crowd out somebody else's.
        """
        if any(known.offender == evidence.offender for known in self.evidence.values()):
            return False
        self.evidence[encode_evidence(evidence)] = evidence
        return True

    def note_rejoin(self, signed: Signed) -> None:
        """A validator asks to vote again after it lost its guard; the next set may say so."""
        self.rejoins[signed.signer] = encode_signed(signed)

    def settle(self, decided: SetPayload) -> list[Signed]:
        """A set is final: forget what it carried; the rejoins among its operations."""
        for encoded in decided.evidence:
            self.evidence.pop(encoded, None)
        rejoined = [decode_signed(encoded, self._limits) for encoded in decided.operations]
        for signed in rejoined:
            self.rejoins.pop(signed.signer, None)
        return rejoined
