"""What befalls a real node's disk, by the daemon's own reader; its clock; its processor."""

import errno
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns, thread_time, time_ns

import pytest
import trio

from daa_node.adapters.disk_journal import open_journal
from daa_node.adapters.offload import ThreadOffload
from simnet.nodes.processes import hardware
from simnet.world.links import NS

RECORDS = [b"first", b"second" * 100, b"third"]
WRITER = """
import sys
for path in sys.stdin:
    try:
        with open(path.strip(), "wb") as file:
            file.write(b"words")
        print(0, flush=True)
    except OSError as refused:
        print(refused.errno, flush=True)
"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A directory with some state in it."""
    for name in ("chain/deltas/aa", "chain/vertices/bb", "keys/ml_dsa.key", "events.jsonl"):
        path = tmp_path / "node" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 50)
    return tmp_path / "node"


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


async def load(node: Path) -> list[bytes]:
    async with open_journal(node / "agreement", ThreadOffload()) as journal:
        return await journal.load()


def test_a_torn_write_is_cut_off_and_nothing_before_it_is_lost(node: Path) -> None:
    async def write() -> None:
        async with open_journal(node / "agreement", ThreadOffload()) as journal:
            await journal.load()
            for record in RECORDS:
                await journal.append(record)

    trio.run(write)
    log = node / hardware.LOG
    whole = log.read_bytes()
    hardware.tear(node)
    assert log.stat().st_size == len(whole) + hardware.TORN_BYTES
    assert trio.run(load, node) == RECORDS
    assert log.read_bytes() == whole


def test_rot_turns_one_bit_of_one_certified_file(node: Path) -> None:
    before = files(node)
    path = hardware.rot(node, random.Random(7))
    after = files(node)
    changed = [name for name in before if before[name] != after[name]]
    assert path is not None
    assert changed == [str(path.relative_to(node))]
    assert changed[0].startswith("chain/")
    one, other = (int.from_bytes(contents[changed[0]]) for contents in (before, after))
    assert (one ^ other).bit_count() == 1


def test_a_new_disk_has_the_keys_and_nothing_of_what_was_agreed(node: Path) -> None:
    hardware.wipe(node)
    assert set(files(node)) == {"keys/ml_dsa.key", "events.jsonl"}


def test_a_disk_that_is_rolled_back_forgets_what_came_later(node: Path, tmp_path: Path) -> None:
    before = files(node)
    hardware.remember(node, tmp_path / "memory")
    (node / "chain/deltas/aa").write_bytes(b"later")
    (node / "chain/deltas/cc").write_bytes(b"later still")
    (node / "agreement").mkdir()
    (node / "events.jsonl").write_bytes(b"what happened, happened")
    hardware.roll_back(node, tmp_path / "memory")
    after = files(node)
    assert after.pop("events.jsonl") == b"what happened, happened"
    assert after == {name: held for name, held in before.items() if name != "events.jsonl"}
    assert not (tmp_path / "memory").exists()


@pytest.fixture
def writer() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        yield process
        process.kill()


def test_a_full_disk_refuses_every_write_until_there_is_room(
    writer: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    def attempt() -> int:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write(f"{tmp_path / 'file'}\n")
        writer.stdin.flush()
        return int(writer.stdout.readline())

    assert attempt() == 0
    hardware.fill(writer.pid, True)
    assert attempt() == errno.EFBIG
    hardware.fill(writer.pid, False)
    assert attempt() == 0


HOUR_MS, MINUTE_NS = 3_600_000, 60 * NS


def off_ns(clock: hardware.WrongClock) -> int:
    return clock.wall_ns() - time_ns()


def test_a_clock_is_as_wrong_as_it_was_last_set(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    clock = hardware.WrongClock(path)
    for skew_ms in (0, HOUR_MS, -HOUR_MS, 0):
        hardware.set_clock(path, skew_ms, 0)
        assert abs(off_ns(clock) - skew_ms * 1_000_000) < MINUTE_NS
    assert [file.name for file in tmp_path.iterdir()] == ["clock"]


def test_a_clock_that_drifts_is_the_more_wrong_the_longer_it_does(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    hardware.set_clock(path, 0, 100_000)
    skew, drift, since = path.read_text().split()
    assert abs(int(since) - monotonic_ns()) < MINUTE_NS
    path.write_text(f"{skew} {drift} {int(since) - 6000 * NS}")  # a hundred minutes ago
    assert abs(off_ns(hardware.WrongClock(path)) - 600 * NS) < MINUTE_NS


def test_what_a_slow_processor_computes_takes_as_many_times_longer() -> None:
    processor = hardware.SlowProcessor(4.0)
    began_s, busy_s = processor.now_s(), thread_time()
    while thread_time() - busy_s < 0.02:
        pass
    # sleeping may take longer than asked for, never less
    assert processor.now_s() - began_s >= 4 * 0.02
