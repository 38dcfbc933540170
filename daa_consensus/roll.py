"""Who trains without a vote: a roll that follows from the final sets alone.

    enroll (and vouch) in a set -> entered -> ready two rounds later -> drawn, or waits
                                      |  ^
          drawn 16 times, in no set: idle `--` enroll again
            retire, a voucher that goes, evidence -> gone

`closed` takes nobody, `vouched` whom a member vouches for, `open` whoever asks. What a set of round
r says holds from round r + 2 on: the plan of r + 1 may be made already. Evidence alone works at
once, as of members.

  * An enrolment and its voucher's word stand in one set: so nobody but members puts anything there,
    and what strangers ask for takes no room in the chain.
  * A member vouches for `per_voucher` trainers at a time, those that idle among them. So f members
    that lie bring in f * per_voucher at the most, and of what one set merges no more than the f
    largest counts c_v of trainers there of one voucher: `f_agg = f + c_1 + ... + c_f`.
  * A trainer goes with its voucher, convicted or not: else a member could vouch, go, come back and
    vouch again. Who has gone may enroll once more, and another member vouch for it. Only a seat
    that is handed to another key takes its trainers along.
  * Who was drawn IDLE_ROUNDS times since it was in a set last is in no plan, and keeps its place: a
    round for which it was not drawn, it has not missed, nor one that was aborted: too few came, or
    no quorum executed, and that says nothing of one of them. Enrolling again says that it is back.
    In an open network its place is another's once it has idled for FORGOTTEN_ROUNDS; elsewhere its
    voucher may retire it.
  * Where more are ready than a round has room for, they are drawn by lot from the parent's id.
    A trainer has as many lots as rounds that it has waited; who has waited for twice as long as
    one turn of all would take comes before every lot. So nobody waits for ever.

Pure: integers, no clock. `open` bounds nothing: whoever makes a thousand names has a thousand.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from daa_consensus.committee import CONTRIBUTORS_MAX, lying_trainers_max
from daa_consensus.enrolment import Enroll, Retire, TrainerRequest, Vouch
from daa_dag import canonical
from daa_dag.ids import DIGEST_BYTES, Digest, NodeId, numbered_digests, tagged_digest

EFFECT_ROUNDS = 2  # from the set that says it to the first round in which it holds
# Missed: a restart, a partition and a night's backup are shorter where rounds are short.
IDLE_ROUNDS = 16
FORGOTTEN_ROUNDS = 4096  # days of rounds of a minute
ROUND_AFTER_ALL = 2**62
# Ahead: for so long a request that was signed may be carried, by whoever has it. Whoever waits for
# a person's word signs anew.
EXPIRY_ROUNDS_MAX = 128
LOTS_MAX = 64  # of one trainer: more cost hashing, and it is due long before
EMPTY_ROOT = Digest(bytes(DIGEST_BYTES))  # of a roll on which nobody stands


class Admission(StrEnum):
    CLOSED = "closed"
    VOUCHED = "vouched"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class RollRules:
    """What a genesis says of trainers."""

    admission: Admission = Admission.CLOSED
    per_voucher: int = 1
    roll_max: int = 64  # entries
    contributors_max: int = CONTRIBUTORS_MAX  # of one round, members among them
    listed_max: int = CONTRIBUTORS_MAX  # members and entries: a simulated network may have more


@dataclass(frozen=True, slots=True)
class Entry:
    """One trainer. `voucher` is None of who was let in by nobody in particular."""

    name: NodeId
    keys: bytes
    voucher: NodeId | None
    since: int  # the first round in which it may contribute
    missed: int  # rounds with a result for which it was drawn since a set had it, or it is back
    planned: int  # the newest round for which it was drawn; the one before `since` at first
    until: int | None = None  # the first round in which it may not any more

    def is_ready(self, round_number: int) -> bool:
        here = self.since <= round_number and (self.until is None or round_number < self.until)
        return here and not self.is_idle

    @property
    def is_idle(self) -> bool:
        return self.missed >= IDLE_ROUNDS

    def is_drawn(self, round_number: int) -> bool:
        return self.planned == round_number and self.since <= round_number

    def after_set(self, round_number: int, is_in: bool) -> "Entry":
        """With what the set of the round says of it."""
        if is_in:
            return replace(self, missed=0) if self.missed else self
        return replace(self, missed=self.missed + 1) if self.is_drawn(round_number) else self

    def after_abort(self, round_number: int) -> "Entry":
        """Without what the aborted round's set said of it: who was in that set has missed none."""
        was_missed = self.missed > 0 and self.is_drawn(round_number)
        return replace(self, missed=self.missed - 1) if was_missed else self


