"""`daa-node run --supervise`: starts a daemon again that crashes, where no systemd does it.

    running --exit 0, or asked to stop--> ended
       |  --exit 2: the settings are wrong, and stay so--> ended with it
       |  --no sign of life for 120 s--> killed
       '--anything else--> waiting (1, 2, 4 ... 300 s, or until a SIGHUP) --> running

It never gives up: a disk, a network or memory that was away for a night is there again in the
morning. The daemon is a process of its own, in a session of its own: a Ctrl-C comes to us alone,
and we pass on what we get. It ends when we do, however we end: its standard input closes.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import trio

from daa_node.adapters.signs_of_life import SignsOfLife, listening, unwatched
from daa_node.cli import report
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.remarks import finish, remark
from daa_node.training.endings import how_ended

WAIT_S_FIRST, WAIT_S_MAX = 1.0, 300.0
LOOK_AFTER = 5  # crashes in a row: then a person is told where to look
STEADY_S = 600.0  # who ran for so long begins a new row
SILENCE_S = 120.0  # of a daemon that is ready; it speaks twice in that time. As the unit has it
SETTINGS_WRONG = 2  # the exit code
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Again:
    """Start it again after `wait_s`."""

    wait_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Leave it; `code` is ours, and `why` says so if it is not what was asked for."""

    code: int
    why: str | None = None


@dataclass(slots=True)
class Row:
    """Crashes one after another; it has no end."""

    wait_s_first: float = WAIT_S_FIRST
    crashes: int = 0
    wait_s: float = 0.0  # before the newest start

    def after(
        self, returncode: int, lived_s: float, is_stopping: bool, is_there: bool = True
    ) -> Again | Ended:
        """What to do once the daemon has ended; `returncode` as subprocess gives it.

        `is_there`: whether the node's directory can be read now.
        """
        if returncode == 0:
            return Ended(0)
        how = f"the daemon ended after {lived_s:.0f} s ({how_ended(returncode)})"
        if is_stopping and returncode in (-signal.SIGTERM, -signal.SIGINT):
            return Ended(0)  # it had no time yet to hear the signal
        if is_stopping:
            return Ended(1 if returncode < 0 else returncode, f"{how}, as it was to stop")
        if returncode == SETTINGS_WRONG and is_there:
            return Ended(returncode, f"{how}: a start does not mend what the message names")
        if returncode == -signal.SIGHUP:  # as before: no crash, and the next one reads the settings
            return Again(self.wait_s_first, f"{how}, before it could hear it: it starts again")
        if lived_s >= STEADY_S:
            self.crashes = 0
        return self._crashed(how)

    def not_started(self, why: str) -> Again:
        """What to do when the host lets no process begin."""
        return self._crashed(f"the daemon cannot be started ({why})")

    def _crashed(self, how: str) -> Again:
        self.crashes += 1
        self.wait_s = self.wait_s_first if self.crashes == 1 else min(WAIT_S_MAX, 2 * self.wait_s)
        nth = f"crash {self.crashes} in a row" if self.crashes > 1 else "a crash"
        look = "; `daa-node doctor` looks for the cause" if self.crashes >= LOOK_AFTER else ""
        return Again(self.wait_s, f"{how}, {nth}: it starts again in {self.wait_s:g} s{look}")


