"""A machine's disk in memory: what is written, what of it a crash leaves, and how it fails.

    written --sync--> durable          bytes of a file, and, apart from them, names in a folder
       |                               (a rename, a new file, a deleted one)
       +--- crash: each name that was not synced is as before, or new;
                   each file that was not synced is whole, or what was not synced of it is
                   gone, torn, zeros, or other bytes of that length; as the seed will have it
       +--- a failed sync: readers still see it, no later sync brings it to the disk

What has been dirty for WRITTEN_BACK_S is on the disk, synced or not. Whoever held the disk when its
machine went down can do nothing with it any more.

An operation takes time, drawn for each, so that one that began later may end first. The memory that
a machine has read or written lately answers reads at once, unless the disk is slow.

Failures on request: full (a little can be written, then nothing), lying (a sync returns and has
done nothing), syncs and renames that fail now and then, slow, rot (a bit of some blob turns), and a
crash in the middle of the next write but so many. Failed syncs are as Linux has them: Rebello et
al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import trio

from daa_node.adapters.journal_format import records_of
from daa_node.errors import StorageFailed

# Of a good SSD. A sync takes so long on average, and now and then several times as long.
ACCESS_S, SYNC_S, BYTES_PER_S = 50e-6, 0.002, 500e6
SYNC_S_MAX = 10 * SYNC_S
WRITTEN_BACK_S = 30.0  # Linux: dirty_expire_centisecs
FAILING_SHARE = 0.3  # of syncs, or renames, while they fail
ROOM_BYTES_MAX = 16 * 2**10  # of a full disk: it may end in any file of a round
LOG, GUARD = "agreement/wal", "agreement/guard"
BLOBS = ("deltas", "chunks", "updates")  # what rots: the rest is small
Failing = Literal["full", "failed_sync", "failed_rename"]
FATES = ("whole", "gone", "torn", "zeroed", "with other bytes")
FULL = "no space left on device"
OTHER_BYTES = 512  # a sector


@dataclass(slots=True, eq=False)
class File:
    """One file, under whatever name."""

    content: bytes  # as readers see it
    path: str = ""  # its newest name
    durable: bytes = b""  # as it is on the disk
    since_s: float = 0.0  # dirty
    holes: list[tuple[int, int]] = field(default_factory=list)  # where a sync has failed

    def as_written(self) -> bytes:
        """The content, but for what no sync can bring to the disk any more."""
        if not self.holes:
            return self.content
        found = bytearray(self.content)
        for start, end in self.holes:
            found[start:end] = bytes(max(0, min(end, len(found)) - start))
        return bytes(found)


@dataclass(frozen=True, slots=True)
class Pending:
    """A name that is not durable: whose it was, and since when it has changed."""

    before: File | None
    since_s: float


class Drive:
    """How a disk is today: how long it takes, and what it fails at."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._failing: Counter[Failing] = Counter()  # faults that make it fail so
        self._room_bytes = 0  # while it is full
        self._slowness: list[float] = []  # each makes everything take so many times longer
        self.befallen: Counter[str] = Counter()  # what happened that a sweep must have been in
        self._begun = 0
        self._under_way: set[int] = set()

    def fails_at(self, what: Failing) -> Callable[[], None]:
        """Until what is returned is called: syncs and renames now and then.

        A full disk has room for a little more, and takes nothing once that is used up.
        """
        self._failing[what] += 1
        if what == "full":
            self._room_bytes = self._chance.randrange(ROOM_BYTES_MAX)
        return partial(self._failing.subtract, (what,))

    def slow_down(self, factor: float) -> Callable[[], None]:
        """Until what is returned is called; of several the slowest counts.

        Factors that multiplied would have an operation end minutes after all had healed.
        """
        self._slowness.append(factor)
        return partial(self._slowness.remove, factor)

    @property
    def is_slow(self) -> bool:
        return bool(self._slowness)

    def spend(self, size_bytes: int, syncs: bool) -> Iterator[float]:
        """The seconds that an operation takes; it may overtake others that have begun before."""
        wait_s = ACCESS_S * self._chance.uniform(0.5, 1.5) + size_bytes / BYTES_PER_S
        if syncs:
            wait_s += min(SYNC_S_MAX, self._chance.expovariate(1 / SYNC_S))
        if self._slowness:
            wait_s *= max(self._slowness)
            self.befallen["disk slow"] += 1
        self._begun += 1
        number = self._begun
        self._under_way.add(number)
        yield wait_s
        self._under_way.discard(number)
        if syncs and min(self._under_way, default=number) < number:
            self.befallen["write overtaken by a later one"] += 1

    def fails(self, what: Failing) -> bool:
        """Whether this one does."""
        return self._failing[what] > 0 and self._chance.random() < FAILING_SHARE

    def take_room(self, size_bytes: int) -> int:
        """How many of these there is room for; who is given less is told that the disk is full."""
        if not self._failing["full"]:
            return size_bytes
        taken = min(size_bytes, self._room_bytes)
        self._room_bytes -= taken
        self.befallen["disk full"] += taken < size_bytes
        return taken


