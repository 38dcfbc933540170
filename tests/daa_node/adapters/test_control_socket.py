"""The operator's door: real sockets, wrong requests, stalled and too many clients."""

import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from daa_node.adapters import control_socket
from daa_node.adapters.control_socket import (
    CLIENTS_MAX,
    REQUEST_BYTES_MAX,
    ControlSocket,
    ask,
    follow,
)
from daa_node.cli.data_directory import DataDirectory
from daa_node.errors import UserError
from daa_node.observability.events import DECISION, EventLog


async def status(_request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"schema_version": 1, "phase": "train"}


async def history(_request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"rounds": "x" * 4_000_000}  # more than a socket's buffers take


async def broken(_request: Mapping[str, Any]) -> Mapping[str, Any]:
    raise KeyError("no such round")


@asynccontextmanager
async def serving(path: Path, events: EventLog | None = None) -> AsyncIterator[ControlSocket]:
    control = ControlSocket(path, events or EventLog(lambda: 0))
    control.set_handlers({"status": status, "broken": broken, "history": history})
    async with trio.open_nursery() as nursery:
        await nursery.start(control.run)
        yield control
        nursery.cancel_scope.cancel()


async def in_thread(path: Path, command: str) -> dict[str, Any]:
    return await trio.to_thread.run_sync(ask, path, command)


def raw(path: Path, payload: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(path))
        try:
            connection.sendall(payload)
            connection.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            pass  # refused before it was all read
        try:
            return connection.recv(1 << 16)
        except ConnectionResetError:
            return b""


async def test_a_command_is_answered_and_only_the_owner_may_ask(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with serving(path):
        assert await in_thread(path, "status") == {"schema_version": 1, "phase": "train"}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_an_unknown_command_lists_the_known_ones(tmp_path: Path) -> None:
    async with serving(tmp_path / "s"):
        with pytest.raises(
            UserError, match="unknown command 'dance'; known: broken, history, logs, status"
        ):
            await in_thread(tmp_path / "s", "dance")


async def test_a_failing_handler_costs_its_request_only(tmp_path: Path) -> None:
    events = EventLog(lambda: 0)
    async with serving(tmp_path / "s", events):
        with pytest.raises(UserError, match="broken failed inside the daemon"):
            await in_thread(tmp_path / "s", "broken")
        assert (await in_thread(tmp_path / "s", "status"))["phase"] == "train"
    assert [event["name"] for event in events.tail()] == ["command_failed"]


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff\xfe\n",
        b"[1, 2]\n",
        b"[" * 50_000 + b"\n",
        b'{"command": "status"',
        b"x" * (REQUEST_BYTES_MAX + 5000),
        b"\n",
    ],
)
async def test_a_malformed_request_is_refused_and_the_next_is_served(
    tmp_path: Path, payload: bytes
) -> None:
    async with serving(tmp_path / "s"):
        answer = await trio.to_thread.run_sync(raw, tmp_path / "s", payload)
        assert not answer or json.loads(answer)["ok"] is False
        assert (await in_thread(tmp_path / "s", "status"))["phase"] == "train"


async def stuck_in_the_middle_of_a_request(path: Path) -> trio.SocketStream:
    stream = await trio.open_unix_socket(path)
    await stream.send_all(b'{"command": "sta')
    return stream


async def stuck_with_an_answer_that_it_does_not_take(path: Path) -> trio.SocketStream:
    stream = await trio.open_unix_socket(path)
    await stream.send_all(b'{"command": "history"}\n')
    return stream


async def following_a_silent_log(path: Path) -> trio.SocketStream:
    stream = await trio.open_unix_socket(path)
    await stream.send_all(b'{"command": "logs", "count": 0, "follow": true}\n')
    return stream


@pytest.mark.parametrize(
    "stuck",
    [
        stuck_in_the_middle_of_a_request,
        stuck_with_an_answer_that_it_does_not_take,
        following_a_silent_log,
    ],
)
async def test_the_operator_gets_in_however_many_clients_are_stuck(
    tmp_path: Path, stuck: Callable[[Path], Awaitable[trio.SocketStream]]
) -> None:
    path = tmp_path / "s"
    async with serving(path):
        held = [await stuck(path) for _ in range(3 * CLIENTS_MAX)]
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            assert (await in_thread(path, "status"))["phase"] == "train"
        for stream in held:
            await stream.aclose()


