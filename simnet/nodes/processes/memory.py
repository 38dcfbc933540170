"""Resident memory of each real process over a run: it settles, and grows no further.

Read once a READ_S from /proc, from the first certified round on: a worker that only merges has done
nothing before. Read is what is anonymous, for the code is shared. Of each process's readings
the second quarter tells what it needs once it is at work, and the last quarter what it has come to:
the median of either, so that what is freed again counts for nothing. A process that lived for less
than READINGS_LEAST readings is not judged. Where the kernel does not tell, nothing is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

from simnet.nodes.processes.kernel import process_groups

READ_S = 0.5
READINGS_LEAST = 60  # half a minute: the first quarter outlasts meeting everybody
GROWTH_SHARE = 0.10  # of what it needs: chunks that the allocator keeps
# Of what a daemon holds more of as its chain grows, and of a worker's first evaluation.
SLACK_BYTES = 8 * 2**20
READINGS_MAX = 20_000  # of one process, then every second one is dropped
MIB = 2**20


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
        for pid, group in process_groups():
            size_bytes = anon_rss_bytes(pid) if group in groups else None
            if size_bytes is not None:
                role = "daemon" if pid == group else "worker"
                self.note(Process(groups[group], pid, role), size_bytes)

    def note(self, process: Process, size_bytes: int) -> None:
        kept = self.readings.setdefault(process, [])
        kept.append(size_bytes)
        if len(kept) > READINGS_MAX:  # of all, or quarters would be of different lengths
            self._every_s *= 2
            for readings in self.readings.values():
                del readings[1::2]

    def excess(self) -> list[str]:
        """Processes that went on growing."""
        return [
            f"node {process.node}'s {process.role}: {steady / MIB:.1f} MiB, then "
            f"{last / MIB:.1f}, at most {bound_bytes(steady) / MIB:.1f}"
            for process, steady, last in self._grown()
            if last > bound_bytes(steady)
        ]

    def as_facts(self) -> list[dict[str, object]]:
        """What each process needed, and has come to, in MiB."""
        return [
            {
                "node": process.node,
                "role": process.role,
                "readings": len(self.readings[process]),
                "steady_mib": round(steady / MIB, 1),
                "last_mib": round(last / MIB, 1),
            }
            for process, steady, last in self._grown()
        ]

    def _grown(self) -> Iterator[tuple[Process, int, int]]:
        for process, readings in self.readings.items():
            grown = growth(readings)
            if grown is not None:
                yield process, *grown


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
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    lines = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(lines[0].split()[1]) * 1024 if lines else None
