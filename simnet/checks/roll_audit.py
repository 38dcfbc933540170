"""Books of our own on who may train: by what final sets ask for, held against who is in them.

    enroll, vouch in a set -> a place two rounds later -> retire, or the voucher goes -> none
            drawn, in no set, and the round has a result -> missed; sixteen: idle -> enroll

Deliberately not the daemon's fold (daa_consensus/roll.py), but a plain one beside it, which judges
each set before it is taken in: who stands on the roll must be those in these books, by the same
vouchers, and have missed as much; who is drawn must be whom the lot names; and f_agg must count all
whom the f bad members could have let in.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload, SetPayload
from daa_consensus.enrolment import Enroll, Retire, Vouch, enrolments
from daa_consensus.membership import Membership
from daa_consensus.operations import Rotate
from daa_consensus.roll import Admission, Roll
from daa_dag import canonical
from daa_dag.ids import Digest, NodeId, tagged_digest

EFFECT_ROUNDS = 2
MISSED_MAX = 16
FORGOTTEN_ROUNDS = 4096
LOTS_MAX = 64


@dataclass(slots=True)
class _Place:
    voucher: NodeId | None
    since: int
    drawn: int  # for which round last
    missed: int = 0
    until: int | None = None

    def is_planned(self, round_number: int) -> bool:
        return self.drawn == round_number >= self.since

    def is_ready(self, round_number: int) -> bool:
        is_here = round_number >= self.since and (self.until is None or round_number < self.until)
        return is_here and self.missed < MISSED_MAX


class RollAudit:
    """One chain's, from the roll of its genesis on.

    `bad_among` says how many of so many members may be bad in a merge; None where nobody merges.
    """

    def __init__(self, first: Roll, bad_among: Callable[[int], int] | None = None) -> None:
        self._rules = first.rules
        self._bad_among = bad_among
        self._places = {e.name: _Place(e.voucher, e.since, e.planned) for e in first.entries}
        self._seed = first.seed
        self._marked: list[NodeId] = []  # who missed the newest set's round, if it has a result
        self.trained: set[NodeId] = set()  # of who enrolled

    def unbounded(self, decided: SetPayload, before: Membership) -> str | None:
        """Why more of what this set merges may be bad than it says; None if no more may."""
        if self._bad_among is None or decided.rule == "mean":
            return None
        members = before.committee.stake_of.keys() - {*before.convicted}
        counted = [o.author for o, w in zip(decided.offers, decided.weights, strict=True) if w]
        # Who has come to vote an epoch ago keeps its place here until this set is taken in.
        training = {n: p for n, p in self._places.items() if n not in before.committee.stake_of}
        places = [training[name] for name in counted if name in training]
        if not places:
            return None
        lying = self._bad_among(len(members))
        vouched = Counter(place.voucher for place in places)
        alone = vouched.pop(None, 0)
        planned = [place for place in training.values() if place.is_planned(decided.round)]
        by_nobody = -(-sum(place.voucher is None for place in planned) // 3)
        bad = lying + sum(n for _, n in vouched.most_common(lying)) + min(alone, by_nobody)
        if decided.f_agg >= bad:
            return None
        return f"round {decided.round}: {bad} of {len(counted)} may be bad, it says {decided.f_agg}"

    def wrong(self, block: Block, before: Membership, after: Membership) -> str | None:
        """Why this block may not be final above `before`, or not lead to `after`; None: it may."""
        if after.epoch != before.epoch:  # seats were handed on, and their trainers with them
            rotated = (r.action for r in after.applied if isinstance(r.action, Rotate))
            handed = {action.subject: action.successor for action in rotated}
            for held in self._places.values():
                if held.voucher is not None:
                    held.voucher = handed.get(held.voucher, held.voucher)
        match block.payload:
            case SetPayload() as decided:
                return self._wrong_set(decided, before, after)
            case ResultPayload(round=number, vertex_id=vertex_id):
                self._seed = Digest(vertex_id)
                return self._wrong_draw(number + 1, after)
            case AbortPayload(round=number):
                for name in self._marked:
                    self._places[name].missed -= 1
                return self._wrong_draw(number + 1, after)
            case _:
                return None

    def _wrong_set(self, decided: SetPayload, before: Membership, after: Membership) -> str | None:
        members = before.committee.stake_of
        for author in (offer.author for offer in decided.offers):
            if author not in members and not self._may_train(author, decided.round):
                return f"the set of round {decided.round} has {author.hex()[:8]}, who may not train"
            place = self._places.get(author)
            if place is not None and place.since > 1:
                self.trained.add(author)
        self._drop(decided.round, after)
        fault = self._ask(decided, after)
        if fault is not None:
            return fault
        self._mark(decided.round, {offer.author for offer in decided.offers})
        return self._wrong_roll(after.roll)

    def _wrong_roll(self, roll: Roll) -> str | None:
        """Where the roll differs from these books, above a set that both have taken in."""
        for name in self._places.keys() - {entry.name for entry in roll.entries}:
            return f"{name.hex()[:8]} has lost its place, and nothing took it"
        for entry in roll.entries:
            known = self._places.get(entry.name)
            short = entry.name.hex()[:8]
            if known is None:
                return f"{short} is on the roll, and no set has let it in"
            if entry.voucher != known.voucher:
                return f"{short} is on the roll by a word that nobody gave"
            if entry.missed != known.missed:
                return f"{short} has missed {known.missed} rounds, on the roll {entry.missed}"
        return None

    def _mark(self, round_number: int, authors: Collection[NodeId]) -> None:
        """Who was drawn and is not in the round's set."""
        self._marked = []
        for name, place in self._places.items():
            if name in authors:
                place.missed = 0
            elif place.is_planned(round_number):
                place.missed += 1
                self._marked.append(name)

    def _wrong_draw(self, round_number: int, after: Membership) -> str | None:
        """Why these are not the trainers of the round; None if they are."""
        room = max(0, self._rules.contributors_max - len(after.committee.validators))
        on_roll = {entry.name for entry in after.roll.entries}
        ready = [
            name
            for name, place in self._places.items()
            if name in on_roll and place.is_ready(round_number)
        ]
        turn = -(-len(ready) // max(1, room))
        first = sorted(ready, key=lambda name: self._lot(name, round_number, turn))[:room]
        chosen = {*(ready if len(ready) <= room else first)}
        for name in chosen:
            self._places[name].drawn = round_number
        told = {e.name for e in after.roll.entries if e.planned == round_number >= e.since}
        if told == chosen:
            return None
        names = ", ".join(sorted(name.hex()[:8] for name in told ^ chosen))
        return f"round {round_number} has drawn {len(told)}, and the lot is otherwise on {names}"

    def _lot(self, name: NodeId, round_number: int, turn: int) -> tuple[int, int, bytes]:
        waited = round_number - self._places[name].drawn
        if waited > 2 * turn:
            return 0, -waited, name
        numbers = range(min(max(1, waited), LOTS_MAX))
        lots: list[canonical.Value] = [self._seed, round_number, name]
        return 1, 0, min(tagged_digest("trainers-lot", [*lots, number]) for number in numbers)

    def _may_train(self, name: NodeId, round_number: int) -> bool:
        place = self._places.get(name)
        return place is not None and place.drawn == round_number and place.is_ready(round_number)

    def _drop(self, round_number: int, after: Membership) -> None:
        """Who has gone; and who is about to go, with its voucher or by evidence."""
        votes = after.committee.stake_of
        vouching = {None, *votes} - {*after.convicted}
        for name, place in list(self._places.items()):
            is_over = place.until is not None and place.until <= round_number
            waits = place.missed >= MISSED_MAX and self._rules.admission is Admission.OPEN
            is_forgotten = waits and round_number - place.drawn > FORGOTTEN_ROUNDS
            if is_over or is_forgotten or name in votes:
                del self._places[name]
            elif name in after.convicted:
                place.until = round_number + 1
            elif place.voucher not in vouching and place.until is None:
                place.until = round_number + EFFECT_ROUNDS

    def _ask(self, decided: SetPayload, after: Membership) -> str | None:
        voting = after.committee.stake_of.keys() - {*after.convicted}
        asked: dict[Digest, NodeId] = {}
        for request in (found.request for found in enrolments(decided.operations)):
            match request.action:
                case Enroll(subject):
                    if subject in self._places:  # it is back
                        back = self._places[subject]
                        if back.missed >= MISSED_MAX:
                            back.since, back.missed = decided.round + EFFECT_ROUNDS, 0
                        continue
                    fault = self._no_room(subject, after)
                    if fault is not None:
                        return f"round {decided.round}: {fault}"
                    asked[request.id] = subject
                    if self._rules.admission is Admission.OPEN:
                        self._enters(subject, None, decided.round)
                case Vouch(voucher, request_id):
                    if voucher not in voting or request_id not in asked:
                        return f"round {decided.round}: {voucher.hex()[:8]} has no word to give"
                    taken = sum(place.voucher == voucher for place in self._places.values())
                    if taken >= self._rules.per_voucher:
                        return f"round {decided.round}: {voucher.hex()[:8]} vouches over its quota"
                    self._enters(asked.pop(request_id), voucher, decided.round)
                case Retire(subject, by):
                    place = self._places.get(subject)
                    if place is None or by not in (subject, place.voucher):
                        return f"round {decided.round}: {subject.hex()[:8]} is not theirs to retire"
                    place.until = decided.round + EFFECT_ROUNDS
        return None

    def _no_room(self, subject: NodeId, after: Membership) -> str | None:
        """Why nobody new, or not this one, may come."""
        if self._rules.admission is Admission.CLOSED:
            return "the network is closed"
        if subject in after.committee.stake_of or subject in after.convicted:
            return f"{subject.hex()[:8]} votes, or stands convicted"
        members = len(after.committee.validators)
        most = min(self._rules.roll_max, self._rules.listed_max - members)
        return None if len(self._places) < most else f"more than {most} are on the roll"

    def _enters(self, name: NodeId, voucher: NodeId | None, round_number: int) -> None:
        since = round_number + EFFECT_ROUNDS
        self._places[name] = _Place(voucher, since, since - 1)
