"""What Linux offers and other systems may lack, each with what takes its place there.

Looked up at each call, so that a test takes a call away and sees what happens without it.
"""

import fcntl
import os

ROOM_BYTES = 1 << 20  # in one write


def cores() -> int:
    """How many this process may use; of the whole machine where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def sync_data(descriptor: int) -> None:
    """What was written is durable once this returns. Raises OSError.

    On macOS a mere fsync leaves it in the cache of the disk.
    """
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
        return
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)


def hold_room(descriptor: int, size_bytes: int) -> None:
    """Have a file's first bytes take their room on the disk, whatever they are. Raises OSError.

    Elsewhere each byte is written again as it is: slower, and the same.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size_bytes)
        return
    for start in range(0, size_bytes, ROOM_BYTES):
        wanted = min(ROOM_BYTES, size_bytes - start)
        there = os.pread(descriptor, wanted, start).ljust(wanted, b"\0")
        written = 0
        while written < wanted:
            written += os.pwrite(descriptor, there[written:], start + written)
