"""How the validator set changes: what the sets of an epoch ask for takes effect at its end.

    decided in a set -> waiting (with its approvals) -> boundary: applied, dropped, or still waiting
    evidence in a set -> convicted: asks for nothing more -> boundary: expelled, as soon as it fits

Everything follows from the final chain alone: `bft.chain.follow` is folded over its blocks, so that
every node comes to the same committee. Rules of a boundary, in the order of the chain:

  * who is convicted goes first of all, as far as the limits below let it; the last one stays;

  * a Join, a rotation or an increase needs the approval of a quorum of the ended epoch's weight,
    and a rotation some whole epochs in which its subject may object (`objection_epochs`); until it
    has them, it waits and holds up nobody;
  * less than a third of the weight may go, and less than a third may come, of the number of
    validators no more than a third and one; under four validators there is one change a boundary,
    which brings in no more than is there;
  * the first that does not fit beside those before it waits, and all behind it wait too, so that
    nothing is overtaken for ever; what would not fit alone either is dropped;
  * what is applied or dropped is remembered until it expires: nothing takes effect twice.

Limits are functions of n: a member has one request of its own waiting, and sponsors one Join. Who
takes over a seat takes over its Join, too. A Join that a quorum has approved when its sponsor goes
needs none any more; no seat leaves more than one behind, and all of them expire.

Who holds a member's key may withdraw what waits in its name, but no Leave, which takes the place of
whatever else waits there: so a stolen key cannot keep its owner from ending what the key can do.

A trainer contributes and does not vote (see `roll`): it weighs nothing, asks for nothing here but
to join, and is bound by what it signs. Convicted, it goes at the boundary at the latest, and what
would have made it a member goes with it: who approved of that did not know.

A conviction follows the seat: evidence of what a former key of it said convicts the present one.
What was said before the seat was taken counts no more, so that who is let in again begins anew.

Why less than a third: with f the most that may be faulty, out what goes and in what comes,
`quorum - f - out >= 1` lets a member that finalized the boundary honestly stay, and
`f + in < quorum'` keeps all that were ever faulty and all who came from making the new quorum
alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from daa_consensus.committee import CONTRIBUTORS_MAX, Committee
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    Rotate,
    Speak,
    Stake,
    Withdraw,
)
from daa_consensus.protocol_words import UNSAID, ProtocolWords
from daa_consensus.roll import NOBODY, Roll
from daa_consensus.turnover import committee_from, may_follow, may_shrink
from daa_dag.ids import Digest, NodeId

# Ahead: bounds what waits, and for how long its id is remembered. People approve, so it is half a
# day of 16,000 rounds that take three seconds each, in epochs of four rounds.
EXPIRY_EPOCHS_MAX = 4000


class Rule(StrEnum):
    """Why a request is dropped at a boundary."""

    EXPIRED = "it expired before it could take effect"
    NO_MEMBER = "its subject is no validator"
    ALREADY_MEMBER = "whom it brings in is a validator already"
    NO_CHANGE = "the stake is what it was"
    NO_SPONSOR = "the validator that sponsored it has gone, and no quorum had approved it"
    LAST_MEMBER = "nobody would be left"
    TOO_MANY = "there are as many validators and trainers as there may be"
    TOO_HEAVY = "it moves a third of the weight or more all by itself"
    CONVICTED = "its subject is convicted: it may leave, and ask to join again"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the chain. `place` is the member in whose name it waits: subject or sponsor.

    None of a Join that a quorum had approved when its sponsor went: it stands on that. `since` is
    the epoch in which a set brought it.
    """

    request: Request
    place: NodeId | None
    approvers: frozenset[NodeId] = frozenset()
    since: int = 0


@dataclass(frozen=True, slots=True)
class Seat:
    """What `name` said from epoch `since` on is answered for by the member `holder`."""

    name: NodeId
    holder: NodeId
    since: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """What one epoch's end makes of its committee and of what waits."""

    committee: Committee
    expelled: tuple[NodeId, ...]
    applied: tuple[Request, ...]
    waiting: tuple[Waiting, ...]
    dropped: tuple[tuple[Request, Rule], ...]


