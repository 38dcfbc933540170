"""A lock that costs nothing while it is free.

trio.Lock gives the turn to others at every acquisition, free or not. A message on its way through
the layers of libp2p takes five of them, and that is most of what the event loop has to do; a vote
and an answer to a peer take one each on top.
"""

from types import TracebackType

import trio


class PromptLock:
    """Fair, as trio.Lock is, to those who must wait; no checkpoint for who need not."""

    def __init__(self) -> None:
        self._lock = trio.Lock()

    @property
    def is_free(self) -> bool:
        return not self._lock.locked()

    async def acquire(self) -> None:
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._lock.release()
