"""What a set carries beside contributions: evidence, Rejoins, changes of members and trainers.

    facts    --Cargo, item by item--> what passes goes into the set, what does not stays out
    proposed --Cargo, item by item--> the first that does not pass condemns the set

One function for both, and it goes by what is final below the set alone, which is the same for
whoever proposes and whoever votes. So an honest leader's set passes whatever its facts hold, and
one bad fact costs itself only. Nobody's items take others' room: of each member one offence, one
Rejoin, and the requests that take effect. What is of trainers takes what room these leave; what is
asked of their roll has room of its own.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter

from daa_consensus.bft.evidence import decode_evidence, encode_evidence
from daa_consensus.bft.messages import SetPayload, decode_signed
from daa_consensus.enrolment import (
    PAIRS_A_SET_MAX,
    Enroll,
    Enrolment,
    encode_enrolment,
    enrolments,
)
from daa_consensus.errors import BadMessage
from daa_consensus.membership import Membership
from daa_consensus.operations import (
    Approve,
    Join,
    Operation,
    Speak,
    Withdraw,
    decode_operation,
    encode_operation,
)
from daa_consensus.roll import Roll
from daa_consensus.votes import Certificate, Kind
from daa_dag.ids import NodeId
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import Inbound
from daa_node.errors import PeerFault
from daa_node.identity.validators import decode_member_keys, newcomer_of
from daa_node.seams import PeerId


def loaded(chosen: SetPayload, facts: Facts, inbound: Inbound) -> SetPayload:
    """The chosen set with all that the facts want to be in the next one, as far as it may be."""
    cargo = Cargo(inbound, chosen.round)
    trainers = inbound.validators.now.trainers
    for name in sorted(facts.evidence, key=trainers.__contains__):  # members' comes first
        cargo.try_evidence(encode_evidence(facts.evidence[name]))
    for name, rejoin in facts.rejoins.items():
        if name not in trainers:
            cargo.try_operations(rejoin)
    _load_requests(cargo, list(facts.operations.values()))
    for name in sorted(facts.rejoins.keys() & trainers):  # members' items come first
        cargo.try_operations(facts.rejoins[name])
    for group in facts.of_roll.groups():
        cargo.try_operations(*map(encode_enrolment, group))
    return replace(chosen, evidence=tuple(cargo.evidence), operations=tuple(cargo.operations))


def why_unproven(proposed: SetPayload, inbound: Inbound) -> str | None:
    """Why the set's evidence or operations must not be there; None if they are all in order."""
    cargo = Cargo(inbound, proposed.round)
    try:
        for encoded in proposed.evidence:
            cargo.add_evidence(encoded)
        for encoded in proposed.operations:
            cargo.add_operation(encoded)
    except (BadMessage, PeerFault) as fault:
        return str(fault)
    return cargo.why_unfinished()


def _load_requests(cargo: "Cargo", held: list[Operation]) -> None:
    """Requests in turn, a Join with its sponsor's statement; then approvals."""
    approvals = [o for o in held if isinstance(o.request.action, Approve)]
    words_left, bytes_left = cargo.room // 2, cargo.room_bytes // 2  # half is for approvals alone
    for operation in _in_turn(cargo, held, approvals):
        if cargo.room <= words_left or cargo.room_bytes <= bytes_left:
            break
        group = [encode_operation(operation)]
        if isinstance(operation.request.action, Join):
            sponsor = cargo.sponsor(operation, approvals)
            if sponsor is None:
                continue
            group.insert(0, encode_operation(sponsor))
        cargo.try_operations(*group)
    for approval in approvals:
        if cargo.awaits(approval):
            cargo.try_operations(encode_operation(approval))


def _in_turn(cargo: "Cargo", held: list[Operation], approvals: list[Operation]) -> list[Operation]:
    """Each member's first request in the order of arrival, then each one's second, and so on.

    In the order of arrival alone, members that lie would fill each set: a word for a version, a
    request of their own and a Join that they sponsor are said, and taken back, again and again. So
    they take a place each, of which they have fewer than there are.
    """
    asked, turns = Counter[NodeId](), list[tuple[int, Operation]]()
    for operation in (o for o in held if not isinstance(o.request.action, Approve)):
        member = cargo.asker(operation, approvals)
        turns.append((asked[member], operation))
        asked[member] += 1
    return [operation for _, operation in sorted(turns, key=itemgetter(0))]


