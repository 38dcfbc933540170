"""The operator's door: real sockets, wrong requests, stalled and too many clients."""

import json
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from daa_node.adapters.control_socket import (
    CLIENTS_MAX,
    REQUEST_BYTES_MAX,
    ControlSocket,
    ask,
    follow,
)
from daa_node.errors import UserError
from daa_node.observability.events import DECISION, EventLog


async def status(_request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"schema_version": 1, "phase": "train"}


async def broken(_request: Mapping[str, Any]) -> Mapping[str, Any]:
    raise KeyError("no such round")


@asynccontextmanager
async def serving(path: Path, events: EventLog | None = None) -> AsyncIterator[ControlSocket]:
    control = ControlSocket(path, events or EventLog(lambda: 0))
    control.set_handlers({"status": status, "broken": broken})
    async with trio.open_nursery() as nursery:
        await nursery.start(control.run)
        yield control
        nursery.cancel_scope.cancel()


async def in_thread(path: Path, command: str) -> dict[str, Any]:
    return await trio.to_thread.run_sync(ask, path, command)


def raw(path: Path, payload: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
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
        with pytest.raises(UserError, match="unknown command 'dance'; known: broken, logs, status"):
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


async def test_one_client_too_many_is_told_so_and_silent_ones_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path):
        silent = [await trio.open_unix_socket(path) for _ in range(CLIENTS_MAX)]
        await trio.testing.wait_all_tasks_blocked()
        answer = await trio.to_thread.run_sync(raw, path, b'{"command": "status"}\n')
        assert "clients are connected already" in json.loads(answer)["error"]
        for stream in silent:
            await stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert (await in_thread(path, "status"))["phase"] == "train"


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
