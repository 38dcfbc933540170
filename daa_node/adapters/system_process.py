"""What the operating system tells about this very process."""

import os
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


class SystemProcess:
    """The daemon's own process; its trainer is another one."""

    @property
    def pid(self) -> int:
        return os.getpid()

    def anon_rss_bytes(self) -> int:
        """Anonymous resident memory; where the kernel does not tell, the peak of all resident."""
        if _STATUS.exists():
            for line in _STATUS.read_text().splitlines():
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
