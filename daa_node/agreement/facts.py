"""What was learnt beside the votes: execution certificates, due aborts, evidence, rejoins.

Facts only grow until a final block settles them; `changed` wakes whoever waits for one.
"""

from collections import OrderedDict

import trio

from daa_consensus.bft.evidence import Evidence, encode_evidence
from daa_consensus.bft.messages import Limits, SetPayload, decode_signed, encode_signed
from daa_consensus.votes import Certificate, Signed
from daa_dag.ids import NodeId

EXEC_CERTIFICATES_KEPT = 16
ROUNDS_OF_ABORTS_KEPT = 2


class Facts:
    """One node's facts about the open round and the committee."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.changed = trio.lowlevel.ParkingLot()
        self.exec_certificates: dict[int, Certificate] = {}  # by round
        self.aborts_due: set[int] = set()
        self.evidence: OrderedDict[bytes, Evidence] = OrderedDict()  # by its encoding
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
        self.changed.unpark_all()
        return round_number in self.exec_certificates

    def note_abort_due(self, round_number: int) -> None:
        """This node will not execute the round."""
        self.aborts_due.add(round_number)
        self.aborts_due = {r for r in self.aborts_due if r > round_number - ROUNDS_OF_ABORTS_KEPT}
        self.changed.unpark_all()

    def note_evidence(self, evidence: Evidence) -> bool:
        """Remember an offence for the next set; False if it is known, or there are enough."""
        encoded = encode_evidence(evidence)
        if encoded in self.evidence or len(self.evidence) >= self._limits.validators:
            return False
        self.evidence[encoded] = evidence
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
