"""A daemon that says nothing any more is known for one that hangs, and no other is."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import trio
import trio.testing

from daa_node.adapters.service_manager import ServiceManager
from daa_node.adapters.signs_of_life import SignsOfLife, listening, unwatched

SILENCE_S = 120.0


@contextmanager
def daemon(signs: SignsOfLife) -> Iterator[Callable[[str], None]]:
    """Says what a test tells it to."""
    address = signs.environment({})["NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:

        def say(message: str) -> None:
            out.sendto(message.encode(), address)

        yield say


@pytest.mark.parametrize(
    ("said", "is_to_stop", "is_silent"),
    [
        ("READY=1", False, True),
        ("STATUS=round 1\nREADY=1", False, True),
        ("WATCHDOG=1", False, False),  # it is not ready, and has its time
        ("WATCHDOG=1", True, True),
    ],
)
async def test_who_is_ready_or_to_stop_is_silent_after_its_time(
    said: str, is_to_stop: bool, is_silent: bool
) -> None:
    async with listening(0.001) as signs:
        with daemon(signs) as say:
            say(said)
            with trio.move_on_after(30 if is_silent else 0.1) as waiting:
                await signs.until_silent(lambda: is_to_stop)
    assert waiting.cancelled_caught != is_silent


async def test_each_word_gives_it_its_time_anew(mock_clock: trio.testing.MockClock) -> None:
    ended = trio.Event()

    async def listen(signs: SignsOfLife) -> None:
        await signs.until_silent(lambda: False)
        ended.set()

    async with listening(SILENCE_S) as signs, trio.open_nursery() as nursery:
        nursery.start_soon(listen, signs)
        with daemon(signs) as say:
            for message in ("READY=1", "WATCHDOG=1", "STOPPING=1"):
                say(message)
                await trio.testing.wait_all_tasks_blocked(0.05)
                mock_clock.jump(SILENCE_S - 1)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert not ended.is_set()
            mock_clock.jump(2)
            await ended.wait()


async def test_a_daemon_takes_what_it_is_given_for_its_manager() -> None:
    ours = {"NOTIFY_SOCKET": "/of/systemd", "WATCHDOG_PID": "1", "WATCHDOG_USEC": "5", "A": "b"}
    assert unwatched(ours) == {"A": "b"}
    async with listening(SILENCE_S) as signs:
        manager = ServiceManager(signs.environment(ours), pid=17)
        assert manager.watchdog_s == SILENCE_S
