"""This process as its operator sees it: its id, and the memory that is its own."""

import os
from pathlib import Path

_STATUS = Path("/proc/self/status")


class OwnProcess:
    """The process that this code runs in."""

    @property
    def pid(self) -> int:
        return os.getpid()

    def anon_rss_bytes(self) -> int:
        """Resident memory that no file backs; 0 where the kernel does not say (only Linux does)."""
        try:
            text = _STATUS.read_text()
        except OSError:
            return 0
        for line in text.splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        return 0