class Supervisor:
    """Of one daemon, which `command` starts."""

    def __init__(
        self,
        command: Sequence[str],
        tell: Callable[[str], None] = remark,
        ends_with_input: bool = False,
        row: Row | None = None,
        is_there: Callable[[], bool] = lambda: True,
        silence_s: float = SILENCE_S,
    ) -> None:
        """`ends_with_input`: the daemon ends when OUR standard input does.

        `is_there` says whether its directory can be read.
        """
        self._command = list(command)
        self._tell = tell
        self._ends_with_input = ends_with_input
        self._row = row or Row()
        self._is_there = is_there
        self._silence_s = silence_s
        self._daemon: trio.Process | None = None
        self._is_stopping = False
        self._called = trio.Event()  # by a signal, since the newest wait or start began

    async def run(self) -> int:
        """Our exit code, once the daemon has ended for good."""
        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(*PASSED_ON) as signals:
                nursery.start_soon(self._pass_on, signals)
                code = await self._keep()
                nursery.cancel_scope.cancel()
        return code

    async def _keep(self) -> int:
        while True:
            todo = await self._live()
            if todo.why is not None:
                self._tell(todo.why)
            if isinstance(todo, Ended):
                return todo.code
            self._called = trio.Event()
            if not self._is_stopping:
                with trio.move_on_after(todo.wait_s):
                    await self._called.wait()
            if self._is_stopping:
                self._tell("told to stop: it is not started again")
                return 0

    async def _live(self) -> Again | Ended:
        """One life of the daemon, and what comes after it."""
        started_s = time.monotonic()
        self._called = trio.Event()
        async with AsyncExitStack() as held:
            signs = await self._listening(held)
            environment = unwatched(os.environ) if signs is None else signs.environment(os.environ)
            try:
                self._daemon = daemon = await trio.lowlevel.open_process(
                    self._command,
                    stdin=None if self._ends_with_input else subprocess.PIPE,
                    start_new_session=True,
                    env=environment,
                )
            except OSError as failure:  # no memory, no process more, or a disk that is away
                return self._row.not_started(failure.strerror or str(failure))
            async with trio.open_nursery() as nursery:
                if signs is not None:
                    nursery.start_soon(self._end_if_silent, daemon, signs)
                if self._is_stopping:  # it was asked for while this one was being made
                    daemon.send_signal(signal.SIGTERM)
                elif self._called.is_set():  # and it may have read its settings by then
                    daemon.send_signal(signal.SIGHUP)
                returncode = await daemon.wait()
                nursery.cancel_scope.cancel()
        if daemon.stdin is not None:
            await daemon.stdin.aclose()
        self._daemon = None
        lived_s = time.monotonic() - started_s
        is_there = returncode != SETTINGS_WRONG or self._is_there()
        return self._row.after(returncode, lived_s, self._is_stopping, is_there)

    async def _listening(self, held: AsyncExitStack) -> SignsOfLife | None:
        """None where the host has no socket for it: a daemon that is not heard still works."""
        try:
            return await held.enter_async_context(listening(self._silence_s))
        except OSError as failure:
            self._tell(f"it will not be seen whether the daemon hangs ({failure.strerror})")
            return None

    async def _end_if_silent(self, daemon: trio.Process, signs: SignsOfLife) -> None:
        await signs.until_silent(lambda: self._is_stopping)
        self._tell(f"the daemon gave no sign of life for {self._silence_s:g} s: it is killed")
        daemon.kill()

    async def _pass_on(self, signals: AsyncIterator[int]) -> None:
        """A SIGHUP that comes while none runs starts one: it reads the settings."""
        async for number in signals:
            self._is_stopping |= number != signal.SIGHUP
            self._called.set()
            if self._daemon is not None:
                self._daemon.send_signal(number)


def supervise(root: Path, config: Path | None, join: tuple[str, ...], with_parent: bool) -> None:
    """Until the daemon has ended for good. Raises NodeError, and SystemExit with its exit code."""
    directory = DataDirectory(root)
    directory.check()
    holder = directory.holder()
    if holder is not None:
        raise directory.in_use(holder)
    words = [sys.executable, "-P", "-m", "daa_node", "run", "--with-parent", "--dir", str(root)]
    words += [] if config is None else ["--config", str(config)]
    for address in join:
        words += ["--join", address]
    report.note(f"supervising: {shlex.join(words)}")
    supervisor = Supervisor(words, ends_with_input=with_parent, is_there=directory.is_readable)
    try:
        code = trio.run(supervisor.run)
    finally:
        finish()
    if code != 0:
        raise SystemExit(code)
