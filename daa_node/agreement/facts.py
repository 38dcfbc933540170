"""What was learnt beside the votes: execution certificates, evidence, rejoins, membership requests.

Facts only grow until a final block settles them, or newer ones push them out.
"""

from collections.abc import Mapping

from daa_consensus.bft.evidence import Evidence
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import SetPayload, decode_signed, encode_signed
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
        self.evidence: dict[NodeId, Evidence] = {}  # the first against each member
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

    def note_evidence(self, evidence: Evidence, now: Membership) -> bool:
        """Remember an offence for the next set; whether it was news.

        One against each member: it is enough to convict it, and others' must find room. Against who
        is convicted, or no member any more, it changes nothing.
        """
        answers = now.answers_for(evidence.offender, evidence.epoch)
        if answers is None or answers in self.evidence or answers in now.convicted:
            return False
        self.evidence[answers] = evidence
        return True

    def note_rejoin(self, signed: Signed, now: Membership) -> None:
        """A validator asks to vote again after it lost its guard; the next set may say so."""
        if signed.signer in now.committee.stake_of:
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

    def follow(self, now: Membership) -> None:
        """Blocks are final: forget what they carried, and what can be carried no more."""
        waiting = {w.request.id: w.approvers for w in now.waiting}
        self.operations = {
            request_id: held
            for request_id, held in self.operations.items()
            if _is_open(held, now, waiting)
        }
        before, self.evidence = self.evidence, {}
        for evidence in before.values():
            self.note_evidence(evidence, now)
        members = now.committee.stake_of
        self.rejoins = {name: held for name, held in self.rejoins.items() if name in members}

    def settle(self, decided: SetPayload) -> list[Signed]:
        """A set is final: forget the Rejoins that it carried, and say which they are."""
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
