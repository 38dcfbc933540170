"""The operator's door to a running daemon: JSON lines over a Unix socket that only its owner opens.

A connection carries one request, `{"command": ..., <arguments>}`, and its answer: one line
`{"ok": true, ...}` or `{"ok": false, "error": ...}`; `logs` answers with many lines. Requests,
clients and waiting are bounded. An HTTP API can serve the same handlers.

When all places are taken, a newcomer takes that of a client that is itself waited for: of the one
that has not finished its request for longest, else of one that does not take its answer, else of
the oldest follower of the log. Scripts that are stuck never keep their owner out.
"""

import json
import os
import shlex
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import Any

import trio

from daa_node.adapters import daemon_lock
from daa_node.adapters.descriptors import Shortage
from daa_node.errors import NodeError, UserError
from daa_node.observability.events import COMMAND_FAILED, EventLog, as_line

Handler = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]

REQUEST_BYTES_MAX = 64 * 1024
ANSWER_BYTES_MAX = 16 * 1024 * 1024  # the rounds of a long job
CLIENTS_MAX = 8  # a dashboard, a follower of the log, and a person, each twice
BACKLOG = 128  # beyond it a connect fails at once, without waiting for a busy daemon
REQUEST_TIMEOUT_S = 10.0  # to read the request, and again for a stalled reader of the answer
ANSWER_TIMEOUT_S = 60.0  # the client's patience
# sun_path of POSIX systems holds 104 (macOS) to 108 bytes with the final zero.
SOCKET_PATH_BYTES_MAX = 103


class _Waits(IntEnum):
    """What the serving of a client waits for; the first of these gives way first."""

    FOR_REQUEST = 0
    FOR_READER = 1  # the answer is there, and the client does not take it
    FOR_NEWS = 2  # a follower of the log
    FOR_US = 3  # the daemon is at work on the answer: never gives way


class _Client:
    """One connection; they are kept in the order in which they came."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.waits = _Waits.FOR_REQUEST
        self.scope = trio.CancelScope()
        self.gone = trio.Event()

    def tell(self, line: str) -> None:
        """At once or not at all: it may not read, and is about to be left."""
        with suppress(OSError):
            os.write(self.stream.socket.fileno(), line.encode() + b"\n")


class ControlSocket:
    """Serves handlers at `path`. The caller holds the directory's lock: the path is ours alone."""

    def __init__(self, path: Path, events: EventLog, shortage: Shortage | None = None) -> None:
        self._path = path
        self._shortage = shortage or Shortage()
        self._events = events
        self._handlers: dict[str, Handler] = {}
        self._clients: list[_Client] = []

    def set_handlers(self, handlers: Mapping[str, Handler]) -> None:
        """What commands mean from now on. `logs` is served here and cannot be replaced."""
        self._handlers = dict(handlers)

    async def call(self, command: str) -> bool:
        """Carry out a command of our own, as a signal asks for; False if nobody handles it yet."""
        handler = self._handlers.get(command)
        if handler is None:
            return False
        await handler({"command": command})
        return True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; the socket file is gone afterwards. Raises UserError."""
        self._path.unlink(missing_ok=True)  # left by a killed daemon; the lock says it is dead
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            os.fchmod(listener.fileno(), 0o600)  # before it has a name, so nobody slips in
            with _short(self._path) as name:
                await listener.bind(name)
            self._path.chmod(0o600)  # where a socket ignores fchmod
            listener.listen(BACKLOG)
            try:
                async with trio.open_nursery() as nursery:
                    task_status.started()
                    while True:
                        accepted, _ = await self._shortage.outlast(listener.accept)
                        client = _Client(trio.SocketStream(accepted))
                        if await self._make_room():
                            self._clients.append(client)
                            nursery.start_soon(self._serve, client)
                        else:
                            client.tell(
                                _refusal(f"{CLIENTS_MAX} clients are being answered already")
                            )
                            client.stream.socket.close()
            finally:
                self._path.unlink(missing_ok=True)

    async def _make_room(self) -> bool:
        """Whether there is a place for one more client."""
        while len(self._clients) >= CLIENTS_MAX:
            first = min(self._clients, key=lambda client: client.waits)  # the oldest of its kind
            if first.waits == _Waits.FOR_US:
                return False
            first.tell(_refusal(f"gave way to a newer client: {CLIENTS_MAX} were connected"))
            first.scope.cancel()
            await first.gone.wait()
        return True

    async def _serve(self, client: _Client) -> None:
        try:
            with client.scope:
                async with client.stream:
                    await self._answer(client)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass  # the client left or stalled: its own loss
        finally:
            self._clients.remove(client)
            client.gone.set()

    async def _answer(self, client: _Client) -> None:
        request = await _read_request(client.stream)
        client.waits = _Waits.FOR_US
        if request is None:
            line = _refusal("a request is one line of JSON with a `command`")
        elif request.get("command") == "logs":
            client.waits = _Waits.FOR_NEWS
            await self._stream_logs(client.stream, request)
            return
        else:
            line = await self._carry_out(request)
        client.waits = _Waits.FOR_READER
        await _send(client.stream, line)

    async def _carry_out(self, request: Mapping[str, Any]) -> str:
        """The answer's line."""
        command = str(request.get("command"))
        handler = self._handlers.get(command)
        if handler is None:
            known = ", ".join(sorted([*self._handlers, "logs"]))
            return _refusal(f"unknown command {command!r}; known: {known}")
        try:
            return as_line({"ok": True, **await handler(request)})
        except NodeError as refused:
            return _refusal(str(refused))
        except Exception as broken:  # one bad request must not end the daemon
            self._events.emit(COMMAND_FAILED, command=command, error=repr(broken))
            return _refusal(f"{command} failed inside the daemon: {broken!r}")

    async def _stream_logs(self, stream: trio.SocketStream, request: Mapping[str, Any]) -> None:
        count = request.get("count", 50)
        count = count if type(count) is int and count >= 0 else 50
        if not request.get("follow"):
            for event in self._events.tail(count):
                await _send(stream, as_line(event))
            return
        try:
            async with self._events.subscribe() as new, trio.open_nursery() as nursery:

                async def leave_with_the_client() -> None:
                    while await stream.receive_some(1024):
                        pass
                    nursery.cancel_scope.cancel()

                nursery.start_soon(leave_with_the_client)
                for event in self._events.tail(count):
                    await _send(stream, as_line(event))
                async for event in new:
                    await _send(stream, as_line(event))
        except* (trio.BrokenResourceError, trio.TooSlowError):
            pass  # the follower's terminal is gone