class Cargo:
    """One set's, item after item. What does not pass raises, and has changed nothing."""

    def __init__(self, inbound: Inbound, round_number: int) -> None:
        self._inbound = inbound
        self._round = round_number
        self._validators = inbound.validators
        self._evidence_bytes_max = inbound.limits.evidence_total_bytes_max
        self._now = inbound.validators.now  # what is final below the set, and whom it convicts
        self._then = self._now  # with the requests that it carries, which come after evidence
        self._changes: list[Operation] = []
        self._of_roll: list[Enrolment] = []
        self._roll: Roll | None = None  # with what the set asks of it so far
        self._rejoining: set[NodeId] = set()
        self.evidence: list[bytes] = []
        self.operations: list[bytes] = []

    @property
    def room(self) -> int:
        """How many operations more the set can carry, those of trainers aside.

        By the committee itself: every decoder's limits leave room for more than that.
        """
        of_others = len(self.operations) - len(self._of_roll)
        return len(self._now.committee.validators) + 1 - of_others

    @property
    def room_bytes(self) -> int:
        """How many bytes of them more the set can carry."""
        of_roll = sum(len(encode_enrolment(asked)) for asked in self._of_roll)
        others = sum(map(len, self.operations)) - of_roll
        return self._inbound.limits.changes_bytes_max - others

    def add_evidence(self, encoded: bytes) -> None:
        """Raises BadMessage or PeerFault."""
        if sum(map(len, self.evidence)) + len(encoded) > self._evidence_bytes_max:
            raise BadMessage(f"a set carries {self._evidence_bytes_max} bytes of evidence at most")
        evidence = decode_evidence(encoded, self._inbound.limits)
        offender, epoch = evidence.offender, evidence.epoch
        if not self._now.convicts(offender, epoch):
            raise PeerFault("idle_evidence", f"{offender.hex()[:8]} convicts no member, or again")
        if evidence.is_late_for(self._round):
            raise PeerFault("late_evidence", f"{evidence.offence}: {offender.hex()[:8]}")
        for part in evidence.parts:
            if isinstance(part, Certificate):
                self._inbound.verify_certificate(part)
            else:
                self._inbound.verify(part)
        self._now = self._then = self._now.decided([], [(offender, epoch)])
        self.evidence.append(encoded)

    def add_operation(self, encoded: bytes) -> None:
        """A change of members or trainers, or a Rejoin. Raises BadMessage or PeerFault."""
        asked = enrolments([encoded])
        if asked:
            self._add_enrolment(asked[0])
            self.operations.append(encoded)
            return
        if not self.room or len(encoded) > self.room_bytes:
            raise BadMessage(f"a set carries {len(self.operations)} operations at most")
        try:
            operation = decode_operation(encoded)
        except BadMessage:
            self._add_rejoin(encoded)
        else:
            self._add_change(operation)
        self.operations.append(encoded)

    def try_evidence(self, encoded: bytes) -> None:
        """Take it if it passes."""
        with suppress(BadMessage, PeerFault):
            self.add_evidence(encoded)

    def try_operations(self, *encoded: bytes) -> None:
        """Take them if all pass."""
        before = self._then, list(self._changes), set(self._rejoining), list(self.operations)
        roll, of_roll = self._roll, list(self._of_roll)
        try:
            for each in encoded:
                self.add_operation(each)
            if self.why_unfinished() is not None:
                raise PeerFault("idle_operation", "nobody vouches")
        except (BadMessage, PeerFault):
            self._then, self._changes, self._rejoining, self.operations = before
            self._roll, self._of_roll = roll, of_roll

    def why_unfinished(self) -> str | None:
        """What makes no whole of the items; None if they are one."""
        if self._roll is not None and self._roll.asked:
            return "an enrolment without a voucher's word"
        return None

    def sponsor(self, join: Operation, approvals: list[Operation]) -> Operation | None:
        """The first statement for the Join of somebody who sponsors no other one."""
        waiting = self._then.waiting
        busy = {w.place for w in waiting if isinstance(w.request.action, Join)}
        for approval in approvals:
            action = approval.request.action
            if (
                isinstance(action, Approve)
                and action.request_id == join.request.id
                and action.subject not in busy
                and self._now.admits(approval.request)
            ):
                return approval
        return None

    def asker(self, operation: Operation, approvals: list[Operation]) -> NodeId:
        """In whose turn it is carried: a member's, also what a newcomer that it sponsors asks."""
        action = operation.request.action
        if isinstance(action, Join):
            sponsor = self.sponsor(operation, approvals)
            return action.subject if sponsor is None else sponsor.request.action.subject
        held = (w.place for w in self._then.waiting if w.request.action.subject == action.subject)
        return next((place for place in held if place is not None), action.subject)

    def awaits(self, approval: Operation) -> bool:
        """Whether the request waits, in the chain or in this set, and for this very statement."""
        action = approval.request.action
        assert isinstance(action, Approve)
        return any(
            w.request.id == action.request_id and action.subject not in w.approvers
            for w in self._then.waiting
        )

    def _add_rejoin(self, encoded: bytes) -> None:
        signed = decode_signed(encoded, self._inbound.limits)
        if signed.statement.kind is not Kind.REJOIN:
            raise PeerFault("malformed", f"{signed.statement.kind} is no membership operation")
        signer, now = signed.signer, self._now
        is_here = signer in now.committee.stake_of or signer in now.trainers
        if not is_here or signer in self._rejoining:
            raise PeerFault("idle_rejoin", f"of {signer.hex()[:8]}, no member or again")
        self._inbound.verify(signed)
        self._rejoining.add(signer)

    def _add_enrolment(self, enrolment: Enrolment) -> None:
        if len(self._of_roll) >= 2 * PAIRS_A_SET_MAX:
            raise BadMessage(f"a set asks {2 * PAIRS_A_SET_MAX} times of the roll at most")
        self._inbound.verify_enrolment(enrolment)
        now = self._now
        voting = now.committee.stake_of.keys() - {*now.convicted}
        roll = self._roll
        if roll is None:
            roll = now.roll.begun(self._round, now.convicted, voting)
        if _roll_peers([enrolment]) & (_roll_peers(self._of_roll) | _peer_ids(self._changes)):
            raise PeerFault("malformed", "two newcomers are one peer")
        why = roll.why_not(enrolment.request, voting, now.convicted)
        if why is not None:
            raise PeerFault("idle_operation", why)
        self._roll = roll.with_request(self._round, enrolment.request)
        self._of_roll.append(enrolment)

    def _add_change(self, operation: Operation) -> None:
        request = operation.request
        self._inbound.verify_operation(operation)
        if any(request.id == known.request.id for known in self._changes):
            raise PeerFault("idle_operation", "it stands there already")
        if _peer_ids([operation]) & (_peer_ids(self._changes) | _roll_peers(self._of_roll)):
            raise PeerFault("malformed", "two newcomers are one peer")
        changes = [*self._changes, operation]
        then = self._now.decided(changes)
        if isinstance(request.action, Approve | Withdraw):
            taken_in = self._now.admits(request)
        elif isinstance(request.action, Speak):
            taken_in = self._then.admits(request)  # one of each member
        else:
            taken_in = _waits(then, operation) and not _waits(self._now, operation)
        if not taken_in:
            raise PeerFault("idle_operation", "it would be read and forgotten")
        self._then, self._changes = then, changes


def _peer_ids(operations: Iterable[Operation]) -> set[PeerId]:
    """Those of whom the operations bring in."""
    newcomers = (newcomer_of(operation.request.action) for operation in operations)
    return {newcomer[1].peer_id for newcomer in newcomers if newcomer is not None}


def _roll_peers(asked: Iterable[Enrolment]) -> set[PeerId]:
    """Those of whom the enrolments bring in."""
    actions = (enrolment.request.action for enrolment in asked)
    enrolling = (action for action in actions if isinstance(action, Enroll))
    return {decode_member_keys(each.keys, each.subject).peer_id for each in enrolling}


def _waits(membership: Membership, operation: Operation) -> bool:
    return any(waiting.request.id == operation.request.id for waiting in membership.waiting)
