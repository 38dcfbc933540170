"""Plain numbers about this process: bytes on the wire, and memory that is its own."""

from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")


@dataclass(slots=True)
class Traffic:
    """Bytes through this node's sockets since it started, its own protocol overhead included."""

    sent: int = 0
    received: int = 0


def anon_rss_bytes() -> int:
    """Resident memory that no file backs; 0 where the kernel does not say (only Linux does)."""
    try:
        text = _STATUS.read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
