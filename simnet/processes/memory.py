"""Resident memory of each real process over a run: it settles, and grows no further.

Read once a READ_S from /proc: what is anonymous, for the code is shared. Of each process's readings
the second quarter tells what it needs once it is at work, and the last quarter what it has come to:
the median of either, so that what is freed again counts for nothing. A process that lived for less
than READINGS_LEAST readings is not judged. Where the kernel does not tell, nothing is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

READ_S = 0.5
READINGS_LEAST = 60  # half a minute: the first quarter outlasts meeting everybody
GROWTH_SHARE = 0.10  # of what it needs: chunks that the allocator keeps
# Of what a daemon holds more of as its chain grows, and of a worker's first evaluation.
SLACK_BYTES = 8 * 2**20
READINGS_MAX = 20_000  # of one process, then every second one is dropped
_PROC = Path("/proc")


class Process(NamedTuple):
    node: int
    pid: int
    role: str


@dataclass(slots=True)
class Memory:
    """Of all processes of a run, by the group that each node's daemon leads."""

    _next_s: float = 0.0
    _every_s: float = READ_S
    readings: dict[Process, list[int]] = field(default_factory=dict)  # bytes

    def look(self, now_s: float, groups: dict[int, int]) -> None:
        """Read, if it is time. `groups`: the number of a node by its process group."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        for pid, group in _groups():
            if group in groups:
                role = "daemon" if pid == group else "worker"
                self._note(Process(groups[group], pid, role), anon_rss_bytes(pid))

    def _note(self, process: Process, size_bytes: int | None) -> None:
        if size_bytes is None:
            return
        kept = self.readings.setdefault(process, [])
        kept.append(size_bytes)
        if len(kept) > READINGS_MAX:  # of all, or quarters would be of different lengths
            self._every_s *= 2
            for readings in self.readings.values():
                del readings[1::2]

    def excess(self) -> list[str]:
        """Processes that went on growing."""
        found = []
        for process, readings in self.readings.items():
            grown = growth(readings)
            if grown is not None and grown[1] > bound_bytes(grown[0]):
                found.append(
                    f"node {process.node}'s {process.role}: {grown[0] / 2**20:.1f} MiB, then "
                    f"{grown[1] / 2**20:.1f}, at most {bound_bytes(grown[0]) / 2**20:.1f}"
                )
        return found

    def as_facts(self) -> list[dict[str, object]]:
        """What each process needed, and has come to, in MiB."""
        rows = []
        for process, readings in self.readings.items():
            grown = growth(readings)
            if grown is not None:
                steady, last = (round(size / 2**20, 1) for size in grown)
                about = {"node": process.node, "role": process.role, "readings": len(readings)}
                rows.append({**about, "steady_mib": steady, "last_mib": last})
        return rows


def growth(readings: list[int]) -> tuple[int, int] | None:
    """The median of the second quarter, and that of the last one; None for too few."""
    if len(readings) < READINGS_LEAST:
        return None
    quarter = len(readings) // 4
    return int(median(readings[quarter : 2 * quarter])), int(median(readings[-quarter:]))


def bound_bytes(steady_bytes: int) -> int:
    return int(steady_bytes * (1 + GROWTH_SHARE)) + SLACK_BYTES


def anon_rss_bytes(pid: int) -> int | None:
    """None if the process is gone, or the kernel does not tell."""
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return None
    lines = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(lines[0].split()[1]) * 1024 if lines else None


def _groups() -> Iterable[tuple[int, int]]:
    """Every process of this machine, and the group that it is in."""
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue  # it has just ended
            yield int(entry.name), int(fields[2])
