"""What becomes of orders when a worker is lost, late or cancelled; the test plays the workers."""

import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from daa_node.adapters.worker_supervisor import RESTART_PAUSE_S_MIN, WorkerSupervisor
from daa_node.errors import TrainerFailed
from daa_node.training.config import InnerConfig, TrainerConfig, TrainingJob
from daa_node.training.data_config import DataConfig
from daa_node.training.messages import Message, Unpacker, pack
from daa_node.training.model_config import ModelConfig

ORDER_TIMEOUT_S = 10.0
JOB = TrainingJob(
    model=ModelConfig(kind="mlp", depth=1, width=16),
    data=DataConfig(kind="digits"),
    inner=InnerConfig(lr=0.01, warmup_steps=0, batch_size=16),
    seed=5,
)
CONFIG = TrainerConfig(device="cpu", niceness=0, heartbeat_timeout_s=1e6)


class Process:
    """One that does nothing of itself; the test speaks for it over `stream`."""

    def __init__(self, theirs: socket.socket) -> None:
        theirs.setblocking(False)
        self.stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        self.began_s = trio.current_time()
        self.killed = False
        self.ends_by_itself = True
        self._unpacker = Unpacker()
        self._heard: list[Message] = []

    @property
    def pid(self) -> int:
        return os.getpid()

    def kill(self) -> None:
        self.killed = True

    def wait(self, timeout: float | None = None) -> int:
        if self.killed:
            return -9
        if not self.ends_by_itself:
            assert timeout is not None, "waits for ever"
            raise subprocess.TimeoutExpired("worker", timeout)
        return 0

    async def hear(self) -> Message:
        while not self._heard:
            self._heard += self._unpacker.feed(bytes(await self.stream.receive_some(65_536)))
        return self._heard.pop(0)

    async def say(self, message: Message) -> None:
        await self.stream.send_all(pack(message))


class Workers:
    """A supervisor and the workers that it has started."""

    def __init__(self, directory: Path, job: TrainingJob = JOB) -> None:
        self.started: list[Process] = []
        config = CONFIG.model_copy(update={"order_timeout_s": ORDER_TIMEOUT_S})
        self.supervisor = WorkerSupervisor(job, config, directory, None, self._spawn)

    def _spawn(self, _threads: int, _log_path: Path) -> tuple[Process, socket.socket]:
        ours, theirs = socket.socketpair()
        self.started.append(Process(theirs))
        return self.started[-1], ours

    async def ready(self, number: int) -> Process:
        """That worker, once it is ready for orders."""
        with trio.fail_after(100):
            while len(self.started) <= number:
                await trio.sleep(0.05)
            process = self.started[number]
            assert "start" in await process.hear()
            await process.say({"ready": {"pid": 1, "device": "cpu", "inner_state": "fresh"}})
            while await self.supervisor.ready() is None or self.supervisor.pid is None:
                await trio.sleep(0.05)
        return process


@asynccontextmanager
async def workers(directory: Path) -> AsyncIterator[tuple[Workers, trio.Nursery]]:
    made = Workers(directory)
    with trio.fail_after(3 * ORDER_TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.supervisor.run)
            yield made, nursery
            nursery.cancel_scope.cancel()


@pytest.fixture
def clock(mock_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    mock_clock.autojump_threshold = 0.05  # real sockets take a moment
    return mock_clock


async def fails(made: Workers, verb: str, told: list[str]) -> None:
    with pytest.raises(TrainerFailed) as failed:
        await made.supervisor.order(verb, {})
    told.append(str(failed.value))


async def carries_out(made: Workers, verb: str, done: list[Message]) -> None:
    done.append(await made.supervisor.order(verb, {}))


async def test_an_order_fails_with_its_worker_and_the_next_one_finds_the_next_worker(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    told: list[str] = []
    done: list[Message] = []
    async with workers(tmp_path) as (made, nursery):
        first = await made.ready(0)
        nursery.start_soon(fails, made, "evaluate", told)
        assert (await first.hear())["verb"] == "evaluate"
        hung_up_s = trio.current_time()
        await first.stream.aclose()
        while not told:
            await trio.sleep(0.05)
        assert trio.current_time() - hung_up_s < ORDER_TIMEOUT_S / 2
        assert told == ["evaluate: the worker ended: exit code 0"]
        nursery.start_soon(carries_out, made, "evaluate", done)
        second = await made.ready(1)
        order = (await second.hear())["order"]
        await second.say({"done": order})
        while not done:
            await trio.sleep(0.05)
        await second.stream.aclose()  # idle: whoever comes now waits for the third
        await trio.sleep(RESTART_PAUSE_S_MIN / 2)
        assert made.supervisor.pid is None


async def test_no_order_goes_to_a_worker_that_was_given_up_and_still_lives(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    told: list[str] = []
    done: list[Message] = []
    async with workers(tmp_path) as (made, nursery):
        first = await made.ready(0)
        await fails(made, "evaluate", told)
        assert told == [f"evaluate took more than {ORDER_TIMEOUT_S:g} s"]
        assert first.killed
        nursery.start_soon(carries_out, made, "evaluate", done)
        await trio.sleep(1.0)
        await first.stream.aclose()  # it dies at last
        second = await made.ready(1)
        await second.say({"done": (await second.hear())["order"]})
        while not done:
            await trio.sleep(0.05)


async def test_a_worker_hears_that_nobody_waits_for_an_order_any_more(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with workers(tmp_path) as (made, _nursery):
        process = await made.ready(0)
        with trio.move_on_after(1.0):
            await made.supervisor.order("evaluate", {})
        order = (await process.hear())["order"]
        assert await process.hear() == {"cancel": order}


async def test_orders_are_given_one_after_the_other(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    done: list[Message] = []
    async with workers(tmp_path) as (made, nursery):
        process = await made.ready(0)
        for verb in ("one", "two"):
            nursery.start_soon(carries_out, made, verb, done)
        first = await process.hear()
        with trio.move_on_after(5.0) as patience:
            await process.hear()
        assert patience.cancelled_caught
        await process.say({"done": first["order"]})
        second = await process.hear()
        assert {first["verb"], second["verb"]} == {"one", "two"}
        await process.say({"done": second["order"]})
        while len(done) < 2:
            await trio.sleep(0.05)


async def test_the_pause_is_short_after_a_worker_that_has_served(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    done: list[Message] = []
    async with workers(tmp_path) as (made, nursery):
        for number in range(6):
            process = await made.ready(number)
            nursery.start_soon(carries_out, made, "evaluate", done)
            await process.say({"done": (await process.hear())["order"]})
            while len(done) <= number:
                await trio.sleep(0.05)
            await process.stream.aclose()
        await made.ready(6)
        assert made.started[6].began_s - made.started[0].began_s < 6 * (RESTART_PAUSE_S_MIN + 1.0)


async def test_a_worker_that_does_not_end_when_it_is_hung_up_on_is_killed(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with workers(tmp_path) as (made, _nursery):
        process = await made.ready(0)
        process.ends_by_itself = False
    assert process.killed


async def test_an_order_on_a_large_model_may_take_longer(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    made = Workers(tmp_path, JOB.model_copy(update={"model": ModelConfig(width=512, depth=8)}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.supervisor.run)
        told: list[str] = []
        await made.ready(0)
        await fails(made, "evaluate", told)
        assert told == [f"evaluate took more than {ORDER_TIMEOUT_S + 20:g} s"]  # 25 million
        nursery.cancel_scope.cancel()
