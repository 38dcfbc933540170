"""What systemd would hear: a real datagram socket stands in for it."""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from daa_node.adapters.service_manager import ServiceManager
from daa_node.observability import events
from daa_node.observability.events import EventLog

PID = 4321
HEARD_S_MAX = 60.0  # a machine that does much else


@pytest.fixture(params=["a file", "an abstract name"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """(what NOTIFY_SOCKET says, the manager's end)."""
    name = str(tmp_path / "notify") if request.param == "a file" else f"@daa-test-{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(name.replace("@", "\0", 1))
        ear.setblocking(False)
        yield name, ear


async def next_of(ear: socket.socket) -> str:
    with trio.fail_after(HEARD_S_MAX):
        await trio.lowlevel.wait_readable(ear)
    return ear.recv(4096).decode()


@asynccontextmanager
async def told_by(environment: dict[str, str]) -> AsyncIterator[EventLog]:
    """A log of which the manager that `environment` names is told."""
    log = EventLog(lambda: 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(ServiceManager(environment, PID).run, log)
        yield log
        nursery.cancel_scope.cancel()


async def test_a_node_is_ready_when_its_loop_has_decided_and_stops_once(
    manager: tuple[str, socket.socket],
) -> None:
    name, ear = manager
    async with told_by({"NOTIFY_SOCKET": name}) as log:
        log.emit(events.NODE_STARTED)  # its doors are open, its state may be long in coming
        log.emit(events.QUORUM_WAIT, reachable=2, total=4, quorum=3, waiting=True)
        assert await next_of(ear) == "STATUS=2 of 4 reachable, quorum 3, waiting"
        log.emit(events.DECISION, decision="train", reason="a quorum is there")
        log.emit(events.DECISION, decision="train", reason="again")
        assert await next_of(ear) == "READY=1"
        log.emit(events.ROUND_FINALIZED, round=7)
        assert await next_of(ear) == "STATUS=round 7 is certified"
        log.emit(events.DECISION, decision="drain", reason="asked to stop")
        assert await next_of(ear) == "STOPPING=1"
    with pytest.raises(BlockingIOError):
        ear.recv(4096)  # it was said already


async def test_who_is_ended_at_once_says_that_it_stops(manager: tuple[str, socket.socket]) -> None:
    name, ear = manager
    async with told_by({"NOTIFY_SOCKET": name}):
        pass
    assert await next_of(ear) == "STOPPING=1"


async def test_the_watchdog_is_fed_again_and_again(manager: tuple[str, socket.socket]) -> None:
    name, ear = manager
    wanted = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": str(PID)}
    async with told_by(wanted):
        for _ in range(3):
            assert await next_of(ear) == "WATCHDOG=1"


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": str(PID + 1)},
        {"WATCHDOG_USEC": "soon", "WATCHDOG_PID": str(PID)},
        {"WATCHDOG_USEC": "0"},
    ],
)
def test_no_watchdog_is_fed_that_did_not_ask_this_process(wanted: dict[str, str]) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "/run/notify", **wanted}, PID).watchdog_s == 0


def test_a_worker_does_not_inherit_the_way_to_the_manager() -> None:
    environment = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/"}
    ServiceManager(environment, PID)
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize("name", ["", "relative", "/gone/notify", "@daa-test-nobody-listens"])
async def test_a_manager_that_is_not_there_costs_nothing(name: str) -> None:
    async with told_by({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "100000"}) as log:
        log.emit(events.DECISION, decision="train", reason="")
        for _ in range(5):
            await trio.lowlevel.checkpoint()
