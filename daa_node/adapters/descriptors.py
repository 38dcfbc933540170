"""File descriptors: enough of them, and patience while there are none.

Sockets are bounded where they are accepted. The daemon asks the system for as many descriptors as
they may take together, and FILES_MAX more: strangers never take those that the disk needs. What
can still lack belongs to the whole machine, and that passes: whoever meets it waits, tries again
and says so. It is never a broken disk, and nobody accepts in a tight loop.
"""

import errno
import resource
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from daa_node.errors import StorageFailed, UserError
from daa_node.network.pace import Pace

T = TypeVar("T")

LACKS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Twelve threads with two files each, thirty packs, logs, the worker's pipes, and a mapped update of
# each of a hundred members: half as many again.
FILES_MAX = 240
PAUSE_S = 0.1
TOLD_EVERY_S = 10.0
# Those beyond it hear nothing from the kernel, and try again after a second; whoever is the last
# in it waits two or three.
ACCEPT_BACKLOG = 256


def raise_limit(needed: int, wished: int) -> None:
    """Let this process have `wished` descriptors, or as many as the system allows.

    Raises UserError if it does not allow those that are `needed`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    check_limit(needed, hard)
    most = wished if hard == resource.RLIM_INFINITY else min(wished, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def check_limit(needed: int, hard: int) -> None:
    """Raise UserError if `hard`, the limit of a process, does not allow what is `needed`."""
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UserError(
            f"this node may need {needed} open files and sockets, and {hard} are allowed: raise "
            f"the limit (`ulimit -n {needed}`, or LimitNOFILE={needed} of a systemd unit), or "
            f"lower network.peers_max"
        )


def is_lack(fault: BaseException | None) -> bool:
    """Whether it, or what caused it, is the lack of something that others will give back."""
    if isinstance(fault, OSError):
        return fault.errno in LACKS
    return isinstance(fault, StorageFailed) and is_lack(fault.__cause__)


class Shortage:
    """Waits for descriptors; `tell` hears the reason, now and then."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self._tell = tell
        self._told_at_s = -TOLD_EVERY_S

    async def outlast(self, work: Callable[[], Awaitable[T]]) -> T:
        """`work`, anew as often as it takes: what it changed before it met a lack stands."""
        while True:
            try:
                return await work()
            except (OSError, StorageFailed) as fault:
                if not is_lack(fault):
                    raise
                self._say(str(fault))
            await trio.sleep(PAUSE_S)

    def _say(self, detail: str) -> None:
        now_s = trio.current_time()
        if self._tell is not None and now_s - self._told_at_s >= TOLD_EVERY_S:
            self._told_at_s = now_s
            self._tell(detail)


class Gate:
    """What the listeners of one service share: places for sockets, and a pace."""

    def __init__(self, sockets_max: int, accepts_per_s: float, shortage: Shortage) -> None:
        """Twice `accepts_per_s` may come at once."""
        self.places = trio.Semaphore(sockets_max)
        self.pace = Pace(accepts_per_s, 2 * accepts_per_s)
        self.shortage = shortage


async def serve(
    listener: trio.SocketListener,
    handler: Callable[[trio.SocketStream], Awaitable[object]],
    gate: Gate,
) -> None:
    """Until cancelled. Sockets that find no place, or come too fast, wait in the kernel's queue.

    A socket is closed when its handler returns, which must raise nothing.
    """

    async def handle(stream: trio.SocketStream) -> None:
        try:
            await handler(stream)
        finally:
            await trio.aclose_forcefully(stream)
            gate.places.release()

    async with trio.open_nursery() as nursery:
        while True:
            await gate.places.acquire()
            await gate.pace.take()
            nursery.start_soon(handle, await gate.shortage.outlast(listener.accept))
