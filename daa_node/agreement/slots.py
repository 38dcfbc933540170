"""What this node has signed, and whether it may sign one thing more: nothing else.

A slot is (epoch, view) for Proposal, Notarize, Nullify and Finalize, and (epoch, round) for Offer
and Exec. Source: docs/protocol.md, "Never sign twice". Rules of `judge`, in order:

  * the same bytes again are the same statement again;
  * a slot holds one statement, ever; behind the floors, where some are forgotten, none is signed;
  * no new vote below the highest view voted in;
  * in one view never Finalize and Nullify, never Finalize(a) and Notarize(b);
  * after Exec for a round never a Notarize of a block that aborts it. The reverse is allowed: a
    vote for an abort that is not final forbids no Exec, and who executed still finalizes a
    notarized abort, or the network could halt (docs/consensus.md, "Exec against abort").

Memory is bounded: at most VIEWS_KEPT views and ROUNDS_KEPT rounds are remembered, and what is
forgotten raises a floor. Pure: no clock, no key, no disk.
"""

from dataclasses import dataclass
from typing import Any

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import signed_from_value, signed_value
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag import canonical
from daa_node.errors import Refused

VIEWS_KEPT = 32  # resends concern the open view; the rest serves peers a few views behind
ROUNDS_KEPT = 8  # a round opens only when the one before is closed, so two would do
VIEW_KINDS = (Kind.PROPOSAL, Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE)
ROUND_KINDS = (Kind.OFFER, Kind.EXEC)
SLOTTED = Limits(0, 0)  # no statement with a slot lists validators or contributors
# What reading a stored value raises when the value is not one of ours.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, BadMessage)

Slot = tuple[int, int]  # (epoch, view) or (epoch, round)


@dataclass(frozen=True, slots=True)
class SlotEntry:
    """One slotted statement that was signed."""

    signed: Signed
    ticket: int = 0  # counts statements since the start of the process; durable up to some ticket


