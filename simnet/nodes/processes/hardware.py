"""What a real node's disk and clock do to it, by files in its directory, and a slow processor.

    torn write    the log ends in the middle of a record that was being written
    bit rot       one bit of one certified file is turned, whoever reads it
    wiped         a new, empty disk; keys are kept elsewhere
    remembered, rolled back    everything but the keys is as it was at an earlier moment
    full          no process of the node can make a file longer
    wrong clock   the daemon's: what it decides by the date, not what it measures

The daemon is down or stopped meanwhile, but for rot, a full disk and the clock. Settings, genesis,
keys and the event log, which is how the tool looks into the node, stay as they are, and the log's
times are right. A full disk is a limit on file sizes (RLIMIT_FSIZE) that Linux lets us set and lift
while the processes run: they meet an error on every write, EFBIG where a full disk says ENOSPC.
"""

import random
import resource
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns, perf_counter, sleep, thread_time, time_ns

from simnet.nodes.processes import kernel
from simnet.world.links import MILLION, MS

STATE = ("chain", "chain.tmp", "work", "work.tmp", "agreement", "trainer")  # of a node's directory
LOG = Path("agreement/wal")
LOG_HEADER_BYTES, TORN_BYTES = 12, 24  # a record's head has 40: marker, length and hash


def tear(directory: Path) -> None:
    """Half the head of a record behind the log's last one."""
    log = directory / LOG
    if log.exists():
        written = log.read_bytes()
        with log.open("ab") as file:
            file.write(written[LOG_HEADER_BYTES : LOG_HEADER_BYTES + TORN_BYTES])


def rot(directory: Path, chance: random.Random) -> Path | None:
    """Turn a bit in one of the certified files; which one, if there is any."""
    chain = directory / "chain"
    files = sorted(path for path in chain.rglob("*") if path.is_file() and path.stat().st_size)
    if not files:
        return None
    path = chance.choice(files)
    with path.open("r+b") as file:
        at, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    return path


def wipe(directory: Path) -> None:
    for name in STATE:
        shutil.rmtree(directory / name, ignore_errors=True)


def remember(directory: Path, copy: Path) -> None:
    """The node must stand still meanwhile."""
    copy.mkdir()
    for name in STATE:
        if (directory / name).is_dir():
            shutil.copytree(directory / name, copy / name)


def roll_back(directory: Path, copy: Path) -> None:
    """Back to what `copy` remembers, which is used up."""
    wipe(directory)
    for path in copy.iterdir():
        path.rename(directory / path.name)
    copy.rmdir()


def fill(group: int, full: bool) -> None:
    """No process of the group can make a file longer, until it is no longer `full`."""
    for pid, its_group in kernel.process_groups():
        if its_group == group:
            limit_files(pid, full)


def limit_files(pid: int, full: bool) -> None:
    """0 is ourselves."""
    with suppress(ProcessLookupError):  # it has just ended
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if full else most, most))


@dataclass(frozen=True, slots=True)
class WrongClock:
    """A daemon's Clock, which is as wrong as the file at `path` says.

    <skew ns> <drift, parts in a million> <the monotonic clock when it began to drift>
    """

    path: Path

    def wall_ns(self) -> int:
        skew_ns, drift_ppm, since_ns = (float(word) for word in self.path.read_text().split())
        drifted_ns = (monotonic_ns() - since_ns) * drift_ppm / MILLION
        return time_ns() + int(skew_ns + drifted_ns)


def set_clock(path: Path, skew_ms: float, drift_ppm: float) -> None:
    """From now on; the first call is before any daemon reads it."""
    # replaced, never written over: a reader sees the old words or the new ones
    beside = path.with_suffix(".new")
    beside.write_text(f"{skew_ms * MS} {drift_ppm} {monotonic_ns()}")
    beside.replace(path)


class SlowProcessor:
    """A worker's clock on a processor that is `slowness` times slower than ours.

    What the worker computes between two looks takes as many times as long; it looks after every
    inner step. Only its own processor time counts, not what others take of it.
    """

    def __init__(self, slowness: float) -> None:
        self._slowness = slowness
        self._busy_s: float | None = None  # at the last look

    def now_s(self) -> float:
        """Called by the thread that computes."""
        if self._busy_s is not None:
            sleep((thread_time() - self._busy_s) * (self._slowness - 1))
        self._busy_s = thread_time()
        return perf_counter()
