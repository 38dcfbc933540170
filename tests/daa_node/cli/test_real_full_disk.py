"""A disk that is really full: a small tmpfs in a mount namespace of the test's own."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from daa_consensus.roll import Admission
from daa_node.checkpoints.config import CheckpointsConfig
from daa_node.cli.compose import _told
from daa_node.errors import StorageFailed
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.rounds.trainers import TrainersConfig
from daa_node.training.model_config import ModelConfig
from tests.daa_node.cli.test_daemon import TINY, network, running
from tests.daa_node.cli.test_joining_daemon import daa_node, events_of, until_past

pytestmark = pytest.mark.usefixtures("warm")

# A state of five megabytes: twenty seconds at the slowest link that a host may ask for.
JOB = TINY.model_copy(
    update={
        "model": ModelConfig(kind="mlp", depth=2, width=768),
        "rounds": RoundsConfig(inner_steps_max=2, window_ms=3_000),
        "checkpoints": CheckpointsConfig(snapshot_every=2),
        "trainers": TrainersConfig(admission=Admission.VOUCHED, per_voucher=1, max=4),
        "end": EndConfig(rounds=100_000),
    }
)
ROOM_KIB = 2 * 2**20  # more than `join` asks for; nothing of it is taken before it is written
PAGE_KIB = 4
LIMIT_S = 600.0  # of any one thing, on a machine that others share


class SmallDisk:
    """A directory that only processes in its own namespace see; its size can change."""

    def __init__(self, holder: "subprocess.Popen[bytes]", place: Path) -> None:
        self._holder, self.place = holder, place
        self.outside = Path(f"/proc/{holder.pid}/root") / place.relative_to("/")
        self._enter = ("nsenter", "-t", str(holder.pid), "-U", "-m", "--preserve-credentials")

    def inside(self, *words: str) -> tuple[str, ...]:
        """A command line that is run there."""
        return (*self._enter, "--", *words)

    def resize(self, size_kib: int) -> None:
        words = ("mount", "-o", f"remount,size={size_kib}k", str(self.place))
        subprocess.run(self.inside(*words), check=True)

    def fill(self) -> None:
        """From now on there is room for a page or two."""
        while True:
            told = os.statvfs(self.outside)
            used_kib = (told.f_blocks - told.f_bfree) * told.f_frsize // 1024
            try:
                self.resize(used_kib + PAGE_KIB)
            except subprocess.CalledProcessError:
                continue  # somebody has written meanwhile
            return


@contextmanager
def small_disk(place: Path) -> Iterator[SmallDisk]:
    """Skips the test where the kernel lets nobody make a namespace."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        pytest.skip("unshare and nsenter are not here")
    place.mkdir()
    mount = f'mount -t tmpfs -o size={ROOM_KIB}k tmpfs "$0" && echo mounted && exec cat'
    holder = subprocess.Popen(
        ("unshare", "-U", "-r", "-m", "sh", "-c", mount, str(place)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stderr is not None
    try:
        if holder.stdout.readline() != b"mounted\n":
            why = holder.stderr.read().decode(errors="replace").strip()
            pytest.skip(f"this kernel lets nobody mount a tmpfs in a namespace: {why}")
        yield SmallDisk(holder, place)
    finally:
        holder.kill()
        holder.wait()
        for pipe in (holder.stdin, holder.stdout, holder.stderr):
            pipe.close()


def until(what: str, node: Path, holds: Callable[[list[dict[str, Any]]], bool]) -> None:
    """The events of this node are so."""
    deadline_s = time.monotonic() + LIMIT_S
    while not holds(events_of(node)):
        last = [event["name"] for event in events_of(node)][-20:]
        assert time.monotonic() < deadline_s, f"never {what}; last: {last}"
        time.sleep(0.1)


def counted(events: list[dict[str, Any]]) -> list[int]:
    return [e["round"] for e in events if e["name"] == "set_decided" and e["ours"]]


@pytest.mark.long
@pytest.mark.timeout(1800)  # some things after each other, each of LIMIT_S
def test_a_disk_that_is_full_costs_nothing_and_with_room_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (alice,) = network(tmp_path, 1, JOB)
    monkeypatch.setenv("DAA_NETWORK__LISTEN", "[/ip4/127.0.0.1/tcp/0]")
    with small_disk(tmp_path / "small") as disk, running(alice):
        dave = disk.outside / "dave"
        until_past(alice)
        text = daa_node("invite", "--dir", str(alice)).stdout.strip()
        line = (sys.executable, "-m", "daa_node", "join", text, "--yes")
        words = disk.inside(*line, "--dir", str(disk.place / "dave"))
        with started(words, tmp_path / "told", DAA_NETWORK__DOWNLOAD_MBIT_S="2") as joiner:
            until("a part of a state", dave, has_a_part)
            disk.fill()
            assert joiner.wait(LIMIT_S) == 1
        *_, said, found = (tmp_path / "told").read_text().strip().splitlines()
        assert_named(said, disk.place)
        assert found.startswith("found: 0 B are free on the disk where "), found
        assert said.endswith("make room if the disk is full, and give the same line again")

        disk.resize(ROOM_KIB)
        again = tmp_path / "again"
        with started(words, again) as joiner:
            until("in a set", dave, lambda events: bool(counted(events)))
            disk.fill()  # of a daemon that runs: what fails first decides whether it goes on
            deadline_s = time.monotonic() + LIMIT_S
            while joiner.poll() is None and "storage_failed" not in again.read_text():
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            disk.resize(ROOM_KIB)
        told = again.read_text()
        if joiner.returncode == 1:
            *_, said = (each for each in told.splitlines() if each.startswith("error: "))
            assert_named(said, disk.place)
        assert "No space left on device" in told
        newest = max(counted(events_of(dave)))

        usual = (sys.executable, "-m", "daa_node", "run", "--dir", str(disk.place / "dave"))
        with started(disk.inside(*usual), tmp_path / "run"):
            until("in a set again", dave, lambda events: max(counted(events)) > newest)
        newest = max(e["height"] for e in events_of(dave) if e["name"] == "round_finalized")
        whole = ("-m", "daa_node", "checkpoint", "verify", "--dir", str(disk.place / "dave"))
        proved = subprocess.run(
            disk.inside(sys.executable, *whole, "--json"), capture_output=True, check=False
        )
        report = json.loads(proved.stdout)
        assert report["ok"], report
        assert report["heights"] >= newest  # no vertex that it had certified is lost


@contextmanager
def started(
    words: Sequence[str], told: Path, **settings: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """Killed at the end, if it has not ended."""
    with told.open("wb") as file:
        process = subprocess.Popen(words, env=os.environ | settings, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def assert_named(said: str, place: Path) -> None:
    assert said.startswith("error: cannot write "), said
    assert "No space left on device" in said
    assert str(place / "dave") in said


def has_a_part(events: list[dict[str, Any]]) -> bool:
    return any(e["name"] == "state_coming" and 0 < e["bytes"] < e["bytes_due"] for e in events)


def test_a_daemon_that_ends_for_lack_of_room_says_what_to_do() -> None:
    full = StorageFailed("cannot write chain/x: No space left on device")
    assert str(_told(full, False)).endswith("is lost: make room, and start this node again")
    for other in (StorageFailed("chain/x is damaged"), KeyboardInterrupt()):
        assert _told(other, False) is other
    assert _told(full, True) is full  # `join` says it in its own words
