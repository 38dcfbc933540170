"""Who trained in which round, and the roots of the roll, as far back as somebody may ask."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from daa_consensus.bft.messages import Block, SetPayload
from daa_consensus.roll import Roll
from daa_dag import canonical
from daa_dag.ids import Digest, NodeId

ROUNDS_KEPT = 4096  # of a running node; a page that it judges has four of them


class Drawn(NamedTuple):
    """The trainers of the rounds from this one on, each with its voucher."""

    round: int
    vouchers: tuple[tuple[NodeId, NodeId | None], ...]


class Rooted(NamedTuple):
    """The root of the roll above the sets from this round's on."""

    round: int
    root: Digest


@dataclass(frozen=True, slots=True)
class RollRecord:
    """All that a `RollHistory` has come to, oldest first."""

    drawn: Sequence[Drawn]
    rooted: Sequence[Rooted]


class RollHistory:
    """Of one chain, from its first roll on. With `rounds_kept` None nothing is forgotten."""

    def __init__(self, first: Roll) -> None:
        self.rounds_kept: int | None = None
        self.is_inert = first.is_inert  # no set ever changes it
        self._drawn = [Drawn(1, _vouchers(first, 1))]  # oldest first, one a change
        self._rooted = [Rooted(0, first.root)]

    def copy(self) -> "RollHistory":
        twin = RollHistory(Roll())
        twin.rounds_kept, twin.is_inert = self.rounds_kept, self.is_inert
        twin._drawn, twin._rooted = list(self._drawn), list(self._rooted)
        return twin

    def record(self) -> RollRecord:
        return RollRecord(tuple(self._drawn), tuple(self._rooted))

    def recall(self, record: RollRecord) -> None:
        """Bring it to what an earlier process had come to, of the same chain."""
        self._drawn, self._rooted = list(record.drawn), list(record.rooted)

    def note(self, roll: Roll, block: Block) -> None:
        """What the roll is above a final block that changes it."""
        if isinstance(block.payload, SetPayload):
            if roll.root != self._rooted[-1].root:
                self._rooted.append(Rooted(block.height, roll.root))
        else:
            vouchers = _vouchers(roll, block.height + 1)
            if vouchers != self._drawn[-1].vouchers:
                self._drawn.append(Drawn(block.height + 1, vouchers))
        if self.rounds_kept is not None:
            for kept in (self._drawn, self._rooted):
                if len(kept) > 2 * self.rounds_kept:
                    del kept[: -self.rounds_kept]

    def trainers(self, round_number: int) -> dict[NodeId, NodeId | None]:
        """Who was drawn for the round, each with its voucher; None of whom nobody vouches for."""
        at = bisect_right(self._drawn, round_number, key=lambda drawn: drawn.round)
        return dict(self._drawn[max(0, at - 1)].vouchers)

    def has_drawn(self, name: NodeId, first_round: int, last_round: int) -> bool:
        """Whether this one was drawn for one of these rounds, as far as they are known."""
        since = bisect_right(self._drawn, first_round, key=lambda drawn: drawn.round)
        until = bisect_right(self._drawn, last_round, key=lambda drawn: drawn.round)
        return any(
            name == trainer
            for drawn in self._drawn[max(0, since - 1) : until]
            for trainer, _ in drawn.vouchers
        )

    def root(self, round_number: int) -> Digest:
        """Of the roll above the set of the round."""
        at = bisect_right(self._rooted, round_number, key=lambda rooted: rooted.round)
        return self._rooted[max(0, at - 1)].root


def _vouchers(roll: Roll, round_number: int) -> tuple[tuple[NodeId, NodeId | None], ...]:
    return tuple((entry.name, entry.voucher) for entry in roll.planned(round_number))


def roll_record_value(record: RollRecord) -> canonical.Value:
    """Each pair of a trainer and its voucher stands once: most are drawn again and again."""
    pairs = {
        pair: at
        for at, pair in enumerate(
            dict.fromkeys(pair for drawn in record.drawn for pair in drawn.vouchers)
        )
    }
    return [
        [[name, voucher] for name, voucher in pairs],
        [[drawn.round, [pairs[pair] for pair in drawn.vouchers]] for drawn in record.drawn],
        [[rooted.round, rooted.root] for rooted in record.rooted],
    ]


def roll_record_from(value: Any) -> RollRecord:
    """Raises LookupError, TypeError or ValueError for what is none."""
    pairs, drawn, rooted = value
    known = [
        (NodeId(name), None if voucher is None else NodeId(voucher)) for name, voucher in pairs
    ]
    if not drawn or not rooted:
        raise ValueError("a history of the roll begins with a first one")
    return RollRecord(
        tuple(Drawn(round_, tuple(known[at] for at in row)) for round_, row in drawn),
        tuple(Rooted(round_, Digest(root)) for round_, root in rooted),
    )
