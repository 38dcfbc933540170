"""What a gateway computes itself: in which order, and how much of it may wait for whom."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
import trio
import trio.testing

from daa_dag.ids import NodeId
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.gateway.looks import BURST_S, BYTES_MAX, Looks
from daa_node.gateway.piece import Piece
from daa_node.gateway.task_desk import Seat, Task, TaskDesk
from daa_node.gateway.task_giver import LOOKS_MAX, TaskGiver
from daa_node.wire.volunteer_messages import TaskKind, Verdict
from tests.daa_node.gateway.test_task_desk import desk_with

Value = TypeVar("Value")
COMPUTING_S = 3.0


class Slow:
    """Threads in which everything takes its time."""

    async def run(self, work: Callable[[], Value]) -> Value:
        await trio.sleep(COMPUTING_S)
        return work()


def task(number: int, *addresses: str, kind: TaskKind = TaskKind.CHUNKS) -> Task:
    """One about which there was a verdict from each of these."""
    made = Task(bytes([number]) * 16, Piece(kind, {}, [], []), b"", 0.0, None)
    for address in addresses:
        name = NodeId(address.encode())
        made.verdicts[name] = (Seat(name, name, b"key", address), (1,))
    return made


@asynccontextmanager
async def running(looks: Looks) -> AsyncIterator[list[Task]]:
    """Tasks as they are told."""
    told: list[Task] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looks.run, Slow(), lambda task, truth: told.append(task))
        yield told
        nursery.cancel_scope.cancel()


async def test_what_differs_comes_before_what_is_agreed_about(
    autojump_clock: trio.testing.MockClock,
) -> None:
    looks = Looks(4, 1.0)
    agreed = [task(number, f"{number}") for number in range(3)]
    disputed = task(9, "other")
    assert [looks.add(each, is_disputed=False) for each in agreed] == [True, True, False]
    assert looks.add(disputed, is_disputed=True)
    async with running(looks) as told:
        await trio.sleep(4 * COMPUTING_S)
        assert told == [disputed, *agreed[:2]]
        assert looks.add(agreed[2], is_disputed=False)
        await trio.sleep(2 * COMPUTING_S)
        assert told[-1] is agreed[2]
        assert looks.computed == len(told) == 4


def test_no_address_takes_more_than_half_of_the_room_for_what_differs() -> None:
    looks = Looks(8, 1.0)
    taken = [looks.add(task(number, "liar", f"{number}"), True) for number in range(8)]
    assert taken == [True] * 4 + [False] * 4
    assert [looks.add(task(number, f"{number}"), True) for number in range(10, 15)] == (
        [True] * 4 + [False]
    )


def test_an_address_that_agrees_with_itself_may_differ_as_well() -> None:
    looks = Looks(8, 1.0)
    assert all(looks.add(task(number, "home"), False) for number in range(4))
    assert not looks.add(task(4, "home"), False)
    assert all(looks.add(task(number, "home"), True) for number in range(5, 9))


def test_large_tasks_take_more_room() -> None:
    looks, large = Looks(32, 1.0), [bytes(BYTES_MAX // 4)]
    taken = []
    for number in range(6):
        one = task(number, f"{number}")
        one.piece = Piece(TaskKind.SEGMENT, {}, [], large)
        taken.append(looks.add(one, True))
    assert taken == [True] * 4 + [False] * 2


async def test_computing_takes_no_more_than_its_share(
    autojump_clock: trio.testing.MockClock,
) -> None:
    looks = Looks(1000, 0.1)
    for number in range(200):
        assert looks.add(task(number, f"{number}"), True)
    async with running(looks) as told:
        await trio.sleep(600.0)
        assert len(told) * COMPUTING_S == pytest.approx(60 + BURST_S, abs=2 * COMPUTING_S)


def test_what_waits_for_us_takes_no_room_of_open_tasks() -> None:
    desk, three, waiting = desk_with("a", "b", "c")
    assert desk._open_bytes == len(waiting.frame) > 0
    for seat, bits in zip(three, ((1, 1, 0, 1), (1, 0, 0, 1), (1, 1, 0, 1)), strict=True):
        assert desk.kind_of(seat, waiting.id) is TaskKind.CHUNKS
        list(desk.take(seat, Verdict(waiting.id, bits, 5, b"")))
    assert desk._open_bytes == len(waiting.frame) == 0
    list(desk.looked(waiting, (1, 1, 0, 1)))
    assert desk._open_bytes == 0


def test_dear_tasks_that_wait_keep_no_cheap_one_from_being_looked_at() -> None:
    giver = TaskGiver(TaskDesk(b"seed"), (), Slow(), SystemEntropy(), lambda seat, frame: None)
    dear = [task(n, f"{n}", kind=TaskKind.SEGMENT) for n in range(LOOKS_MAX + 1)]
    assert [giver.look(each, True) for each in dear] == [True] * LOOKS_MAX + [False]
    assert giver.look(task(99, "x"), True)
