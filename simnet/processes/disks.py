"""What a real node's disk does to it, in its directory; its daemon is down or stopped meanwhile.

    torn write    the log ends in the middle of a record that was being written
    bit rot       one bit of one certified file is turned, whoever reads it
    wiped         a new, empty disk; keys are kept elsewhere
    remembered, rolled back    everything but the keys is as it was at an earlier moment
    full          no process of the node can make a file longer

Settings, genesis, keys and the event log, which is how the tool looks into the node, stay as they
are. A full disk is a limit on file sizes (RLIMIT_FSIZE) that Linux lets us set and lift while the
processes run: they meet an error on every write, EFBIG where a full disk says ENOSPC.
"""

import random
import resource
import shutil
from pathlib import Path

from simnet.processes import kernel

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
    for pid in kernel.members_of(group):
        limit_files(pid, full)


def limit_files(pid: int, full: bool) -> None:
    """0 is ourselves."""
    try:
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if full else most, most))
    except ProcessLookupError:
        return  # it has just ended