class Disk:
    """Files by path. A mounted one is used through `Mount`s, which end with the machine's power."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.drive = Drive(random.Random(chance.getrandbits(64)))
        self.befallen = self.drive.befallen
        self.fails_at, self.slow_down = self.drive.fails_at, self.drive.slow_down
        self.files: dict[str, bytes] = {}  # as readers see them
        self.names: defaultdict[str, dict[str, None]] = defaultdict(dict)  # of them, by folder
        self.inodes: dict[str, File] = {}  # the same
        self.folders: set[str] = set()  # that have ever had a file
        self._pending: dict[str, dict[str, Pending]] = {}  # by folder and path
        self.mounts = 0  # how often the machine was started
        self.lying = False
        self.writes_until_crash: int | None = None
        self.on_crash_due: Callable[[], None] = _nobody
        self.fates: tuple[str, ...] = (
            FATES  # that a crash chooses from, for bytes that were not synced
        )

    @property
    def log(self) -> list[bytes]:
        """The signer's records, as readers see them."""
        return records_of(LOG, self.files[LOG]) if LOG in self.files else []

    # What befalls it

    def crash(self) -> None:
        """The power goes: of what was not synced, the seed says what is left."""
        self.mounts += 1
        self.writes_until_crash = None
        now_s = trio.current_time()
        for folder in sorted(self._pending):
            for path, pending in sorted(self._pending[folder].items()):
                is_written = not self.lying and now_s - pending.since_s > WRITTEN_BACK_S
                if not is_written and self._chance.random() < 0.5:
                    self._undo(path, pending)
        self._pending.clear()
        for path in sorted(self.inodes):
            file = self.inodes[path]
            if file.content is not file.durable:
                self._settle(path, file, now_s)

    def _undo(self, path: str, pending: Pending) -> None:
        if path not in self.files:
            self.befallen["deleted file back after a crash"] += 1
        elif pending.before is None:
            self.befallen["unsynced file gone"] += 1
        else:
            self.befallen["rename undone by a crash"] += 1
        self._see(path, pending.before)

    def _settle(self, path: str, file: File, now_s: float) -> None:
        """Of a file that is not, or not all of it, on the disk."""
        content = file.as_written()
        kept = _common(content, file.durable)
        tail = content[kept:]
        if self.lying or now_s - file.since_s <= WRITTEN_BACK_S:
            fate = self._chance.choice(self.fates)
            tail = _befall(self._chance, tail, fate)
            if content[kept:] and (fate == "whole" or tail != content[kept:]):
                self.befallen[f"unsynced bytes {fate}"] += 1
        self._see(path, _durable(content[:kept] + tail))

    def wipe(self, copy: Mapping[str, bytes] | None = None) -> None:
        """Another disk is put in: an empty one, or one with the files of a copy."""
        self.mounts += 1
        self.files.clear()
        self.inodes.clear()
        self.names.clear()
        self._pending.clear()
        for path, content in (copy or {}).items():
            self._see(path, _durable(content))

    def rot(self, folder: str = "") -> str | None:
        """Turn one bit of one stored blob; which file it was, None if there is none."""
        blobs = [
            path
            for path in sorted(self.files)
            if path.startswith(folder) and path.split("/")[1] in BLOBS and self.files[path]
        ]
        if not blobs:
            return None
        path = self._chance.choice(blobs)
        damaged = bytearray(self.files[path])
        damaged[self._chance.randrange(len(damaged))] ^= 1 << self._chance.randrange(8)
        self.befallen["bit turned"] += 1
        self._see(path, _durable(bytes(damaged)))
        return path

    # What a mounted disk does

    def create(self, payload: bytes) -> File:
        """A file that has no name yet. Raises StorageFailed."""
        self._strike()
        if self.drive.take_room(len(payload)) < len(payload):
            raise StorageFailed(FULL)
        return File(payload, since_s=trio.current_time())

    def append(self, file: File, added: bytes) -> None:
        """Raises StorageFailed: for want of room, or of power. Then some of it may be there."""
        before, torn = file.content, added[: self._chance.randrange(len(added))]
        if self.writes_until_crash == 0:  # it strikes now
            self._change(file, before + torn)
        self._strike()
        taken = self.drive.take_room(len(added))
        self._change(file, before + added[:taken])
        if taken < len(added):
            raise StorageFailed(FULL)

    def truncate(self, file: File, size_bytes: int) -> None:
        """Take back what lies behind so many bytes."""
        kept = file.content[:size_bytes]
        self._change(file, file.durable if kept == file.durable else kept)

    def overwrite(self, file: File, content: bytes) -> None:
        """Write all of it, the same bytes or others: all is dirty again. Raises StorageFailed."""
        self._strike()
        growth = max(0, len(content) - len(file.content))
        if self.drive.take_room(growth) < growth:
            raise StorageFailed(FULL)
        file.holes.clear()
        self._change(file, content)

    def sync(self, file: File) -> None:
        """Its bytes. Raises StorageFailed; then no later sync brings them to the disk."""
        if file.content is file.durable:
            return  # nothing is dirty
        if self.lying:
            self.befallen["sync that was none"] += 1
            return
        if self.drive.fails("failed_sync"):
            self.befallen["sync failed"] += 1
            file.holes.append((_common(file.content, file.durable), len(file.content)))
            raise StorageFailed("Input/output error")
        file.durable = file.as_written()  # the same object, where nothing was lost

    def rename(self, file: File, path: str) -> None:
        """Its name from now on, whoever had it before. Raises StorageFailed."""
        if self.drive.fails("failed_rename"):
            self.befallen["rename failed"] += 1
            raise StorageFailed("Input/output error")
        self._enter(path, file)

    def sync_names(self, folder: str) -> None:
        """All names in it. Raises StorageFailed; then they are as good as before, no better."""
        if self.lying or folder not in self._pending:
            return
        if self.drive.fails("failed_sync"):
            self.befallen["sync of a folder failed"] += 1
            raise StorageFailed("Input/output error")
        self._pending.pop(folder, None)

    def remove(self, path: str) -> None:
        if path in self.files:
            self._enter(path, None)

    def put(self, path: str, payload: bytes, sync: bool) -> None:
        """All steps of a write at once. Raises StorageFailed."""
        file = self.create(payload)
        if sync:
            self.sync(file)
        self.rename(file, path)
        if sync:
            self.sync_names(folder_of(path))

    def _enter(self, path: str, file: File | None) -> None:
        names = self._pending.setdefault(folder_of(path), {})
        before = names[path].before if path in names else self.inodes.get(path)
        names[path] = Pending(before, trio.current_time())
        if before is file:  # it came and went
            del names[path]
            if not names:
                del self._pending[folder_of(path)]
        self._see(path, file)

    def _see(self, path: str, file: File | None) -> None:
        folder, _, name = path.rpartition("/")
        if file is None:
            self.files.pop(path, None)
            self.inodes.pop(path, None)
            self.names[folder].pop(name, None)
        else:
            self.files[path], self.inodes[path], file.path = file.content, file, path
            self.folders.add(folder)
            self.names[folder][name] = None

    def _change(self, file: File, content: bytes) -> None:
        if file.content is file.durable:
            file.since_s = trio.current_time()
        file.content = content
        if self.inodes.get(file.path) is file:
            self.files[file.path] = content

    def _strike(self) -> None:
        """The power goes, if it is due in this write."""
        if self.writes_until_crash is not None:
            self.writes_until_crash -= 1
            if self.writes_until_crash < 0:
                self.befallen["power lost while writing"] += 1
                self.on_crash_due()
                raise StorageFailed("the power went in the middle of a write")


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _befall(chance: random.Random, tail: bytes, fate: str) -> bytes:
    if fate == "gone" or not tail:
        return b""
    if fate == "torn":
        return tail[: chance.randrange(len(tail))]
    if fate == "whole":
        return tail
    start = chance.randrange(len(tail))
    if fate == "zeroed":  # from there on: the file has grown, and its last bytes never came
        return tail[:start] + bytes(len(tail) - start)
    end = min(len(tail), start + OTHER_BYTES)
    return tail[:start] + chance.randbytes(end - start) + tail[end:]


def _common(one: bytes, other: bytes) -> int:
    """So many bytes at the beginning of both."""
    if one.startswith(other):
        return len(other)
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _durable(content: bytes) -> File:
    return File(content, durable=content)


def _nobody() -> None:
    """Nobody has asked to be told."""
