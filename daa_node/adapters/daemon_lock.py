"""The lock of a node's directory: a daemon holds it from its first moment to its last."""

import fcntl
import os
from pathlib import Path

NAME = "node.lock"


def holder(lock: Path) -> str | None:
    """The pid of the process that holds it, or "unknown"; None if none does. Raises OSError."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Nobody tells who holds such a lock: it is taken, and given back with the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return pid_in(descriptor)
    finally:
        os.close(descriptor)
    return None


def pid_in(descriptor: int) -> str:
    """What its holder has written into it."""
    return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
