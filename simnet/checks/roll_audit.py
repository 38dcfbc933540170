"""Books of our own on who may train: by what final sets ask for, held against who is in them.

    enroll, vouch in a set -> a place two rounds later -> retire, or the voucher goes -> none

Deliberately not the daemon's fold (daa_consensus/roll.py): it knows no lot and no idleness, and so
says of fewer that they may not train, but of none wrongly. Who stands on the roll must be in these
books, by the same voucher.
"""

from collections.abc import Set
from dataclasses import dataclass

from daa_consensus.bft.messages import SetPayload
from daa_consensus.enrolment import Enroll, Retire, Vouch, enrolments
from daa_consensus.membership import Membership
from daa_consensus.operations import Rotate
from daa_consensus.roll import Admission, Roll
from daa_dag.ids import Digest, NodeId

EFFECT_ROUNDS = 2


@dataclass(slots=True)
class _Place:
    voucher: NodeId | None
    since: int
    until: int | None = None


class RollAudit:
    """One chain's, from the roll of its genesis on."""

    def __init__(self, first: Roll) -> None:
        self._rules = first.rules
        self._places = {e.name: _Place(e.voucher, e.since) for e in first.entries}
        self.trained: set[NodeId] = set()  # of who enrolled

    def wrong(self, decided: SetPayload, before: Membership, after: Membership) -> str | None:
        """Why this set may not be final above `before`, or not lead to `after`; None if it may."""
        members = before.committee.stake_of
        for action in (request.action for request in before.applied):
            if isinstance(action, Rotate):  # a seat was handed on, and its trainers with it
                for held in self._places.values():
                    if held.voucher == action.subject:
                        held.voucher = action.successor
        for author in (offer.author for offer in decided.offers):
            if author not in members and not self._may_train(author, decided.round):
                return f"the set of round {decided.round} has {author.hex()[:8]}, who may not train"
            place = self._places.get(author)
            if place is not None and place.since > 1:
                self.trained.add(author)
        voting = members.keys() - {*after.convicted}
        self._drop(decided.round, after)
        fault = self._ask(decided, voting)
        if fault is not None:
            return fault
        for entry in after.roll.entries:
            known = self._places.get(entry.name)
            if known is None:
                return f"{entry.name.hex()[:8]} is on the roll, and no set has let it in"
            if entry.voucher != known.voucher:
                return f"{entry.name.hex()[:8]} is on the roll by a word that nobody gave"
        return None

    def _may_train(self, name: NodeId, round_number: int) -> bool:
        place = self._places.get(name)
        if place is None or round_number < place.since:
            return False
        return place.until is None or round_number < place.until

    def _drop(self, round_number: int, after: Membership) -> None:
        """Who has gone; and who is about to go, with its voucher or by evidence."""
        votes = after.committee.stake_of
        vouching = {None, *votes} - {*after.convicted}
        for name, place in list(self._places.items()):
            is_over = place.until is not None and place.until <= round_number
            if is_over or name in votes:
                del self._places[name]
            elif name in after.convicted:
                place.until = round_number + 1
            elif place.voucher not in vouching and place.until is None:
                place.until = round_number + EFFECT_ROUNDS

    def _ask(self, decided: SetPayload, voting: Set[NodeId]) -> str | None:
        asked: dict[Digest, NodeId] = {}
        for request in (found.request for found in enrolments(decided.operations)):
            match request.action:
                case Enroll(subject):
                    if subject in self._places:
                        continue  # it is back
                    asked[request.id] = subject
                    if self._rules.admission is Admission.OPEN:
                        self._places[subject] = _Place(None, decided.round + EFFECT_ROUNDS)
                case Vouch(voucher, request_id):
                    if voucher not in voting or request_id not in asked:
                        return f"round {decided.round}: {voucher.hex()[:8]} has no word to give"
                    taken = sum(place.voucher == voucher for place in self._places.values())
                    if taken >= self._rules.per_voucher:
                        return f"round {decided.round}: {voucher.hex()[:8]} vouches over its quota"
                    since = decided.round + EFFECT_ROUNDS
                    self._places[asked[request_id]] = _Place(voucher, since)
                case Retire(subject):
                    place = self._places.get(subject)
                    if place is not None:
                        place.until = decided.round + EFFECT_ROUNDS
        return None
