"""A daemon's wall clock that the tool sets wrong while it runs: by a file that both know.

    <skew ns> <drift, parts in a million> <the monotonic clock when it began to drift>

The file is replaced, never written over, so that a reader sees the old words or the new ones. What
a daemon decides by the date goes wrong; what it measures, and the times in its event log, do not.
"""

from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns, time_ns

from simnet.links import MILLION, MS

FILE = "simulated-clock"


@dataclass(frozen=True, slots=True)
class WrongClock:
    """A Clock that is as wrong as `path` says."""

    path: Path

    def wall_ns(self) -> int:
        skew_ns, drift_ppm, since_ns = (float(word) for word in self.path.read_text().split())
        drifted_ns = (monotonic_ns() - since_ns) * drift_ppm / MILLION
        return time_ns() + int(skew_ns + drifted_ns)


def set_wrong(path: Path, skew_ms: float, drift_ppm: float) -> None:
    """From now on; the first call is before any daemon reads it."""
    beside = path.with_suffix(".new")
    beside.write_text(f"{skew_ms * MS} {drift_ppm} {monotonic_ns()}")
    beside.replace(path)
