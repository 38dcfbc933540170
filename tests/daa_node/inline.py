"""Work that a test waits for: a virtual clock does not wait for threads."""

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")


class Inline:
    """The Offload seam without a thread."""

    async def run(self, work: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return work()
