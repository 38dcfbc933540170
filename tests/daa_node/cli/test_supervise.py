"""A crashed daemon is started again with back-off, and a stop is a stop."""

import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.supervise import (
    LOOK_AFTER,
    STEADY_S,
    WAIT_S_MAX,
    Again,
    Ended,
    Row,
    Supervisor,
    supervise,
)
from tests.daa_node.cli.conftest import Command
from tests.daa_node.cli.doctor.scenes import made_node

SOON_S = 0.01
WAIT_S = 60.0  # what takes milliseconds on a machine that does nothing else


def test_the_waits_grow_up_to_a_bound_and_it_never_gives_up() -> None:
    row, waits_s = Row(), []
    for _ in range(2000):
        todo = row.after(-9, 3.0, is_stopping=False)
        assert isinstance(todo, Again)
        assert "killed by signal 9 (SIGKILL)" in todo.why
        assert ("daa-node doctor" in todo.why) == (row.crashes >= LOOK_AFTER)
        waits_s.append(todo.wait_s)
    assert waits_s == [1, 2, 4, 8, 16, 32, 64, 128, 256, *[WAIT_S_MAX] * 1991]


def test_who_ran_for_long_begins_a_new_row() -> None:
    row = Row()
    for _ in range(9):
        row.after(1, 3.0, is_stopping=False)
    todo = row.after(-11, STEADY_S, is_stopping=False)
    assert isinstance(todo, Again)
    assert todo.wait_s == 1
    assert row.crashes == 1


def test_a_hangup_that_comes_before_it_can_be_heard_is_no_crash() -> None:
    row = Row()
    for _ in range(20):
        todo = row.after(-signal.SIGHUP, 0.2, is_stopping=False)
        assert isinstance(todo, Again)
        assert todo.wait_s == 1
    assert row.crashes == 0


def test_a_directory_whose_disk_is_away_is_no_wrong_setting() -> None:
    todo = Row().after(2, 3.0, is_stopping=False, is_there=False)
    assert isinstance(todo, Again)


