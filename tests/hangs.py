"""A test that hangs is named and ended, wherever it hangs.

pytest-timeout raises inside a test that takes too long, its fixtures with it. Five things are left:

- what is raised while trio waits for an event would leave trio as if it still ran, and each later
  test with it: a task of trio's own raises then, and trio takes down what runs;
- after a failure it stops its clock, and what then takes a fixture down may hang for ever: the
  clock starts again for that;
- what is raised may be caught, or held up by whoever cleans up: GRACE_S later the process prints
  where all its threads are and ends, and pytest-xdist names the test that it ran;
- a process may hang when all its tests are done: it has END_S;
- a run that is cut off as a whole (SIGINT) names the tests that have begun and not ended.
"""

import faulthandler
import os
import signal
from collections.abc import Generator
from functools import partial
from types import FrameType
from typing import Any

import pytest
import trio

GRACE_S = 180.0  # the daemons of a test that failed drain and end, on a busy machine
END_S = 300.0  # thousands of files in temporary directories are removed
CLOCK = pytest.StashKey[Any]()  # the settings of pytest-timeout for this test
STDERR = pytest.StashKey[int]()  # the real one: tests' own is captured


class Unfinished:
    """The tests that run now, in this process or in its workers."""

    def __init__(self) -> None:
        self._running: dict[str, None] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self._running:
            terminalreporter.write_line(f"UNFINISHED {nodeid}")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)
    config.pluginmanager.register(Unfinished())


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, Any, Any]:
    item.stash[CLOCK] = settings
    _end_in(settings.timeout + GRACE_S, item.config)
    done = yield
    signal.signal(signal.SIGALRM, partial(_ring, signal.getsignal(signal.SIGALRM)))
    return done


@pytest.hookimpl(wrapper=True)
def pytest_timeout_cancel_timer() -> Generator[None, Any, Any]:
    faulthandler.cancel_dump_traceback_later()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    if CLOCK in item.stash:
        item.config.hook.pytest_timeout_set_timer(item=item, settings=item.stash[CLOCK])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    _end_in(END_S, session.config)


def _ring(rings: Any, number: int, frame: FrameType | None) -> None:
    async def in_trio() -> None:
        rings(number, frame)

    if trio.lowlevel.in_trio_run() and not trio.lowlevel.in_trio_task():
        token = trio.lowlevel.current_trio_token()
        token.run_sync_soon(partial(trio.lowlevel.spawn_system_task, in_trio))
    else:
        rings(number, frame)


def _end_in(seconds: float, config: pytest.Config) -> None:
    """Ends this process unless called off: by a thread that needs no lock of Python's."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[STDERR])
