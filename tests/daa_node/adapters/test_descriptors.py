"""Without descriptors nothing breaks and nothing spins: whoever needs one waits, and says so."""

import errno
import gc
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from daa_dag.chunking import manifest_of
from daa_node.adapters.bulk_channel import SOCKETS_MAX as BULK_SOCKETS_MAX
from daa_node.adapters.control_socket import CLIENTS_MAX, ControlSocket
from daa_node.adapters.descriptors import (
    FILES_MAX,
    PAUSE_S,
    Gate,
    Shortage,
    serve,
)
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.disk_journal import DiskJournal, open_journal
from daa_node.adapters.libp2p_parts import MEMBERS_MAX
from daa_node.adapters.libp2p_transport import sockets_max
from daa_node.adapters.offload import ThreadOffload
from daa_node.cli.compose import descriptors_max
from daa_node.config import NodeConfig
from daa_node.observability.events import EventLog

PAYLOAD = os.urandom(100_000)
MANIFEST = manifest_of(PAYLOAD, [len(PAYLOAD)])
OTHER = os.urandom(100_000)
LACK_S = 4 * PAUSE_S


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open nothing more."""
    gc.collect()  # files of earlier tests, which would be closed meanwhile
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def outlasts(work: Callable[[], Awaitable[object]], told: list[str]) -> None:
    """`work` is done only after the lack, and has told of it."""
    done = trio.Event()

    async def do() -> None:
        await work()
        done.set()

    async with trio.open_nursery() as nursery:
        with no_descriptors():
            nursery.start_soon(do)
            await trio.sleep(LACK_S)
            assert not done.is_set()
        with trio.fail_after(30):
            await done.wait()
    assert len(told) == 1
    assert "Too many open files" in told[0]


Store = DiskBlobStore


async def put(store: Store) -> None:
    await store.put_record("blocks", "two", b"2", durable=True)
    assert await store.get_record("blocks", "two") == b"2"


async def get(store: Store) -> None:
    assert await store.get_record("blocks", "one") == b"1"


async def names(store: Store) -> None:
    assert await store.record_names("blocks") == ["one"]


async def receive(store: Store) -> None:
    manifest = manifest_of(OTHER, [len(OTHER)])
    writer = await store.begin_blob("updates", manifest)
    await writer.write_chunk(0, OTHER)
    await writer.commit()
    assert await store.read_chunk("updates", manifest.root, 0) == OTHER
    assert bytes(await store.view_blob("updates", manifest.root)) == OTHER


async def adopt(store: Store) -> None:
    path = store.directory.records.root / "made"
    await store.adopt_file("updates", path, MANIFEST, durable=True)
    await store.make_durable("updates", MANIFEST.root)
    assert bytes(await store.view_blob("updates", MANIFEST.root)) == PAYLOAD
    await store.delete_blob("updates", MANIFEST.root)
    assert await store.blob_roots("updates") == []


async def rewrite(journal: DiskJournal) -> None:
    await journal.rewrite([b"base"])
    await journal.write_guard(b"guard")
    await journal.append(b"after")


async def on_store(
    work: Callable[[Store], Awaitable[None]], directory: Path, told: list[str]
) -> Callable[[], Awaitable[None]]:
    """A store with a record and a file to adopt, and what is to be done with it."""
    store = Store(directory / "store", shortage=Shortage(told.append))
    await store.put_record("blocks", "one", b"1")
    (directory / "store" / "made").write_bytes(PAYLOAD)
    return lambda: work(store)


STORE_WORKS = [put, get, names, receive, adopt]


@pytest.mark.parametrize("work", STORE_WORKS)
async def test_a_store_waits_for_descriptors(
    work: Callable[[Store], Awaitable[None]], tmp_path: Path
) -> None:
    told = list[str]()
    do = await on_store(work, tmp_path, told)
    await outlasts(do, told)


async def test_a_journal_waits_for_descriptors(tmp_path: Path) -> None:
    told = list[str]()
    async with open_journal(tmp_path, ThreadOffload(), Shortage(told.append)) as journal:
        await journal.load()
        await outlasts(lambda: rewrite(journal), told)


class Lack:
    """Lets one file that is opened in a directory find no descriptor: the one after `skip`."""

    def __init__(self) -> None:
        self.directory, self.skip = "/nowhere", 0
        sys.addaudithook(self._on)

    def _on(self, event: str, args: tuple[object, ...]) -> None:
        if event in ("open", "os.listdir") and str(args[0]).startswith(self.directory):
            self.skip -= 1
            if self.skip == -1:
                raise OSError(errno.EMFILE, "Too many open files", str(args[0]))


LACK = Lack()  # a hook of the interpreter cannot be taken back


@pytest.mark.parametrize("work", STORE_WORKS)
async def test_whichever_file_of_a_store_finds_no_descriptor_the_next_try_makes_up_for_it(
    work: Callable[[Store], Awaitable[None]], tmp_path: Path
) -> None:
    met = 0
    for skip in range(40):
        told = list[str]()
        do = await on_store(work, tmp_path / str(skip), told)
        LACK.directory, LACK.skip = str(tmp_path / str(skip)), skip
        await do()
        met += len(told)
        if not told:
            break
    assert 1 <= met < 40


async def test_whichever_file_of_a_journal_finds_no_descriptor_the_log_is_whole_afterwards(
    tmp_path: Path,
) -> None:
    met = 0
    for skip in range(40):
        told, directory = list[str](), tmp_path / str(skip)
        async with open_journal(directory, ThreadOffload(), Shortage(told.append)) as journal:
            await journal.load()
            await journal.append(b"before")
            LACK.directory, LACK.skip = str(directory), skip
            await rewrite(journal)
        LACK.directory = "/nowhere"
        async with open_journal(directory, ThreadOffload()) as journal:
            assert await journal.load() == [b"base", b"after"]
            assert await journal.read_guard() == b"guard"
        met += len(told)
        if not told:
            break
    assert 4 <= met < 40


async def test_a_listener_waits_for_descriptors_and_tries_a_few_times_a_second() -> None:
    told, tried, served = list[str](), 0, trio.Event()
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    whole = listener.accept

    async def counted() -> trio.SocketStream:
        nonlocal tried
        tried += 1
        return await whole()

    async def handler(stream: trio.SocketStream) -> None:
        served.set()

    listener.accept = counted  # type: ignore[method-assign]
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(serve, listener, handler, Gate(8, 100, Shortage(told.append)))
        await trio.testing.wait_all_tasks_blocked()
        caller = trio.socket.socket()
        with no_descriptors():
            await caller.connect(("127.0.0.1", listener.socket.getsockname()[1]))
            await trio.sleep(LACK_S)
            assert not served.is_set()
            assert tried <= 2 + LACK_S / PAUSE_S
        with trio.fail_after(30):
            await served.wait()
        caller.close()
        nursery.cancel_scope.cancel()
    assert len(told) == 1


async def test_the_operators_door_waits_for_descriptors(tmp_path: Path) -> None:
    told = list[str]()

    async def status(_request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"phase": "train"}

    control = ControlSocket(tmp_path / "s", EventLog(lambda: 0), Shortage(told.append))
    control.set_handlers({"status": status})
    caller = trio.socket.socket(trio.socket.AF_UNIX)
    async with trio.open_nursery() as nursery:
        await nursery.start(control.run)
        with no_descriptors():
            await caller.connect(str(tmp_path / "s"))
            await caller.send(b'{"command": "status"}\n')
            await trio.sleep(LACK_S)
        with trio.fail_after(30):
            assert b"train" in await caller.recv(1024)
        nursery.cancel_scope.cancel()
    caller.close()
    assert len(told) == 1


async def test_no_more_sockets_are_served_than_there_are_places() -> None:
    at_once, most = 0, 0

    async def handler(stream: trio.SocketStream) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await trio.sleep(0.01)
        at_once -= 1

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(serve, listener, handler, Gate(3, 100, Shortage()))
        port = listener.socket.getsockname()[1]
        callers = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(12)]
        with trio.fail_after(30):
            for caller in callers:
                assert await caller.receive_some(1) == b""
                await caller.aclose()
        nursery.cancel_scope.cancel()
    assert most == 3


async def close(stream: trio.abc.AsyncResource) -> None:
    await stream.aclose()


class Crowd:
    """A listener at which somebody always waits; virtual time stands while it is asked."""

    def __init__(self, accepted_max: int) -> None:
        self.accepted_max = accepted_max
        self.accepted = 0

    async def accept(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.accepted += 1
        assert self.accepted <= self.accepted_max, "at no pace"
        return trio.testing.memory_stream_pair()[0]


async def test_sockets_are_accepted_at_a_pace(autojump_clock: trio.testing.MockClock) -> None:
    crowd = Crowd(200 + 10 * 100 + 1)
    with trio.move_on_after(10):
        await serve(crowd, close, Gate(8, 100, Shortage()))  # type: ignore[arg-type]
    assert crowd.accepted > 10 * 100


def test_the_soft_limit_is_raised_and_a_hard_one_that_is_too_low_is_the_operators() -> None:
    program = (
        "import resource\n"
        "from daa_node.adapters.descriptors import raise_limit\n"
        "from daa_node.errors import UserError\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 500))\n"
        "raise_limit(90, 95)\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (100, 500)\n"
        "raise_limit(90, 300)\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, 500)\n"
        "raise_limit(90, 501)\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (500, 500)\n"
        "try:\n"
        "    raise_limit(501, 900)\n"
        "except UserError as told:\n"
        "    print(told)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "may need 501" in done.stdout
    assert "500 are allowed" in done.stdout
    assert "ulimit -n 501" in done.stdout
    assert "network.peers_max" in done.stdout


def test_a_daemon_asks_for_what_it_takes_once_the_network_is_as_large_as_any() -> None:
    """Founded by four, it goes on through all who join: strangers never take what files need."""
    config = NodeConfig()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few, most = (descriptors_max(config, members) for members in (4, MEMBERS_MAX))
    assert few < most <= before[1], "or this machine shows nothing"
    assert few - sockets_max(config.network, 4) - BULK_SOCKETS_MAX - CLIENTS_MAX >= FILES_MAX
    program = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({few}, {before[1]}))\n"
        "from daa_node.cli.compose import make_room\n"
        "from daa_node.config import NodeConfig\n"
        "make_room(NodeConfig(), 4)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{most}\n", done.stderr
