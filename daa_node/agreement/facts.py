"""What was learnt beside the votes: execution certificates, evidence, rejoins, membership requests.

Facts only grow until a final block settles them, or newer ones push them out.
"""

from collections.abc import Mapping

from daa_consensus.bft.evidence import Evidence, encode_evidence
from daa_consensus.bft.messages import Limits, SetPayload, decode_signed, encode_signed
from daa_consensus.membership import Membership
from daa_consensus.operations import (
    Approve,
    Join,
    Operation,
    encode_operation,
    membership_operations,
)
from daa_consensus.votes import Certificate, Signed
from daa_dag.ids import Digest, NodeId

EXEC_CERTIFICATES_KEPT = 16


class Facts:
    """One node's facts about the newest rounds and the committee."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.exec_certificates: dict[int, Certificate] = {}  # by round
        self.evidence: dict[bytes, Evidence] = {}  # by its encoding, one of each offender
        self.operations: dict[Digest, Operation] = {}  # by request, in the order of arrival
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

    def note_operation(self, operation: Operation, now: Membership) -> bool:
        """Remember a verified change of membership for the next set; whether it was news.

        A subject has one place, as a validator has one for each request that it approves: what
        strangers ask for pushes out no word of a member.
        """
        request = operation.request
        if request.id in self.operations or not now.admits(request):
            return False
        same = [held for held in self.operations.values() if _place(held) == _place(operation)]
        strangers = [h for h in self.operations.values() if isinstance(h.request.action, Join)]
        crowded = isinstance(request.action, Join) and len(strangers) >= self._limits.validators
        mine = [
            h
            for h in self.operations.values()
            if h.request.action.subject == request.action.subject
        ]
        if same or crowded or len(mine) > self._limits.validators:
            return False
        self.operations[request.id] = operation
        return True

    def operations_for(self, now: Membership) -> tuple[bytes, ...]:
        """What the next set can carry: requests that are approved of, and approvals of those."""
        held = list(self.operations.values())
        approved = {
            h.request.action.request_id for h in held if isinstance(h.request.action, Approve)
        }
        requests = [
            h
            for h in held
            if not isinstance(h.request.action, Approve)
            and now.admits(h.request)
            and (h.request.id in approved or not isinstance(h.request.action, Join))
        ]
        known = {w.request.id: w.approvers for w in now.waiting}
        ids = known.keys() | {h.request.id for h in requests}
        approvals = [
            h
            for h in held
            if isinstance(h.request.action, Approve)
            and h.request.action.request_id in ids
            and h.request.action.subject in now.committee.stake_of
            and h.request.action.subject not in known.get(h.request.action.request_id, frozenset())
        ]
        most = len(now.committee.validators) + 1
        # One Join at least goes with the word that sponsors it.
        chosen = [*requests[: (most + 1) // 2], *approvals][:most]
        return tuple(encode_operation(operation) for operation in chosen)

    def settle_requests(self, now: Membership) -> None:
        """Blocks are final: forget what they carried, and what can be carried no more."""
        waiting = {w.request.id: w.approvers for w in now.waiting}
        self.operations = {
            request_id: held
            for request_id, held in self.operations.items()
            if _is_open(held, now, waiting)
        }

    def settle(self, decided: SetPayload) -> list[Signed]:
        """A set is final: forget what it carried; the rejoins among its operations."""
        for encoded in decided.evidence:
            self.evidence.pop(encoded, None)
        known = {encode_operation(o) for o in membership_operations(decided.operations)}
        rejoined = [
            decode_signed(encoded, self._limits)
            for encoded in decided.operations
            if encoded not in known
        ]
        for signed in rejoined:
            self.rejoins.pop(signed.signer, None)
        return rejoined


def _place(operation: Operation) -> tuple[NodeId, Digest | None]:
    action = operation.request.action
    return action.subject, action.request_id if isinstance(action, Approve) else None


def _is_open(
    operation: Operation, now: Membership, waiting: Mapping[Digest, frozenset[NodeId]]
) -> bool:
    request = operation.request
    if not isinstance(request.action, Approve):
        return now.admits(request)
    said = request.action.subject in waiting.get(request.action.request_id, frozenset())
    return request.expires_epoch > now.epoch and now.admits(request) and not said
