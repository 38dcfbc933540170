"""The lock of a node's directory: a daemon holds it from its first moment to its last."""

import fcntl
import os
import time
from pathlib import Path

NAME = "node.lock"
LOOKED_AT_S = 0.001  # who looks whether it is held holds it for less
LOOKS_MAX = 1_000


def take(descriptor: int) -> bool:
    """Whether it is ours now, and not a daemon's. Who only looks is waited for."""
    for _ in range(LOOKS_MAX):
        if _locks(descriptor, fcntl.LOCK_EX):
            return True
        if not _locks(descriptor, fcntl.LOCK_SH):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(LOOKED_AT_S)
    return False


def holder(lock: Path) -> str | None:
    """The pid of the process that holds it, or "unknown"; None if none does. Raises OSError."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Nobody tells who holds such a lock: it is taken, and given back with the descriptor.
        return None if _locks(descriptor, fcntl.LOCK_SH) else pid_in(descriptor)
    finally:
        os.close(descriptor)


def pid_in(descriptor: int) -> str:
    """What its holder has written into it."""
    return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"


def _locks(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
