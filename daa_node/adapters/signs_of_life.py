"""The other end of systemd's notify protocol: whether a daemon that we have started still runs.

    started --READY=1--> heard --nothing for `silence_s`--> silent

Before it is ready it may be long at its first state: nobody judges it then, unless it is to stop.
The socket lies in a folder that its owner alone opens. Source: sd_notify(3) of systemd.
"""

import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import trio

from daa_node.adapters.service_manager import ADDRESS, WATCHDOG_PID, WATCHDOG_US

MESSAGE_BYTES_MAX = 4096
READY = b"READY=1"


class SignsOfLife:
    """Of one daemon."""

    def __init__(self, listener: trio.socket.SocketType, address: str, silence_s: float) -> None:
        self._listener = listener
        self._address = address
        self._silence_s = silence_s

    def environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """For the daemon: with it, it tells us, and no manager of ours."""
        told = {ADDRESS: self._address, WATCHDOG_US: str(int(self._silence_s * 1e6))}
        return unwatched(ours) | told

    async def until_silent(self, is_to_stop: Callable[[], bool]) -> None:
        """Returns once it has said nothing for `silence_s`, and is ready or to stop."""
        is_ready = False
        while True:
            with trio.move_on_after(self._silence_s) as waiting:
                message = await self._listener.recv(MESSAGE_BYTES_MAX)
                is_ready |= READY in message.split(b"\n")
            if waiting.cancelled_caught and (is_ready or is_to_stop()):
                return


def unwatched(ours: Mapping[str, str]) -> dict[str, str]:
    """Our environment, without what a manager of ours has put there for us."""
    return {k: v for k, v in ours.items() if k not in (ADDRESS, WATCHDOG_US, WATCHDOG_PID)}


@asynccontextmanager
async def listening(silence_s: float) -> AsyncIterator[SignsOfLife]:
    """Raises OSError where no socket can be had."""
    with (
        tempfile.TemporaryDirectory(prefix="daa-", ignore_cleanup_errors=True) as folder,
        trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
    ):
        address = f"{folder}/notify"
        await listener.bind(address)
        yield SignsOfLife(listener, address, silence_s)
