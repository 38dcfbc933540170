"""Who trains without a vote: a roll that follows from the final sets alone.

    enroll in a set -> asked ------vouch in a set------> entered -> ready two rounds later
                         `--60 rounds without a word--> forgotten       |  |
              retire, a voucher that goes, evidence ----> gone <--------+  `--> drawn, or waits

`closed` takes nobody, `vouched` whom a member vouches for, `open` whoever asks. What a set of round
r says holds from round r + 2 on: the plan of r + 1 may be made already. Evidence alone works at
once, as of members.

  * A member vouches for `per_voucher` trainers at a time, those that idle among them. So f members
    that lie bring in f * per_voucher at the most, and of what one set merges no more than the f
    largest counts c_v of trainers there of one voucher: `f_agg = f + c_1 + ... + c_f`.
  * A trainer goes with its voucher, convicted or not: else a member could vouch, go, come back and
    vouch again. Who has gone may enroll once more, and another member vouch for it.
  * Who was in no set for IDLE_ROUNDS rounds is in no plan, and keeps its place. Enrolling again
    says that it is back. Its place is another's once it has idled for FORGOTTEN_ROUNDS.
  * Where more are ready than a round has room for, they are drawn by lot from the parent's seed.
    A trainer has as many lots as rounds that it has waited; who has waited for twice as long as
    one turn of all would take comes before every lot. So nobody waits for ever.

Pure: integers, no clock. `open` bounds nothing: whoever makes a thousand names has a thousand.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from daa_consensus.enrolment import Enroll, Retire, TrainerRequest, Vouch
from daa_dag import canonical
from daa_dag.ids import Digest, NodeId, tagged_digest

EFFECT_ROUNDS = 2  # from the set that says it to the first round in which it holds
IDLE_ROUNDS = 16  # a restart, a partition and a night's backup are shorter where rounds are short
FORGOTTEN_ROUNDS = 4096  # days of rounds of a minute
ASKED_ROUNDS = 60  # for which an enrolment waits for a word
LOTS_MAX = 64  # of one trainer: more cost hashing, and it is due long before


class Admission(StrEnum):
    CLOSED = "closed"
    VOUCHED = "vouched"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class RollRules:
    """What a genesis says of trainers."""

    admission: Admission = Admission.CLOSED
    per_voucher: int = 1
    roll_max: int = 64  # entries, and as many that ask


@dataclass(frozen=True, slots=True)
class Entry:
    """One trainer. `voucher` is None of who was let in by nobody in particular."""

    name: NodeId
    keys: bytes
    voucher: NodeId | None
    since: int  # the first round in which it may contribute
    seen: int  # the newest round in which a set had it, or in which it said that it is back
    planned: int  # the newest round for which it was drawn; the one before `since` at first
    until: int | None = None  # the first round in which it may not any more

    def is_ready(self, round_number: int) -> bool:
        here = self.since <= round_number and (self.until is None or round_number < self.until)
        return here and round_number - self.seen <= IDLE_ROUNDS


@dataclass(frozen=True, slots=True)
class Asked:
    """An enrolment that waits for a member's word."""

    name: NodeId
    keys: bytes
    request_id: Digest
    round: int  # in whose set it came