def ask(path: Path, command: str, **arguments: object) -> dict[str, Any]:
    """One command to the daemon whose socket is at `path`. Raises UserError(exit_code=1)."""
    with _connected(path, ANSWER_TIMEOUT_S) as connection:
        connection.sendall(_request(command, arguments))
        answer = json.loads(next(_received_lines(connection, path)))
    if not answer.pop("ok", False):
        raise UserError(str(answer.get("error", "the daemon gave no reason")), exit_code=1)
    return dict(answer)


def follow(path: Path, count: int, keep_on: bool) -> Iterator[dict[str, Any]]:
    """The newest `count` events of the daemon, and with `keep_on` every later one as it comes."""
    with _connected(path, None if keep_on else ANSWER_TIMEOUT_S) as connection:
        connection.sendall(_request("logs", {"count": count, "follow": keep_on}))
        for line in _received_lines(connection, path, may_end=True):
            event = json.loads(line)
            if event.get("ok") is False:
                raise UserError(str(event.get("error")), exit_code=1)
            yield event


async def _read_request(stream: trio.SocketStream) -> dict[str, Any] | None:
    held = bytearray()
    with trio.fail_after(REQUEST_TIMEOUT_S):
        while b"\n" not in held:
            piece = await stream.receive_some(4096)
            held += piece
            if not piece or len(held) > REQUEST_BYTES_MAX:
                return None
    try:
        request = json.loads(held.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return None
    return request if isinstance(request, dict) else None


async def _send(stream: trio.SocketStream, line: str) -> None:
    with trio.fail_after(REQUEST_TIMEOUT_S):
        await stream.send_all(line.encode() + b"\n")


def _refusal(message: str) -> str:
    return as_line({"ok": False, "error": message})


def _request(command: str, arguments: Mapping[str, object]) -> bytes:
    return json.dumps({"command": command, **arguments}).encode() + b"\n"


@contextmanager
def _connected(path: Path, timeout_s: float | None) -> Iterator[socket.socket]:
    directory = path.parent
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            with _short(path) as name:
                connection.connect(name)
            yield connection
        except (FileNotFoundError, ConnectionRefusedError):
            raise UserError(_unanswered(directory), exit_code=1) from None
        except PermissionError:
            raise UserError(f"{path} belongs to another user", exit_code=1) from None
        except BlockingIOError:  # its queue of newcomers is full, and it takes none out
            raise UserError(
                f"the daemon in {directory} lets nobody in, and many wait already: it is stopped "
                "or hangs (`daa-node doctor` says which)",
                exit_code=1,
            ) from None
        except (BrokenPipeError, ConnectionResetError):  # killed since it let us in
            raise UserError(f"the daemon in {directory} hung up", exit_code=1) from None
        except TimeoutError:
            raise UserError(
                f"the daemon in {directory} did not answer in {timeout_s:.0f} s", exit_code=1
            ) from None


def _unanswered(directory: Path) -> str:
    """Why nobody listens at its socket."""
    with suppress(OSError):
        holder = daemon_lock.holder(directory / daemon_lock.NAME)
        if holder is not None:
            return (
                f"the daemon in {directory} (pid {holder}) answers nobody yet: it is starting, or "
                "it ends; try again in some seconds"
            )
    named = shlex.quote(str(directory))
    return f"no daemon is running in {directory} (start one: daa-node run --dir {named})"


def _received_lines(
    connection: socket.socket, path: Path, may_end: bool = False
) -> Iterator[bytes]:
    held = bytearray()
    while True:
        line, newline, rest = held.partition(b"\n")
        if newline:
            held = rest
            yield bytes(line)
            continue
        try:
            piece = connection.recv(1 << 16)
        except ConnectionResetError:
            piece = b""
        if not piece and may_end and not held:
            return
        if not piece or len(held) > ANSWER_BYTES_MAX:
            raise UserError(f"the daemon in {path.parent} hung up", exit_code=1)
        held += piece


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name for `path` that fits a socket address, however deep the directory lies."""
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        yield str(path)
        return
    if not Path("/proc/self/fd").is_dir():
        raise UserError(
            f"{path} is longer than the {SOCKET_PATH_BYTES_MAX} bytes of a socket's name here: "
            "choose a shorter --dir"
        )
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
