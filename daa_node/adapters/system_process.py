"""What the operating system tells about this very process, and what it is asked for."""

import ctypes
import os
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
# Of glibc's mallopt. Told, the first does not go up with the largest buffer that was ever freed.
# Both are above a frame of the bulk channel, 1 MiB: mapped, or trimmed, anew for each, frames took
# four times the CPU. And as many heaps as the threads of a daemon need, not eight for each core.
_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 2 * 1024 * 1024
_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES = -1, 4 * 1024 * 1024
_M_ARENA_MAX, _ARENAS = -8, 2


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


def hand_memory_back() -> bool:
    """Have what is freed in megabytes go back to the kernel at once; False where that is no glibc.

    Else a daemon keeps the most that each of its threads has ever held: 20 MB in some thousand
    rounds. Call it before there are threads.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    settings = (
        (_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES),
        (_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES),
        (_M_ARENA_MAX, _ARENAS),
    )
    return all(mallopt(name, value) for name, value in settings)