async def test_whoever_gives_way_is_told_and_a_follower_goes_last(tmp_path: Path) -> None:
    path, events = tmp_path / "s", EventLog(lambda: 0)
    async with serving(path, events):
        follower = await following_a_silent_log(path)
        halves = [await stuck_in_the_middle_of_a_request(path) for _ in range(CLIENTS_MAX)]
        await trio.testing.wait_all_tasks_blocked()
        first = json.loads(await halves[0].receive_some())
        assert "gave way" in first["error"]
        events.emit(DECISION, index=1)
        assert json.loads(await follower.receive_some())["index"] == 1
        for stream in (follower, *halves):
            await stream.aclose()


async def test_what_the_daemon_itself_is_at_work_on_gives_way_to_nobody(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path) as control:
        begun, done = 0, trio.Event()

        async def slow(_request: Mapping[str, Any]) -> Mapping[str, Any]:
            nonlocal begun
            begun += 1
            await done.wait()
            return {"phase": "slow"}

        control.set_handlers({"status": status, "slow": slow})
        answers: list[str] = []

        async def ask_slowly() -> None:
            answers.append((await in_thread(path, "slow"))["phase"])

        async with trio.open_nursery() as nursery:
            for _ in range(CLIENTS_MAX):
                nursery.start_soon(ask_slowly)
            while begun < CLIENTS_MAX:
                await trio.sleep(0.01)
            answer = await trio.to_thread.run_sync(raw, path, b'{"command": "status"}\n')
            assert "clients are being answered already" in json.loads(answer)["error"]
            done.set()
        assert answers == ["slow"] * CLIENTS_MAX


async def test_logs_show_the_tail_and_follow_what_comes(tmp_path: Path) -> None:
    path, events = tmp_path / "s", EventLog(lambda: 0)
    for index in range(5):
        events.emit(DECISION, index=index)
    async with serving(path, events):
        told = await trio.to_thread.run_sync(lambda: list(follow(path, 2, keep_on=False)))
        assert [event["index"] for event in told] == [3, 4]
        stream = await trio.open_unix_socket(path)
        await stream.send_all(b'{"command": "logs", "count": 1, "follow": true}\n')
        assert json.loads(await stream.receive_some())["index"] == 4
        events.emit(DECISION, index="new")
        assert json.loads(await stream.receive_some())["index"] == "new"
        await stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        events.emit(DECISION, index="after")  # nobody listens any more
        assert (await in_thread(path, "status"))["phase"] == "train"


async def test_a_directory_too_deep_for_a_socket_name_works_all_the_same(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with serving(deep / "control.sock"):
        assert (await in_thread(deep / "control.sock", "status"))["phase"] == "train"


async def test_the_socket_of_a_killed_daemon_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(UserError, match="no daemon is running in") as caught:
        ask(path, "status")
    assert caught.value.exit_code == 1
    async with serving(path):
        assert (await in_thread(path, "status"))["phase"] == "train"


def test_without_a_daemon_the_message_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"start one: daa-node run --dir {tmp_path}"):
        ask(tmp_path / "control.sock", "status")


def test_a_daemon_that_starts_is_not_told_to_be_started(tmp_path: Path) -> None:
    with DataDirectory(tmp_path).locked(), pytest.raises(UserError) as caught:
        ask(tmp_path / "control.sock", "status")
    assert f"(pid {os.getpid()}) answers nobody yet" in str(caught.value)
    assert caught.value.exit_code == 1
    with pytest.raises(UserError, match="no daemon is running in"):
        ask(tmp_path / "control.sock", "status")


def test_what_is_said_to_start_a_daemon_can_be_pasted(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="start one: daa-node run --dir '.*/a b'"):
        ask(tmp_path / "a b" / "control.sock", "status")


def test_a_daemon_that_takes_nobody_in_is_told_to_hang(tmp_path: Path) -> None:
    """Whoever looks after it each half minute fills the queue of one that hangs."""
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "control.sock"))
        hanging.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(tmp_path / "control.sock"))
            with pytest.raises(UserError, match="stopped or hangs") as refused:
                control_socket.ask(tmp_path / "control.sock", "status")
    assert refused.value.exit_code == 1


def test_a_daemon_that_dies_between_two_words_has_hung_up(tmp_path: Path) -> None:
    """Whoever asks it just then, as a demo does twice a second, hears so and goes on."""
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(path))
        daemon.listen()

        def say_too_late() -> None:
            with control_socket._connected(path, 5.0) as connection:
                daemon.accept()[0].close()
                connection.sendall(b"status")

        with pytest.raises(UserError, match="hung up"):
            say_too_late()
