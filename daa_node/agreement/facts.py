"""What was learnt beside the votes: execution certificates, evidence, rejoins, membership requests.

Facts only grow until a final block settles them, or newer ones push them out.
"""

from collections.abc import Callable, Mapping

from daa_consensus.bft.evidence import Evidence
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import SetPayload, decode_signed, encode_signed
from daa_consensus.committee import Domain
from daa_consensus.enrolment import encode_enrolment, enrolments
from daa_consensus.membership import Membership
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Operation,
    Speak,
    Withdraw,
    encode_operation,
    membership_operations,
)
from daa_consensus.votes import Certificate, Signed
from daa_dag.ids import Digest, NodeId
from daa_node.agreement.roll_requests import RollRequests

EXEC_CERTIFICATES_KEPT = 16
JOINS_EACH_MAX = 8  # that a member brings before the others, and no set has carried yet: 8 kB each


class Facts:
    """One node's facts about the newest rounds and the committee."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.exec_certificates: dict[int, Certificate] = {}  # by round
        self.evidence: dict[NodeId, Evidence] = {}  # the first against each member
        self.operations: dict[Digest, Operation] = {}  # by request, in the order of arrival
        self._brought: dict[NodeId, list[Digest]] = {}  # by who brought them, oldest first
        self.rejoins: dict[NodeId, bytes] = {}  # the newest of each member or trainer, encoded
        self.of_roll = RollRequests()  # what is asked of the trainers' roll

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
        """Who lost its guard asks to vote, or to offer, again; the next set may say so."""
        if signed.signer in now.committee.stake_of or signed.signer in now.trainers:
            self.rejoins[signed.signer] = encode_signed(signed)

    def brought_by(self, source: NodeId) -> list[Operation]:
        """What it brought before the others, oldest first, as far as no set has carried it."""
        return [self.operations[name] for name in self._brought.get(source, ())]

    def note_operation(self, operation: Operation, now: Membership, source: NodeId) -> bool:
        """Remember a verified change of membership for the next set; whether the others lack it.

        So they do if it is news, and a Join also if this source had not brought it.

        A member has one place for what it asks for itself, one to leave, one to say what it speaks,
        and one for each request that it approves or withdraws. A Join lies in a place of the member
        that brings it, the `source`, whose oldest gives way: nobody fills another's, and strangers
        have none.
        """
        request = operation.request
        if not now.admits(request):
            return False
        if isinstance(request.action, Join):
            if source not in now.committee.stake_of and source != request.action.subject:
                return False
            return self._note_join(operation, source)
        others = [h.request for h in self.operations.values() if h.request.id != request.id]
        own = [r for r in others if r.action.subject == request.action.subject]
        taken = any(_place(r.action) == _place(request.action) for r in own)
        if request.id in self.operations or taken or len(own) > self._limits.validators:
            return False
        self.operations[request.id] = operation
        self._brought.setdefault(source, []).append(request.id)
        return True

    def _note_join(self, join: Operation, source: NodeId) -> bool:
        name, brought = join.request.id, self._brought.setdefault(source, [])
        if name in brought:
            return False
        brought.append(name)
        self.operations.setdefault(name, join)
        joins = [n for n in brought if isinstance(self.operations[n].request.action, Join)]
        if len(joins) > JOINS_EACH_MAX:
            brought.remove(joins[0])
            if not any(joins[0] in others for others in self._brought.values()):
                del self.operations[joins[0]]
        return True

    def follow(self, now: Membership, domain_of: Callable[[int], Domain]) -> None:
        """Blocks are final: forget what they carried, and what can be carried no more.

        `domain_of` is of an epoch. Statements of one to come may turn out not to be said in it:
        such evidence is void, and must keep no other one out.
        """
        waiting = {w.request.id: w.approvers for w in now.waiting}
        self.operations = {
            request_id: held
            for request_id, held in self.operations.items()
            if _is_open(held, now, waiting)
        }
        still = {
            source: [name for name in names if name in self.operations]
            for source, names in self._brought.items()
        }
        self._brought = {source: names for source, names in still.items() if names}
        before, self.evidence = self.evidence, {}
        for evidence in before.values():
            if evidence.domain == domain_of(evidence.epoch):
                self.note_evidence(evidence, now)
        self.of_roll.follow(now)
        still_here = now.committee.stake_of.keys() | now.trainers
        self.rejoins = {name: held for name, held in self.rejoins.items() if name in still_here}

    def settle(self, decided: SetPayload) -> list[Signed]:
        """A set is final: forget the Rejoins that it carried, and say which they are.

        Nor can a verdict be carried for ever.
        """
        self.evidence = {
            name: held
            for name, held in self.evidence.items()
            if not held.is_late_for(decided.round + 1)
        }
        known = {encode_operation(o) for o in membership_operations(decided.operations)}
        known |= {encode_enrolment(e) for e in enrolments(decided.operations)}
        rejoined = [
            decode_signed(encoded, self._limits)
            for encoded in decided.operations
            if encoded not in known
        ]
        for signed in rejoined:
            self.rejoins.pop(signed.signer, None)
        return rejoined


def _place(action: Action) -> tuple[type | None, Digest | None]:
    match action:
        case Approve(request_id=about) | Withdraw(request_id=about):
            return type(action), about
        case Leave() | Speak():
            return type(action), None
        case _:
            return None, None


def _is_open(
    operation: Operation, now: Membership, waiting: Mapping[Digest, frozenset[NodeId]]
) -> bool:
    request = operation.request
    if not isinstance(request.action, Approve):
        return now.admits(request)
    said = request.action.subject in waiting.get(request.action.request_id, frozenset())
    return request.expires_epoch > now.epoch and now.admits(request) and not said