@dataclass(frozen=True, slots=True)
class Roll:
    """As it stands above the newest final set. Both lists are sorted by name."""

    rules: RollRules
    entries: tuple[Entry, ...] = ()
    asked: tuple[Asked, ...] = ()

    @property
    def root(self) -> Digest:
        """Of all that later rounds depend on."""
        entries: list[canonical.Value] = [
            [e.name, e.keys, e.voucher, e.since, e.seen, e.planned, e.until] for e in self.entries
        ]
        asked: list[canonical.Value] = [[a.name, a.keys, a.request_id, a.round] for a in self.asked]
        return Digest(tagged_digest("trainers-roll", [entries, asked]))

    def entry_of(self, name: NodeId) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    def ready(self, round_number: int) -> list[Entry]:
        """Who may contribute to the round, drawn or not."""
        return [entry for entry in self.entries if entry.is_ready(round_number)]

    def admits(self, request: TrainerRequest, members: Collection[NodeId]) -> bool:
        """Whether a set may carry the request: another would be read and forgotten."""
        match request.action:
            case Enroll(subject):
                return self._may_enroll(subject, request.id, members)
            case Vouch(voucher, request_id):
                return voucher in members and self._vouched_for(voucher, request_id) is not None
            case Retire(subject, by):
                entry = self.entry_of(subject)
                return entry is not None and entry.until is None and by in (subject, entry.voucher)

    def _may_enroll(self, subject: NodeId, request_id: Digest, members: Collection[NodeId]) -> bool:
        entry = self.entry_of(subject)
        if entry is not None:
            return entry.until is None  # it says that it is back
        if self.rules.admission is Admission.CLOSED or subject in members:
            return False
        waits = any(a.name == subject or a.request_id == request_id for a in self.asked)
        if self.rules.admission is Admission.OPEN:
            return len(self.entries) < self.rules.roll_max
        return not waits and len(self.asked) < self.rules.roll_max

    def _vouched_for(self, voucher: NodeId, request_id: Digest) -> Asked | None:
        """Whom this word would let in; None if the voucher, or the roll, has no place."""
        if self.rules.admission is not Admission.VOUCHED:
            return None
        places = self.rules.per_voucher - self.vouched_by(voucher)
        asked = next((a for a in self.asked if a.request_id == request_id), None)
        if asked is None or places <= 0 or len(self.entries) >= self.rules.roll_max:
            return None
        return asked

    def vouched_by(self, voucher: NodeId) -> int:
        """How many places of its quota are taken: also by who idles, or is about to go."""
        return sum(entry.voucher == voucher for entry in self.entries)

    def decided(
        self,
        round_number: int,
        requests: Sequence[TrainerRequest],
        authors: Collection[NodeId],
        convicted: Collection[NodeId],
        members: Collection[NodeId],
    ) -> "Roll":
        """Take in the final set of a round: whom it convicts, what it asks for, who is in it.

        `members` vote in the round's epoch and are not convicted.
        """
        now = self._without(round_number, convicted, members)
        for request in requests:
            if now.admits(request, members):
                now = now._taken_in(round_number, request)
        entries = tuple(
            replace(e, seen=round_number) if e.name in authors else e for e in now.entries
        )
        return replace(now, entries=entries)

    def _without(
        self, round_number: int, convicted: Collection[NodeId], members: Collection[NodeId]
    ) -> "Roll":
        kept = []
        for entry in self.entries:
            gone = entry.until is not None and entry.until <= round_number
            forgotten = round_number - entry.seen > FORGOTTEN_ROUNDS
            if gone or forgotten or entry.name in convicted or entry.name in members:
                continue
            if entry.voucher is not None and entry.voucher not in members and entry.until is None:
                entry = replace(entry, until=round_number + EFFECT_ROUNDS)
            kept.append(entry)
        asked = tuple(
            a
            for a in self.asked
            if round_number - a.round < ASKED_ROUNDS and a.name not in {*convicted, *members}
        )
        return replace(self, entries=tuple(kept), asked=asked)

    def _taken_in(self, round_number: int, request: TrainerRequest) -> "Roll":
        match request.action:
            case Enroll(subject, keys):
                known = self.entry_of(subject)
                if known is not None:
                    return self._with(replace(known, seen=round_number + 1))
                if self.rules.admission is Admission.OPEN:
                    return self._entered(round_number, subject, keys, None)
                asked = Asked(subject, keys, request.id, round_number)
                waiting = sorted([*self.asked, asked], key=lambda each: each.name)
                return replace(self, asked=tuple(waiting))
            case Vouch(voucher, request_id):
                asked = next(a for a in self.asked if a.request_id == request_id)
                left = tuple(a for a in self.asked if a is not asked)
                now = replace(self, asked=left)
                return now._entered(round_number, asked.name, asked.keys, voucher)
            case Retire(subject):
                going = self.entry_of(subject)
                assert going is not None, "who is not on the roll is not admitted to retire"
                return self._with(replace(going, until=round_number + EFFECT_ROUNDS))

    def _entered(
        self, round_number: int, name: NodeId, keys: bytes, voucher: NodeId | None
    ) -> "Roll":
        since = round_number + EFFECT_ROUNDS
        entry = Entry(name, keys, voucher, since, since, since - 1)
        entries = sorted([*self.entries, entry], key=lambda each: each.name)
        return replace(self, entries=tuple(entries))

    def _with(self, changed: Entry) -> "Roll":
        entries = tuple(changed if e.name == changed.name else e for e in self.entries)
        return replace(self, entries=entries)

    def drawn(self, round_number: int, seed: Digest, room: int) -> "Roll":
        """With those noted that the round's plan has; `seed` is the parent's."""
        chosen = {entry.name for entry in draw(self.ready(round_number), round_number, seed, room)}
        entries = tuple(
            replace(e, planned=round_number) if e.name in chosen else e for e in self.entries
        )
        return replace(self, entries=entries)

    def planned(self, round_number: int) -> list[NodeId]:
        """Who was drawn for the round, sorted."""
        return [entry.name for entry in self.entries if entry.planned == round_number]


def draw(ready: Sequence[Entry], round_number: int, seed: Digest, room: int) -> list[Entry]:
    """At most `room` of those that are ready: first who is due, then by lot."""
    if len(ready) <= room:
        return list(ready)
    turn = -(-len(ready) // max(1, room))  # rounds in which everybody could have been drawn

    def place(entry: Entry) -> tuple[int, int, bytes]:
        waited = round_number - entry.planned
        if waited > 2 * turn:
            return 0, -waited, entry.name
        lots = min(max(1, waited), LOTS_MAX)
        values = [
            tagged_digest("trainers-lot", [seed, round_number, entry.name, lot])
            for lot in range(lots)
        ]
        return 1, 0, min(values)

    return sorted(sorted(ready, key=place)[:room], key=lambda entry: entry.name)


def lying_max(present: Collection[NodeId], roll: Roll, vouchers_lying: int) -> int:
    """Of these trainers of one set how many may be bad if so many members lie.

    With `open`, or of trainers that nobody vouches for, all of them.
    """
    counts: Counter[NodeId | None] = Counter()
    for name in present:
        entry = roll.entry_of(name)
        counts[None if entry is None else entry.voucher] += 1
    unvouched = counts.pop(None, 0)
    return unvouched + sum(sorted(counts.values(), reverse=True)[:vouchers_lying])