@dataclass(frozen=True, slots=True)
class Membership:
    """The committee of an epoch and what waits for its end.

    `applied`, `dropped` and `expelled` are those of the boundary at which the epoch began.
    `settled` holds the ids of what must not take effect again, by the epoch in which they expire,
    so that a boundary drops them without reading the others. `convicted` are members, in the order
    of the chain. `seats` are those that were not there from the beginning, or changed their
    key: one for each key that a present member has had. A rotation waits for `objection_epochs`
    whole ones; the network chooses how many. `roll` has the trainers: they are no members.
    """

    committee: Committee
    epoch: int = 0
    waiting: tuple[Waiting, ...] = ()
    settled: Mapping[int, frozenset[Digest]] = field(default_factory=dict)
    applied: tuple[Request, ...] = ()
    dropped: tuple[tuple[Request, Rule], ...] = ()
    convicted: tuple[NodeId, ...] = ()
    expelled: tuple[NodeId, ...] = ()
    seats: tuple[Seat, ...] = ()
    objection_epochs: int = 1
    roll: Roll = NOBODY
    words: ProtocolWords = UNSAID

    @property
    def trainers(self) -> frozenset[NodeId]:
        """Who contributes without a vote, and does not idle."""
        return self.roll.here

    def answers_for(self, name: NodeId, epoch: int) -> NodeId | None:
        """Whom evidence of what `name` said in `epoch` convicts: a member, or a trainer itself."""
        for seat in self.seats:
            if seat.name == name:
                return seat.holder if epoch >= seat.since else None
        on_roll = self.roll.entry_of(name) is not None
        return name if name in self.committee.stake_of or on_roll else None

    def convicts(self, name: NodeId, epoch: int) -> bool:
        """Whether evidence of what `name` said in `epoch` convicts one who is not yet."""
        holder = self.answers_for(name, epoch)
        return holder is not None and holder not in self.convicted

    def admits(self, request: Request) -> bool:
        """Whether a set may carry the request: another would be read and forgotten."""
        action, members = request.action, self.committee.stake_of
        if isinstance(action, Approve):
            return action.subject in members and action.subject not in self.convicted
        if isinstance(action, Speak):  # said in this epoch, for its end: no older one comes again
            heard = action.subject in members and action.subject not in self.convicted
            ends_now = request.expires_epoch == self.epoch + 1
            return heard and ends_now and self.words.admit(action, self.committee.version)
        in_time = self.epoch < request.expires_epoch <= self.epoch + EXPIRY_EPOCHS_MAX
        known = any(waiting.request.id == request.id for waiting in self.waiting)
        if not in_time or known or request.id in self.settled.get(request.expires_epoch, ()):
            return False
        if isinstance(action, Withdraw):
            return self._withdrawn(action) is not None
        if isinstance(action, Join):
            return action.subject not in members and action.subject not in self.convicted
        if action.subject in self.convicted and not isinstance(action, Leave):
            return False
        own = [w.request.action for w in self._own(action.subject)]
        if isinstance(action, Leave):
            own = [other for other in own if isinstance(other, Leave)]
        return action.subject in members and not own

    def why_dropped(self, action: Action) -> Rule | None:
        """The rule that would drop it at the end of this epoch, alone and approved; None if none.

        Other requests may change that until then. The action is none of Approve and Withdraw.
        """
        item = Waiting(Request(action, self.epoch + 1), self.committee.validators[0].node_id)
        stakes = self.committee.stake_of
        rule = _breaks(item, self.epoch + 1, stakes, self.convicted, self.roll)
        if rule is not None:
            return rule
        fits = may_follow(self.committee, self.committee_after(action), 1)
        return None if fits else Rule.TOO_HEAVY

    def committee_after(self, action: Action) -> Committee:
        """This one, with the action applied, which no rule but those of weights forbids."""
        return committee_from(_apply(action, self.committee.stake_of))

    def _own(self, subject: NodeId) -> list[Waiting]:
        """What waits in its own name: one request at most."""
        return [w for w in self.waiting if w.request.action.subject == subject == w.place]

    def _withdrawn(self, action: Withdraw) -> Request | None:
        """What the withdrawal is of, if that waits and may be withdrawn."""
        for request in (waiting.request for waiting in self.waiting):
            if request.id == action.request_id and request.action.subject == action.subject:
                return None if isinstance(request.action, Leave) else request
        return None

    def decided(
        self, operations: Sequence[Operation], offences: Sequence[tuple[NodeId, int]] = ()
    ) -> "Membership":
        """Take in what a final set carries, in its order: offences first, (signer, epoch) each."""
        answering = [self.answers_for(name, epoch) for name, epoch in offences]
        convicted = dict.fromkeys([*self.convicted, *(name for name in answering if name)])
        now = replace(self, convicted=tuple(convicted))
        return now._asked(operations) if operations else now

    def _asked(self, operations: Sequence[Operation]) -> "Membership":
        requests = [operation.request for operation in operations]
        approvals: dict[Digest, list[NodeId]] = {}
        for request in requests:
            action = request.action
            if isinstance(action, Approve) and self.admits(request):
                approvals.setdefault(action.request_id, []).append(action.subject)
        now = self
        for request in requests:
            if not isinstance(request.action, Approve) and now.admits(request):
                now = now._taken_in(request, approvals.get(request.id, []))
        waiting = tuple(
            replace(w, approvers=w.approvers.union(approvals.get(w.request.id, [])))
            for w in now.waiting
        )
        return replace(now, waiting=waiting)

    def _taken_in(self, request: Request, approvers: Sequence[NodeId]) -> "Membership":
        """With a request that is admitted, if it finds a place."""
        action, gone = request.action, list[Request]()
        if isinstance(action, Speak):
            return replace(self, words=self.words.heard(action, self.committee.version))
        if isinstance(action, Withdraw):
            withdrawn = self._withdrawn(action)
            gone = [] if withdrawn is None else [withdrawn]
        elif isinstance(action, Leave):
            gone = [waiting.request for waiting in self._own(action.subject)]
        left = tuple(waiting for waiting in self.waiting if waiting.request not in gone)
        now = replace(self, waiting=left, settled=_with(self.settled, gone)) if gone else self
        place = None if isinstance(action, Withdraw) else now._place(request, approvers)
        if place is None:
            return now
        return replace(now, waiting=(*left, Waiting(request, place, since=self.epoch)))

    def _place(self, request: Request, approvers: Sequence[NodeId]) -> NodeId | None:
        """In whose name it may wait: a Join in that of a first approver who sponsors no other."""
        if not isinstance(request.action, Join):
            return request.action.subject
        busy = {w.place for w in self.waiting if isinstance(w.request.action, Join)}
        return next((name for name in approvers if name not in busy), None)

    def next_epoch(self) -> "Membership":
        """The next epoch's, once the closing of this one's last round is final."""
        epoch = self.epoch + 1
        gone = tuple(name for name in self.convicted if name not in self.committee.stake_of)
        staying = self.roll.ended(gone, (), {})
        boundary = next_committee(
            *(self.committee, self.waiting, epoch, self.convicted, self.objection_epochs),
            staying,
        )
        members = boundary.committee.stake_of
        committee, words = self.words.ended(self.committee, boundary.committee, self.convicted)
        # The last one stays, and does all alone: nobody is there to be guarded against it.
        convicted = [n for n in self.convicted if n in members and len(members) > 1]
        actions = [request.action for request in boundary.applied]
        handed = {a.subject: a.successor for a in actions if isinstance(a, Rotate)}
        done = [*boundary.applied, *(request for request, _ in boundary.dropped)]
        settled = _with(self.settled, done)
        return Membership(
            committee,
            epoch,
            boundary.waiting,
            {expires: ids for expires, ids in settled.items() if expires > epoch},
            boundary.applied,
            boundary.dropped,
            tuple(convicted),
            (*boundary.expelled, *gone),
            self._seats_after(boundary, epoch),
            self.objection_epochs,
            staying.ended((), members, handed),
            words,
        )

    def _seats_after(self, boundary: Boundary, epoch: int) -> tuple[Seat, ...]:
        seats = {seat.name: seat for seat in self.seats}
        for name in boundary.expelled:
            seats = {n: s for n, s in seats.items() if s.holder != name}
        for action in (request.action for request in boundary.applied):
            match action:
                case Join(subject):
                    seats[subject] = Seat(subject, subject, epoch)
                case Leave(subject):
                    seats = {n: s for n, s in seats.items() if s.holder != subject}
                case Rotate(subject, successor):
                    seats.setdefault(subject, Seat(subject, subject, 0))
                    held = [s for s in seats.values() if s.holder == subject]
                    seats |= {s.name: replace(s, holder=successor) for s in held}
                    seats[successor] = Seat(successor, successor, epoch)
                case _:
                    pass
        return tuple(seats[name] for name in sorted(seats))