@dataclass(frozen=True, slots=True)
class Asked:
    """An enrolment whose voucher's word must follow in the same set."""

    name: NodeId
    keys: bytes
    request_id: Digest


@dataclass(frozen=True)
class Roll:
    """As it stands above the newest final set, of round `round`; entries are sorted by name.

    `seed` is the id of the newest vertex that a final result names, zeros before there is one.
    `asked` are enrolments of the set that is being read: none is left once it is.
    """

    rules: RollRules = RollRules()
    entries: tuple[Entry, ...] = ()
    round: int = 0
    seed: Digest = EMPTY_ROOT
    asked: tuple[Asked, ...] = ()

    @cached_property
    def root(self) -> Digest:
        """Of all that later rounds depend on, their seeds aside."""
        if not self.entries:
            return EMPTY_ROOT
        entries: list[canonical.Value] = [
            [e.name, e.keys, e.voucher, e.since, e.missed, e.planned, e.until] for e in self.entries
        ]
        return Digest(tagged_digest("trainers-roll", entries))

    @property
    def is_inert(self) -> bool:
        """Whether no set ever changes it."""
        return not self.entries and self.rules.admission is Admission.CLOSED

    @cached_property
    def here(self) -> frozenset[NodeId]:
        """Who has a place and does not idle: those who write and are written to."""
        after = self.round + 1
        return frozenset(
            e.name for e in self.entries if not e.is_idle and (e.until is None or after <= e.until)
        )

    def lacks_round(self, round_number: int) -> bool:
        """Whether sets that are not followed yet may have let trainers into the round."""
        return not self.is_inert and round_number > self.round + EFFECT_ROUNDS

    def entry_of(self, name: NodeId) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    def ready(self, round_number: int) -> list[Entry]:
        """Who may contribute to the round, drawn or not."""
        return [entry for entry in self.entries if entry.is_ready(round_number)]

    def why_not(
        self,
        request: TrainerRequest,
        members: Collection[NodeId],
        convicted: Collection[NodeId] = (),
    ) -> str | None:
        """Why the set after `round` may not carry the request; None if it may.

        `members` vote in that set's epoch and are not convicted.
        """
        left = request.expires_round - self.round
        if not 1 <= left <= EXPIRY_ROUNDS_MAX:
            return f"it expires with round {request.expires_round}, and round {self.round} is over"
        match request.action:
            case Enroll(subject):
                return self._why_no_place(subject, members, convicted)
            case Vouch(voucher, request_id):
                return self._why_no_word(voucher, request_id, members)
            case Retire(subject, by):
                entry = self.entry_of(subject)
                if entry is None or entry.until is not None:
                    return "it is on no roll, or goes already"
                return None if by in (subject, entry.voucher) else "it is another's trainer"

    def admits(
        self,
        request: TrainerRequest,
        members: Collection[NodeId],
        convicted: Collection[NodeId] = (),
    ) -> bool:
        """Whether a set may carry the request: another would be read and forgotten."""
        return self.why_not(request, members, convicted) is None

    def _why_no_place(
        self, subject: NodeId, members: Collection[NodeId], convicted: Collection[NodeId]
    ) -> str | None:
        entry = self.entry_of(subject)
        if entry is not None:  # it says that it is back
            if entry.until is not None:
                return "it goes from the roll: ask again once it has gone"
            return None if entry.is_idle else "it is on the roll already"
        if self.rules.admission is Admission.CLOSED:
            return "the network is closed: its genesis names all trainers"
        if subject in members:
            return "a validator contributes already"
        if subject in convicted:
            return "it stands convicted by evidence"
        if any(asked.name == subject for asked in self.asked):
            return "it has asked already"
        return self.why_full(members)

    def why_full(self, members: Collection[NodeId]) -> str | None:
        """Why nobody can come beside these members; None if somebody can."""
        most = min(self.rules.roll_max, self.rules.listed_max - len(members))
        taken = len(self.entries) + len(self.asked)
        return None if taken < most else f"the roll is full: it has {most} places"

    def _why_no_word(
        self, voucher: NodeId, request_id: Digest, members: Collection[NodeId]
    ) -> str | None:
        if self.rules.admission is not Admission.VOUCHED:
            return f"nobody vouches in a network whose admission is {self.rules.admission}"
        if voucher not in members:
            return "only a validator vouches, none that stands convicted"
        quota, taken = self.rules.per_voucher, self.vouched_by(voucher)
        if taken >= quota:
            return (
                f"it vouches for {taken} of {quota} already: `daa-node trainers retire NODE` frees "
                "a place two rounds later"
            )
        known = any(asked.request_id == request_id for asked in self.asked)
        return None if known else "the enrolment must stand before it in the same set"

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
        now = self.begun(round_number, convicted, members)
        for request in requests:
            if now.admits(request, members, convicted):
                now = now.with_request(round_number, request)
        entries = tuple(e.after_set(round_number, e.name in authors) for e in now.entries)
        return replace(now, entries=entries, round=round_number, asked=())

    def begun(
        self, round_number: int, convicted: Collection[NodeId], members: Collection[NodeId]
    ) -> "Roll":
        """Without those who are gone by this round's set, before it is read."""
        kept, is_open = [], self.rules.admission is Admission.OPEN
        for entry in self.entries:
            gone = entry.until is not None and entry.until <= round_number
            is_over = round_number - entry.planned > FORGOTTEN_ROUNDS
            forgotten = is_open and entry.is_idle and is_over
            if gone or forgotten or entry.name in members:
                continue
            if entry.name in convicted:
                entry = replace(entry, until=round_number + 1)
            elif entry.voucher is not None and entry.voucher not in members:
                until = min(entry.until or ROUND_AFTER_ALL, round_number + EFFECT_ROUNDS)
                entry = replace(entry, until=until)
            kept.append(entry)
        return replace(self, entries=tuple(kept))

    def with_request(self, round_number: int, request: TrainerRequest) -> "Roll":
        """With what is admitted, of the set of this round."""
        match request.action:
            case Enroll(subject, keys):
                known = self.entry_of(subject)
                if known is not None:
                    back = round_number + EFFECT_ROUNDS
                    return self._with(replace(known, since=back, missed=0))
                if self.rules.admission is Admission.OPEN:
                    return self._entered(round_number, subject, keys, None)
                return replace(self, asked=(*self.asked, Asked(subject, keys, request.id)))
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
        entry = Entry(name, keys, voucher, since, 0, since - 1)
        entries = sorted([*self.entries, entry], key=lambda each: each.name)
        return replace(self, entries=tuple(entries))

    def _with(self, changed: Entry) -> "Roll":
        entries = tuple(changed if e.name == changed.name else e for e in self.entries)
        return replace(self, entries=entries)

    def ended(
        self,
        gone: Collection[NodeId],
        members: Collection[NodeId],
        handed: Mapping[NodeId, NodeId],
    ) -> "Roll":
        """An epoch is over: without those expelled, and those who have become members.

        `handed`: seats that were handed from one key to another, and their trainers with them.
        """
        entries = tuple(
            replace(e, voucher=handed.get(e.voucher, e.voucher)) if e.voucher is not None else e
            for e in self.entries
            if e.name not in gone and e.name not in members
        )
        return self if entries == self.entries else replace(self, entries=entries)

    def drawn(self, round_number: int, seed: Digest, room: int) -> "Roll":
        """With those noted that the round's plan has; `seed` is the parent's id."""
        chosen = {entry.name for entry in draw(self.ready(round_number), round_number, seed, room)}
        entries = tuple(
            replace(e, planned=round_number) if e.name in chosen else e for e in self.entries
        )
        return replace(self, entries=entries, seed=seed)

    def planned(self, round_number: int) -> list[Entry]:
        """Who was drawn for the round, sorted by name."""
        return [entry for entry in self.entries if entry.is_drawn(round_number)]


NOBODY = Roll()


def fixed(rules: RollRules, keys: Mapping[NodeId, bytes]) -> Roll:
    """The roll as it begins: the trainers that a genesis names, whom nobody vouches for."""
    return Roll(rules, tuple(Entry(name, keys[name], None, 1, 0, 1) for name in sorted(keys)))


def aborted(roll: Roll, round_number: int) -> Roll:
    """As it is above an abort of the round, whose set it has taken in: nobody has missed it."""
    return replace(roll, entries=tuple(e.after_abort(round_number) for e in roll.entries))


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
        return 1, 0, min(numbered_digests("trainers-lot", [seed, round_number, entry.name], lots))

    return sorted(sorted(ready, key=place)[:room], key=lambda entry: entry.name)


def lying_max(vouchers: Iterable[NodeId | None], members_lying: int, unvouched: int) -> int:
    """How many trainers, each with this voucher, may be bad if so many members lie.

    Of all those that nobody vouches for, `unvouched` in number, a third is taken to lie.
    """
    counts = Counter(vouchers)
    alone = min(counts.pop(None, 0), lying_trainers_max(unvouched))
    return alone + sum(sorted(counts.values(), reverse=True)[:members_lying])
