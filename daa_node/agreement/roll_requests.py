"""What is asked of the trainers' roll and stands in no final set yet, as one node has heard it.

Each lies in a place of the member that brings it, whose oldest gives way: nobody fills another's.
A voucher's word lies in its own place, and so does what a trainer on the roll says itself. What its
bringer vouches for gives way last: a trainer that comes back says so again, a word is said once.
"""

from collections.abc import Iterator, Mapping, Sequence

from daa_consensus.enrolment import PAIRS_A_SET_MAX, Enroll, Enrolment, Retire, Vouch, signer_of
from daa_consensus.membership import Membership
from daa_consensus.roll import Admission
from daa_dag.ids import Digest, NodeId

OTHERS_EACH_MAX = 8  # who is back, and who retires, beside as many pairs as a set takes
PLACES_EACH_MAX = 2 * PAIRS_A_SET_MAX + OTHERS_EACH_MAX  # 8 kB each with its keys


class RollRequests:
    """Verified requests. Whoever notes one has checked its signature."""

    def __init__(self) -> None:
        self._held: dict[Digest, Enrolment] = {}  # in the order of arrival
        self._brought: dict[NodeId, list[Digest]] = {}  # by who brought them, oldest first

    def holds(self, request_id: Digest) -> bool:
        return request_id in self._held

    def brought_by(self, source: NodeId) -> list[Enrolment]:
        return [self._held[name] for name in self._brought.get(source, ())]

    def note(self, enrolment: Enrolment, now: Membership, source: NodeId) -> bool:
        """Remember it for the next sets; whether this source had not brought it."""
        request = enrolment.request
        if not self._may_bring(enrolment, now, source) or not is_open(enrolment, now):
            return False
        brought = self._brought.setdefault(source, [])
        if request.id in brought:
            return False
        brought.append(request.id)
        self._held.setdefault(request.id, enrolment)
        while len(brought) > PLACES_EACH_MAX:
            self._let_go(source, self._least_of(brought))
        return True

    def words_of(self, voucher: NodeId) -> int:
        """How many of its words wait for a set. More than one takes would push out the oldest."""
        return sum(isinstance(each.request.action, Vouch) for each in self.brought_by(voucher))

    def groups(self) -> Iterator[Sequence[Enrolment]]:
        """What may stand in a set: one by one, but an enrolment with each word for it."""
        words = [held for held in self._held.values() if isinstance(held.request.action, Vouch)]
        for held in list(self._held.values()):
            if isinstance(held.request.action, Vouch):
                continue
            yield (held,)  # where it is enough: of who is back, or in an open network
            for word in words:
                action = word.request.action
                if isinstance(action, Vouch) and action.request_id == held.request.id:
                    yield (held, word)

    def follow(self, now: Membership) -> None:
        """A set is final: forget what it carried, and what can be carried no more."""
        open_now = {name: held for name, held in self._held.items() if is_open(held, now)}
        self._held = {n: held for n, held in open_now.items() if _has_subject(held, open_now)}
        still = {
            source: [name for name in names if name in self._held]
            for source, names in self._brought.items()
        }
        self._brought = {source: names for source, names in still.items() if names}

    def _may_bring(self, enrolment: Enrolment, now: Membership, source: NodeId) -> bool:
        action = enrolment.request.action
        votes = source in now.committee.stake_of
        match action:
            case Vouch():
                return votes and source == action.voucher
            case Enroll() | Retire():
                on_roll = now.roll.entry_of(source) is not None
                return votes or (on_roll and source == signer_of(action))

    def _least_of(self, brought: Sequence[Digest]) -> Digest:
        """The oldest of what no word here goes with, if there is one."""
        words = [self._held[name].request.action for name in brought]
        paired = {word.request_id for word in words if isinstance(word, Vouch)}
        paired |= {n for n in brought if isinstance(self._held[n].request.action, Vouch)}
        return next((name for name in brought if name not in paired), brought[0])

    def _let_go(self, source: NodeId, name: Digest) -> None:
        self._brought[source].remove(name)
        if not any(name in others for others in self._brought.values()):
            del self._held[name]


def is_open(enrolment: Enrolment, now: Membership) -> bool:
    """Whether a set may still carry it, whatever stands before it there."""
    request, roll = enrolment.request, now.roll
    match request.action:
        case Enroll(subject):
            if roll.rules.admission is not Admission.CLOSED and roll.entry_of(subject) is None:
                return subject not in now.committee.stake_of and not _is_over(enrolment, now)
            return roll.admits(request, now.committee.stake_of, now.convicted)
        case Vouch(voucher):
            quota = roll.rules.per_voucher
            votes = voucher in now.committee.stake_of and voucher not in now.convicted
            return votes and roll.vouched_by(voucher) < quota and not _is_over(enrolment, now)
        case Retire():
            return roll.admits(request, now.committee.stake_of, now.convicted)


def _has_subject(held: Enrolment, all_held: Mapping[Digest, Enrolment]) -> bool:
    action = held.request.action
    return not isinstance(action, Vouch) or action.request_id in all_held


def _is_over(enrolment: Enrolment, now: Membership) -> bool:
    return enrolment.request.expires_round <= now.roll.round