def test_a_directory_is_readable_where_a_node_is(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    assert DataDirectory(root).is_readable()
    root.rename(tmp_path / "away")
    assert not DataDirectory(root).is_readable()


@pytest.mark.parametrize(
    ("returncode", "is_stopping", "code", "is_told"),
    [
        (0, False, 0, False),
        (0, True, 0, False),
        (2, False, 2, True),
        (-15, True, 0, False),
        (-9, True, 1, True),
        (1, True, 1, True),
    ],
)
def test_what_a_start_does_not_mend_ends_it(
    returncode: int, is_stopping: bool, code: int, is_told: bool
) -> None:
    todo = Row().after(returncode, 3.0, is_stopping)
    assert isinstance(todo, Ended)
    assert (todo.code, todo.why is not None) == (code, is_told)


def script(body: str) -> list[str]:
    return ["/bin/sh", "-c", body]


async def test_it_is_started_again_until_it_ends_well(tmp_path: Path) -> None:
    told: list[str] = []
    count = tmp_path / "count"
    body = f"echo x >> {count}; test $(wc -l < {count}) -ge 3 || kill -9 $$"
    supervisor = Supervisor(script(body), told.append, row=Row(wait_s_first=SOON_S))
    with trio.fail_after(WAIT_S):
        assert await supervisor.run() == 0
    assert len(count.read_text().splitlines()) == 3
    assert len(told) == 2
    assert all("SIGKILL" in line and "it starts again in" in line for line in told)


async def until_there(path: Path) -> None:
    with trio.fail_after(WAIT_S):
        while not path.exists():
            await trio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_reaches_the_daemon_and_starts_nothing_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    got, ready = tmp_path / "got", tmp_path / "ready"
    body = (
        f"trap 'echo {number} > {got}; exit 7' TERM INT; touch {ready}; "
        "while true; do sleep 0.02; done"
    )
    told: list[str] = []
    supervisor = Supervisor(script(body), told.append, row=Row(wait_s_first=SOON_S))
    codes = []

    async def run() -> None:
        codes.append(await supervisor.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await until_there(ready)
        os.kill(os.getpid(), number)
    assert got.exists()
    assert codes == [7]
    assert len(told) == 1


async def test_a_hangup_reaches_a_daemon_that_is_being_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs before we know that it does, and may have read its settings."""
    got, ready = tmp_path / "got", tmp_path / "ready"
    body = f"trap 'touch {got}; exit 0' HUP; touch {ready}; while true; do sleep 0.02; done"
    supervisor = Supervisor(script(body), list[str]().append)
    start = trio.lowlevel.open_process

    async def start_late(*given: Any, **options: Any) -> trio.Process:
        daemon = await start(*given, **options)
        await until_there(ready)
        os.kill(os.getpid(), signal.SIGHUP)
        await trio.testing.wait_all_tasks_blocked()
        return daemon

    monkeypatch.setattr(trio.lowlevel, "open_process", start_late)
    with trio.fail_after(WAIT_S):
        assert await supervisor.run() == 0
    assert got.exists()


async def test_a_hangup_reaches_the_daemon_and_stops_nothing(tmp_path: Path) -> None:
    got, ready = tmp_path / "got", tmp_path / "ready"
    traps = f"trap 'touch {got}' HUP; trap 'exit 0' TERM"
    body = f"{traps}; touch {ready}; while true; do sleep 0.02; done"
    told: list[str] = []
    supervisor = Supervisor(script(body), told.append)
    codes = []

    async def run() -> None:
        codes.append(await supervisor.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await until_there(ready)
        os.kill(os.getpid(), signal.SIGHUP)
        await until_there(got)
        assert not codes
        os.kill(os.getpid(), signal.SIGTERM)
    assert (codes, told) == ([0], [])


async def test_a_hangup_ends_a_wait_at_once(tmp_path: Path) -> None:
    done = tmp_path / "done"

    def tell(_line: str) -> None:
        done.touch()  # what the settings lacked
        os.kill(os.getpid(), signal.SIGHUP)

    supervisor = Supervisor(script(f"test -e {done}"), tell, row=Row(wait_s_first=1000.0))
    with trio.fail_after(WAIT_S):
        assert await supervisor.run() == 0


async def test_a_daemon_that_a_hangup_had_started_gets_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the settings as it starts, and a hangup so early would end it."""
    done, starts, start = tmp_path / "done", list[Any](), trio.lowlevel.open_process

    async def counted(*given: Any, **options: Any) -> trio.Process:
        starts.append(given)
        return await start(*given, **options)

    def tell(_line: str) -> None:
        done.touch()
        os.kill(os.getpid(), signal.SIGHUP)

    monkeypatch.setattr(trio.lowlevel, "open_process", counted)
    body = f"test -e {done} || exit 1; sleep 0.2"
    supervisor = Supervisor(script(body), tell, row=Row(wait_s_first=1000.0))
    with trio.fail_after(WAIT_S):
        assert await supervisor.run() == 0
    assert len(starts) == 2


async def test_a_daemon_that_is_told_to_stop_as_it_starts_is_not_told_to_read_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got, ready = tmp_path / "got", tmp_path / "ready"
    traps = f"trap 'touch {got}' HUP; trap 'stop=1' TERM"
    body = f'{traps}; touch {ready}; while test -z "$stop"; do sleep 0.02; done; sleep 0.1; exit 0'
    supervisor = Supervisor(script(body), list[str]().append)
    start = trio.lowlevel.open_process

    async def start_late(*given: Any, **options: Any) -> trio.Process:
        daemon = await start(*given, **options)
        await until_there(ready)
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()
        return daemon

    monkeypatch.setattr(trio.lowlevel, "open_process", start_late)
    with trio.fail_after(WAIT_S):
        assert await supervisor.run() == 0
    assert not got.exists()


async def test_a_host_that_lets_no_process_begin_is_asked_again(tmp_path: Path) -> None:
    program, told = tmp_path / "program", []

    def tell(line: str) -> None:
        told.append(line)
        program.symlink_to("/bin/true")

    supervisor = Supervisor([str(program)], tell, row=Row(wait_s_first=SOON_S))
    with trio.fail_after(WAIT_S):
        assert await supervisor.run() == 0
    assert ["cannot be started (No such file or directory)" in line for line in told] == [True]


async def test_a_daemon_that_finds_its_directory_gone_is_started_when_it_is_back(
    tmp_path: Path,
) -> None:
    mount = tmp_path / "mount"
    supervisor = Supervisor(
        script(f"test -e {mount} || exit 2"),
        lambda _line: mount.touch(),
        row=Row(wait_s_first=SOON_S),
        is_there=mount.exists,
    )
    with trio.fail_after(WAIT_S):
        assert await supervisor.run() == 0


async def test_a_stop_is_heard_while_it_waits(tmp_path: Path) -> None:
    told: list[str] = []
    supervisor = Supervisor(script("exit 3"), told.append, row=Row(wait_s_first=1000.0))
    codes = []

    async def run() -> None:
        codes.append(await supervisor.run())

    with trio.fail_after(WAIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            while not told:
                await trio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
    assert codes == [0]
    assert "exit code 3" in told[0]
    assert told[1] == "told to stop: it is not started again"


HANGS = """
import os, signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.path.exists(sys.argv[1]):
    sys.exit(0)
open(sys.argv[1], "w").close()
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
    out.sendto(sys.argv[2].encode(), os.environ["NOTIFY_SOCKET"])
signal.pause()
"""


async def test_a_daemon_that_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    told: list[str] = []
    supervisor = Supervisor(
        [sys.executable, "-c", HANGS, str(tmp_path / "was"), "READY=1"],
        told.append,
        row=Row(wait_s_first=SOON_S),
        silence_s=0.1,
    )
    with trio.fail_after(WAIT_S):
        assert await supervisor.run() == 0
    assert "gave no sign of life" in told[0]
    assert "SIGKILL" in told[1]


async def test_a_daemon_that_hangs_is_no_hindrance_to_a_stop(tmp_path: Path) -> None:
    told: list[str] = []
    supervisor = Supervisor(
        [sys.executable, "-c", HANGS, str(tmp_path / "was"), "STATUS=it has just begun"],
        told.append,
        silence_s=0.1,
    )
    codes = []

    async def run() -> None:
        codes.append(await supervisor.run())

    with trio.fail_after(WAIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await until_there(tmp_path / "was")
            os.kill(os.getpid(), signal.SIGTERM)
    assert codes == [1]
    assert "as it was to stop" in told[-1]


KILLED = """
import os, signal, sys, trio
from daa_node.cli.supervise import Supervisor
ready, ended = sys.argv[1:]
body = f"touch {ready}; cat; touch {ended}"
async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Supervisor(["/bin/sh", "-c", body]).run)
        while not os.path.exists(ready):
            await trio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
trio.run(main)
"""


async def test_the_daemon_ends_when_who_watches_over_it_is_killed(tmp_path: Path) -> None:
    ready, ended = tmp_path / "ready", tmp_path / "ended"
    words = [sys.executable, "-c", KILLED, str(ready), str(ended)]
    place = {**os.environ, "TMPDIR": str(tmp_path)}  # of what it leaves
    done = await trio.run_process(words, check=False, env=place)
    assert done.returncode == -signal.SIGKILL
    await until_there(ended)


def test_a_directory_in_use_or_without_a_node_is_told_at_once(
    command: Command, tmp_path: Path
) -> None:
    root = made_node(tmp_path / "n")
    with DataDirectory(root).locked():
        done = command("run", "--supervise", "--dir", root)
    assert (done.code, "a daemon is already running in" in done.err) == (1, True)
    done = command("run", "--supervise", "--dir", tmp_path / "none")
    assert (done.code, "daa-node init" in done.err) == (2, True)
    assert "supervising" not in done.err


def test_the_directory_of_the_node_is_what_has_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made_node(tmp_path / "n")

    def run(supervised: Callable[[], Coroutine[None, None, int]]) -> int:
        supervisor = supervised.__self__  # type: ignore[attr-defined]
        assert supervisor._is_there()
        root.rename(tmp_path / "away")
        assert not supervisor._is_there()
        return 0

    monkeypatch.setattr(trio, "run", run)
    supervise(root, None, (), with_parent=False)
    assert not root.exists()


async def test_settings_that_are_wrong_end_it_with_their_code() -> None:
    told: list[str] = []
    assert await Supervisor(script("exit 2"), told.append).run() == 2
    assert "a start does not mend what the message names" in told[0]