def _with(
    settled: Mapping[int, frozenset[Digest]], requests: Sequence[Request]
) -> Mapping[int, frozenset[Digest]]:
    """With these requests, too."""
    after = dict(settled)
    for request in requests:
        after[request.expires_epoch] = after.get(request.expires_epoch, frozenset()) | {request.id}
    return after


def next_committee(
    committee: Committee,
    waiting: Sequence[Waiting],
    epoch: int,
    convicted: Sequence[NodeId] = (),
    objection_epochs: int = 1,
    roll: Roll = NOBODY,
) -> Boundary:
    """The committee of `epoch`, out of that of the epoch before and what waited, in order.

    Trainers on the roll contribute beside it; of `convicted`, some may be none of either.
    """
    stakes, expelled, full = _expel(committee, convicted)
    applied: list[Request] = []
    dropped: list[tuple[Request, Rule]] = []
    left: list[tuple[Waiting, bool]] = []  # and whether a quorum approves of it
    for item in waiting:
        action = item.request.action
        rule = _breaks(item, epoch, stakes, convicted, roll)
        if rule is not None:
            dropped.append((item.request, rule))
            continue
        approved = committee.weight(item.approvers - {*convicted}) >= committee.quorum
        ripe = not isinstance(action, Rotate) or epoch - item.since > objection_epochs
        if full or not ripe or (_brings_in(action, stakes) and not approved):
            left.append((item, approved))
            continue
        after = _apply(action, stakes)
        changes = len(expelled) + len(applied) + 1
        if may_follow(committee, committee_from(after), changes):
            stakes, applied = after, [*applied, item.request]
        elif changes > 1:
            full = True
            left.append((item, approved))
        else:
            dropped.append((item.request, Rule.TOO_HEAVY))
    kept: list[Waiting] = []
    for item, approved in left:
        still = _without_who_went(item, approved, stakes, applied)
        if isinstance(still, Waiting):
            kept.append(still)
        else:
            dropped.append((item.request, still))
    # the same object where nothing changes: a node remembers the committee of every epoch
    after_all = committee if stakes == committee.stake_of else committee_from(stakes)
    return Boundary(after_all, tuple(expelled), tuple(applied), tuple(kept), tuple(dropped))