class Slots:
    """The memory of one signer."""

    def __init__(self) -> None:
        self._views: dict[Slot, dict[Kind, SlotEntry]] = {}
        self._rounds: dict[Slot, dict[Kind, SlotEntry]] = {}
        self._view_floor: Slot = (0, 0)
        self._offer_floor: Slot = (0, 0)
        self._exec_floor: Slot = (0, 0)
        # Highest slot a kind was signed for: what the guard file holds.
        self._highest: dict[str, Slot] = {}

    @property
    def view_floor(self) -> Slot:
        """(epoch, view) from which on every vote is remembered."""
        return self._view_floor

    @property
    def view(self) -> Slot:
        """(epoch, view) of the highest view voted in, or of the first we may vote in."""
        return max([self._view_floor, *(self._highest.get(kind, (0, 0)) for kind in VIEW_KINDS)])

    @property
    def highest(self) -> dict[str, Slot]:
        return dict(self._highest)

    def entries(self) -> list[SlotEntry]:
        """Everything remembered: rounds first, then views, each ascending."""
        found: list[SlotEntry] = []
        for table in (self._rounds, self._views):
            for slot in sorted(table):
                found += [table[slot][kind] for kind in sorted(table[slot])]
        return found

    def judge(self, statement: Statement, abort_round: int | None) -> SlotEntry | None:
        """What was given already in the same bytes, or None if it may be given; raises Refused.

        `abort_round` is the round that the block aborts which a Notarize names, if it aborts one.
        """
        table, slot = self._table_of(statement.kind), _slot_of(statement)
        entry = table.get(slot, {}).get(statement.kind)
        if entry is not None:
            if entry.signed.statement.sign_bytes() == statement.sign_bytes():
                return entry
            raise Refused("slot-taken", f"another {statement.kind} was signed for {slot}")
        if slot < self._floor_of(statement.kind):
            floor = self._floor_of(statement.kind)
            raise Refused("behind-floor", f"{statement.kind} for {slot}, memory begins at {floor}")
        if statement.kind in VIEW_KINDS:
            self._judge_view(statement, slot)
        if abort_round is not None:
            self._judge_abort((slot[0], abort_round))
        return None

    def note(self, entry: SlotEntry) -> None:
        """Remember a statement that judge allowed, or that the log holds. Forgets the oldest.

        Raises ValueError when a log holds two different statements for one slot: it was tampered
        with.
        """
        statement = entry.signed.statement
        slot = _slot_of(statement)
        given = self._table_of(statement.kind).setdefault(slot, {})
        held = given.setdefault(statement.kind, entry)
        if held is not entry and held.signed.statement.sign_bytes() != statement.sign_bytes():
            raise ValueError(f"two different statements for {statement.kind} {slot}")
        self._raise_mark(statement.kind, slot)
        self._forget_surplus()

    def raise_floors(self, view: Slot, offer: Slot, executed: Slot) -> None:
        """Sign nothing new below these slots, and forget what lies there."""
        self._view_floor = max(self._view_floor, view)
        self._offer_floor = max(self._offer_floor, offer)
        self._exec_floor = max(self._exec_floor, executed)
        for slot in [s for s in self._views if s < self._view_floor]:
            del self._views[slot]
        closed = min(self._offer_floor, self._exec_floor)
        for slot in [s for s in self._rounds if s < closed]:
            del self._rounds[slot]

    def raise_marks(self, highest: dict[str, Slot]) -> None:
        """Take over the marks of a guard that remembers more than we do."""
        for name, slot in highest.items():
            self._raise_mark(name, slot)

    def as_value(self) -> canonical.Value:
        floors = [self._view_floor, self._offer_floor, self._exec_floor]
        return {
            "floors": [list(floor) for floor in floors],
            "highest": marks_value(self._highest),
            "words": [entry_value(entry) for entry in self.entries()],
        }

    @classmethod
    def of_value(cls, value: Any) -> "Slots":
        """The inverse of as_value; raises one of UNREADABLE otherwise."""
        slots = cls()
        view, offer, executed = (_slot_of_value(floor) for floor in value["floors"])
        slots.raise_floors(view, offer, executed)
        slots.raise_marks(marks_of(value["highest"]))
        for entry in value["words"]:
            slots.note(entry_of(entry))
        return slots

    def _judge_view(self, statement: Statement, slot: Slot) -> None:
        if slot < self.view:
            raise Refused(
                "below-view", f"{statement.kind} for {slot}, already voted in {self.view}"
            )
        given = self._views.get(slot, {})
        match statement.kind:
            case Kind.NULLIFY if Kind.FINALIZE in given:
                raise Refused("finalized-view", f"nullify for {slot}, which we finalized")
            case Kind.FINALIZE if Kind.NULLIFY in given:
                raise Refused("nullified-view", f"finalize for {slot}, which we nullified")
        other = {Kind.FINALIZE: Kind.NOTARIZE, Kind.NOTARIZE: Kind.FINALIZE}.get(statement.kind)
        if other in given and given[other].signed.statement.value != statement.value:
            raise Refused(
                "other-block", f"{statement.kind} for {slot}, {other} named another block"
            )

    def _judge_abort(self, aborted: Slot) -> None:
        if Kind.EXEC in self._rounds.get(aborted, {}):
            raise Refused("executed", f"notarize of the abort of executed round {aborted}")
        if aborted < self._exec_floor:
            raise Refused("behind-floor", f"notarize of the abort of forgotten round {aborted}")

    def _table_of(self, kind: Kind) -> dict[Slot, dict[Kind, SlotEntry]]:
        assert kind in VIEW_KINDS or kind in ROUND_KINDS, f"{kind} has no slot"
        return self._views if kind in VIEW_KINDS else self._rounds

    def _floor_of(self, kind: Kind) -> Slot:
        if kind in VIEW_KINDS:
            return self._view_floor
        return self._offer_floor if kind is Kind.OFFER else self._exec_floor

    def _raise_mark(self, name: str, slot: Slot) -> None:
        self._highest[str(name)] = max(self._highest.get(str(name), (0, 0)), slot)

    def _forget_surplus(self) -> None:
        view = offer = executed = (0, 0)
        if len(self._views) > VIEWS_KEPT:
            view = sorted(self._views)[-VIEWS_KEPT]
        rounds = sorted(self._rounds)
        if len(rounds) > ROUNDS_KEPT:
            offer = executed = rounds[-ROUNDS_KEPT]
        if max(view, offer) > (0, 0):
            self.raise_floors(view, offer, executed)


def entry_value(entry: SlotEntry) -> canonical.Value:
    return signed_value(entry.signed)


def entry_of(value: Any) -> SlotEntry:
    """The inverse of entry_value; raises one of UNREADABLE otherwise."""
    return SlotEntry(signed_from_value(value, SLOTTED))


def marks_value(highest: dict[str, Slot]) -> canonical.Value:
    return {name: list(slot) for name, slot in highest.items()}


def marks_of(value: Any) -> dict[str, Slot]:
    return {str(name): _slot_of_value(slot) for name, slot in value.items()}


def _slot_of(statement: Statement) -> Slot:
    number = statement.view if statement.kind in VIEW_KINDS else statement.height
    return (statement.domain.epoch, number)


def _slot_of_value(value: Any) -> Slot:
    epoch, number = value
    if not isinstance(epoch, int) or not isinstance(number, int):
        raise TypeError("a slot is two integers")
    return (epoch, number)
