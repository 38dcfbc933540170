"""What the service manager of the host is told of this daemon: systemd's notify protocol.

    READY=1       it has its state, its doors are open, and its loop has taken its first decision
    STATUS=...    the newest certified round, or the quorum that is lacking
    WATCHDOG=1    trio still runs tasks: twice in each interval that the manager asks for
    STOPPING=1    it drains, or ends

A message is one datagram to the Unix socket that NOTIFY_SOCKET names, a file or an abstract name.
Without that variable nobody is told. Source: sd_notify(3) and sd_watchdog_enabled(3) of systemd.
"""

import os
import socket
from collections.abc import MutableMapping

import trio

from daa_node.observability import events
from daa_node.observability.events import Event, EventLog

ADDRESS, WATCHDOG_US, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
TELL_S_MAX = 5.0  # for a manager whose queue is full; then that message is lost
WATCHDOGS_AN_INTERVAL = 2  # as sd_watchdog_enabled(3) advises
WATCHDOG_S_LEAST = 0.05  # a shorter interval would keep the loop busy


class ServiceManager:
    """One manager that watches over this process, or none."""

    def __init__(self, environment: MutableMapping[str, str], pid: int) -> None:
        """Takes its variables out of `environment`: a worker is none of the manager's business."""
        self._address = environment.pop(ADDRESS, "")
        microseconds = environment.pop(WATCHDOG_US, "")
        asked_of = environment.pop(WATCHDOG_PID, str(pid))
        is_ours = asked_of == str(pid) and microseconds.isascii() and microseconds.isdigit()
        self.watchdog_s = int(microseconds) / 1e6 if is_ours else 0.0
        self._is_ready = self._is_stopping = False

    async def run(
        self, log: EventLog, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Tell what `log` says from now on, until cancelled; then that the daemon stops."""
        if not self._address.startswith(("/", "@")):  # as systemd's own clients have it
            task_status.started()
            return
        async with log.subscribe() as news, trio.open_nursery() as nursery:
            task_status.started()
            if self.watchdog_s > 0:
                nursery.start_soon(self._keep_awake)
            try:
                async for event in news:
                    await self._hear(event)
            finally:
                await self._stop()

    async def _hear(self, event: Event) -> None:
        match event["name"]:
            case events.DECISION:
                if not self._is_ready:
                    self._is_ready = True
                    await self._tell("READY=1")
                if event["decision"] == "drain":
                    await self._stop()
            case events.ROUND_FINALIZED:
                await self._tell(f"STATUS=round {event['round']} is certified")
            case events.QUORUM_WAIT:
                lacks = f"{event['reachable']} of {event['total']} reachable"
                more = ", waiting" if event["waiting"] else ""
                await self._tell(f"STATUS={lacks}, quorum {event['quorum']}{more}")
            case _:
                pass

    async def _stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            await self._tell("STOPPING=1")

    async def _keep_awake(self) -> None:
        """It runs among all other tasks: one that holds up trio holds this up, too."""
        while True:
            await self._tell("WATCHDOG=1")
            await trio.sleep(max(self.watchdog_s / WATCHDOGS_AN_INTERVAL, WATCHDOG_S_LEAST))

    async def _tell(self, message: str) -> None:
        """A manager that is gone or busy costs the message, not the daemon."""
        name = self._address
        address = f"\0{name[1:]}" if name.startswith("@") else name  # abstract: of Linux
        with trio.move_on_after(TELL_S_MAX, shield=True):
            try:
                with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                    await out.sendto(os.fsencode(message), os.fsencode(address))
            except OSError:
                return
