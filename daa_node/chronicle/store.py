"""Where a history is kept, as the node sees it; `adapters.sqlite_history` is the one on a disk.

Its calls block, so the node makes them through Offload. Each raises StorageFailed, and may be made
again: a history that is lost is less than a round that waits for it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from daa_node.chronicle.config import HistoryConfig
from daa_node.chronicle.rows import Batch, Decided, RoundRow, Span, Sums
from daa_node.observability.events import Event

ROWS_MAX = 1000  # of one answer
LACKING_MAX = 1024  # rounds that are looked for again
MEMBERS_MAX = 20_000  # of all rounds of one answer, some 4 MB as JSON; the first may have more


@dataclass(frozen=True, slots=True)
class Opened:
    """What an opened history holds already."""

    newest_height: int  # 0: no round
    events_until_s: float  # what the event log says of later is not in it
    set_aside: str | None = None  # why it begins anew, and where the other one lies
    lacking: tuple[int, ...] = ()  # heights of rounds among those in it, the lowest LACKING_MAX


class HistoryStore(Protocol):
    """One writer, readers at any time."""

    def open(self) -> Opened:
        """Before the first write, and again after a failure.

        A file that is damaged is set aside, and an empty one is begun. One of a newer program stays
        as it is: StorageFailed.
        """

    def write(self, batch: Batch) -> None:
        """All of it or nothing; a round that is there already stays as it is."""

    def trim(self, now_s: float, rounds_days: int) -> None:
        """Fold into hours and days what is older than that, or too much."""

    def rounds(self, after: int, limit: int) -> list[RoundRow]:
        """Above this height, the lowest first: so many at most, ROWS_MAX, and of MEMBERS_MAX.

        Only where there is none at all it is empty.
        """

    def decisions(self, after: int, limit: int) -> list[Decided]:
        """The same above this number."""

    def spans(self) -> list[Span]:
        """What is no longer told round by round, the oldest first."""

    def sums(self) -> Sums:
        """Of every host, from the first round in the history on."""

    def close(self) -> None:
        """Nothing is written after it."""


@dataclass(frozen=True, slots=True)
class HistoryParts:
    """A node's history, and where its event log can be read again."""

    store: HistoryStore
    config: HistoryConfig
    logged: Callable[[float], Iterator[Event]]  # since then (unix seconds), oldest first; blocks