def _without_who_went(
    item: Waiting, approved: bool, stakes: Mapping[NodeId, int], applied: Sequence[Request]
) -> Waiting | Rule:
    """What waits on, in whose name now; or the rule by which it goes with its member."""
    if not isinstance(item.request.action, Join):
        return item if item.place in stakes else Rule.NO_MEMBER
    place = item.place
    for action in (request.action for request in applied):
        if isinstance(action, Rotate) and action.subject == place:
            place = action.successor
    if place is not None and place not in stakes:
        if not approved:
            return Rule.NO_SPONSOR
        place = None
    return replace(item, place=place)


def _expel(
    committee: Committee, convicted: Sequence[NodeId]
) -> tuple[Mapping[NodeId, int], list[NodeId], bool]:
    """The stakes without the convicted who can go now, their names, and whether others wait.

    Who cannot go even alone stays, and holds up nobody: a third of the weight is beyond what any
    rule can mend. Of three, all must vote: nobody makes three of more while another may be faulty.
    """
    stakes: Mapping[NodeId, int] = committee.stake_of
    expelled: list[NodeId] = []
    full = False
    for name in (name for name in convicted if name in stakes):
        after = {other: stake for other, stake in stakes.items() if other != name}
        alone = {other: stake for other, stake in committee.stake_of.items() if other != name}
        if not may_shrink(committee, after) or not may_follow(committee, committee_from(alone), 1):
            continue
        if may_follow(committee, committee_from(after), len(expelled) + 1):
            stakes = after
            expelled.append(name)
        else:
            full = True
    return stakes, expelled, full


def _breaks(
    item: Waiting,
    epoch: int,
    stakes: Mapping[NodeId, int],
    convicted: Sequence[NodeId],
    roll: Roll,
) -> Rule | None:
    """The first rule that the request can never satisfy any more."""
    if item.request.expires_epoch < epoch:
        return Rule.EXPIRED
    match item.request.action:
        case Rotate(subject) | Stake(subject) if subject in convicted:
            return Rule.CONVICTED
        case Join(newcomer) | Rotate(successor=newcomer) if newcomer in stakes:
            return Rule.ALREADY_MEMBER
        case Join(newcomer) | Rotate(successor=newcomer) if newcomer in convicted:
            return Rule.CONVICTED  # as a trainer, or in another seat: who approved may not know
        case Join(subject):
            # a trainer that is voted in is here already
            here = stakes.keys() | {entry.name for entry in roll.entries}
            return Rule.TOO_MANY if len(here - {subject}) >= CONTRIBUTORS_MAX else None
        case Leave(subject) | Rotate(subject) | Stake(subject) if subject not in stakes:
            return Rule.NO_MEMBER
        case Leave() if len(stakes) == 1:
            return Rule.LAST_MEMBER
        case Stake(subject, stake) if stakes[subject] == stake:
            return Rule.NO_CHANGE
        case _:
            return None


def _brings_in(action: Action, stakes: Mapping[NodeId, int]) -> bool:
    """Whether the others must agree, because a key or weight comes in."""
    match action:
        case Join() | Rotate():
            return True
        case Stake(subject, stake):
            return stake > stakes[subject]
        case _:
            return False


def _apply(action: Action, stakes: Mapping[NodeId, int]) -> dict[NodeId, int]:
    after = dict(stakes)
    match action:
        case Join(subject, stake) | Stake(subject, stake):
            after[subject] = stake
        case Leave(subject):
            del after[subject]
        case Rotate(subject, successor):
            after[successor] = after.pop(subject)
        case Approve() | Withdraw() | Speak():
            raise AssertionError("none of these waits")
        case _:
            assert_never(action)
    return after
