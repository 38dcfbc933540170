"""Looks at the memory of processes again and again, in a thread beside what is measured."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self


class Looking:
    """Calls `look` each `every_s` seconds between begin and end."""

    def __init__(self, look: Callable[[], None], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            self._look()


def memory_of(pid: int) -> dict[str, int]:
    """Bytes by the kernel's names (RssAnon, VmHWM); nothing of a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    found = (line.split() for line in lines if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in found}
