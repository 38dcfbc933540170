"""What each volunteer's results were worth, by name; kept over restarts.

    new --right--> known --wrong--> barred for a day --> known

Whoever was wrong once is believed nothing for a day: results of honest pages are equal bit for bit.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, NodeId

NAMES_MAX = 4096  # the longest unseen is forgotten; 60 bytes each
BARRED_S = 24 * 3600
STORED_BYTES_MAX = NAMES_MAX * 80 + 16
COUNT_MAX = 2**62


@dataclass(frozen=True, slots=True)
class Standing:
    """Counts of verdicts, and until when nothing of this name is taken (Unix time)."""

    tasks: int = 0
    agreed: int = 0
    disagreed: int = 0
    barred_until_s: int = 0

    @property
    def lifetime(self) -> tuple[int, int, int]:
        """As pages are told."""
        return self.tasks, self.agreed, self.disagreed


class Standings:
    """Of every name that has sent a verdict; `now_s` is Unix time."""

    def __init__(self, stored: bytes | None = None) -> None:
        """From `encode`; what is damaged is begun anew, since it is nobody's but ours."""
        self._names: OrderedDict[NodeId, Standing] = OrderedDict()
        self.is_changed = False
        for row in _rows(stored):
            name, *counts = row
            self._names[NodeId(name)] = Standing(*counts)

    def __contains__(self, name: NodeId) -> bool:
        return name in self._names

    def of(self, name: NodeId) -> Standing:
        return self._names.get(name, Standing())

    def is_barred(self, name: NodeId, now_s: int) -> bool:
        return self.of(name).barred_until_s > now_s

    def took(self, name: NodeId) -> None:
        """One more verdict of it."""
        known = self.of(name)
        self._put(name, replace(known, tasks=known.tasks + 1))

    def judged(self, name: NodeId, is_right: bool, now_s: int) -> None:
        """What came of one."""
        known = self.of(name)
        if is_right:
            self._put(name, replace(known, agreed=known.agreed + 1))
        else:
            until_s = now_s + BARRED_S
            self._put(name, replace(known, disagreed=known.disagreed + 1, barred_until_s=until_s))

    def encode(self) -> bytes:
        """For the disk; marks that it was done."""
        self.is_changed = False
        return canonical.encode(
            [
                [name, one.tasks, one.agreed, one.disagreed, one.barred_until_s]
                for name, one in self._names.items()
            ]
        )

    def _put(self, name: NodeId, standing: Standing) -> None:
        self._names[name] = standing
        self._names.move_to_end(name)
        if len(self._names) > NAMES_MAX:
            self._names.popitem(last=False)
        self.is_changed = True


def _rows(stored: bytes | None) -> list[Any]:
    try:
        rows = [] if stored is None else canonical.decode(stored, STORED_BYTES_MAX)
    except NotCanonical:
        return []
    return rows if isinstance(rows, list) and all(map(_is_row, rows)) else []


def _is_row(row: Any) -> bool:
    match row:
        case [bytes() as name, *counts] if len(name) == DIGEST_BYTES and len(counts) == 4:
            return all(type(count) is int and 0 <= count <= COUNT_MAX for count in counts)
    return False
