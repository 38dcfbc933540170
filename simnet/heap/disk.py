"""A node's disk in memory: what was synced survives a power cut, what was only written may not.

    write --> cached --sync--> durable        a power cut keeps what is durable, and of what is only
                                              cached whatever chance had written back by then

Three things lie on it: the signer's journal (log and guard), kept records, and the published chain.
It can be full, lie about syncing, tear a write in two by losing power in the middle of it, rot, and
be wiped.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from daa_consensus.bft.messages import Block
from daa_node.errors import StorageFailed
from simnet.heap.archive import Archive

GUARD = "guard"
ROTTEN = b""  # what reading a guard gives whose checksum does not fit


class PowerCut(Exception):
    """The node is gone in the middle of a write. Nothing may catch it but the world."""


@dataclass(slots=True)
class Log:
    """Records in order, of which the first `synced` are durable."""

    records: list[bytes] = field(default_factory=list)
    synced: int = 0
    before: list[bytes] | None = None  # the durable log that an unsynced rewrite replaced
    rotten: set[int] = field(default_factory=set)  # indices of damaged records

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.records))

    def after_power_cut(self, written_back: Callable[[int], int]) -> "Log":
        """What is left; `written_back(count)` of the last `count` records made it in time."""
        if self.before is not None:
            return Log(list(self.before), len(self.before))
        kept = self.synced + written_back(len(self.records) - self.synced)
        return Log(self.records[:kept], kept, None, {i for i in self.rotten if i < kept})


class Disk:
    """What survives the crash of one host, and what does not. `chance` decides about the cached."""

    def __init__(self, chance: random.Random, genesis: Block, epoch_rounds: int) -> None:
        self._chance = chance
        self.log = Log()
        self._files: dict[str, bytes] = {}  # as whoever reads them now sees them
        self._durable: dict[str, bytes | None] = {}  # of those only cached: what a cut leaves
        self.archive = Archive(genesis, epoch_rounds)
        self.full = False
        self.lies_about: frozenset[str] = (
            frozenset()
        )  # which of "log", "guard", "kept" are not synced
        self.cut_in: int | None = None  # so many writes from now, one is torn by a power cut
        self._copy: tuple[list[bytes], dict[str, bytes]] = ([], {})  # that somebody took
        self.torn: list[str] = []  # what was being written when power failed

    # Files that are replaced as a whole

    @property
    def file_count(self) -> int:
        return len(self._files)

    def read(self, name: str) -> bytes | None:
        return self._files.get(name)

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._files if name.startswith(prefix))

    def put(self, name: str, payload: bytes, synced: bool = True) -> None:
        """Replace the file, atomically. Raises StorageFailed."""
        if self._interrupted(name) and self._chance.random() < 0.5:
            raise PowerCut  # before the rename; else after it
        if synced and not self._lies(name):
            self._durable.pop(name, None)
        else:
            self._durable.setdefault(name, self._files.get(name))
        self._files[name] = payload
        self._end_if_cut()

    def delete(self, name: str) -> None:
        self._files.pop(name, None)
        self._durable.pop(name, None)

    # The log

    def append(self, record: bytes, synced: bool = True) -> None:
        """Raises StorageFailed."""
        if self._interrupted("log"):
            raise PowerCut  # half a record: whoever loads the log cuts it off
        self.log.records.append(record)
        if synced and not self._lies("log"):
            self.sync_log()

    def sync_log(self) -> None:
        self.log.synced, self.log.before = len(self.log.records), None

    def rewrite(self, records: list[bytes]) -> None:
        """Replace the log, atomically. Raises StorageFailed."""
        if self._interrupted("log") and self._chance.random() < 0.5:
            raise PowerCut
        before = self.log.records[: self.log.synced] if self._lies("log") else None
        self.log = Log(list(records), 0 if before is not None else len(records), before)
        self._end_if_cut()

    # What befalls it

    def power_cut(self) -> None:
        """Forget what was cached only, as far as chance had not written it back."""
        self.cut_in = None
        self.log = self.log.after_power_cut(lambda count: self._chance.randint(0, count))
        for name, durable in sorted(self._durable.items()):
            if self._chance.random() < 0.5:
                self._files.pop(name, None)
                if durable is not None:
                    self._files[name] = durable
        self._durable.clear()

    def rot(self) -> None:
        """Damage a file or a record of the log."""
        if self._files and self._chance.random() < 0.5:
            self._files[self._chance.choice(self.names(""))] = ROTTEN
        elif self.log.records:
            self.log.rotten.add(self._chance.randrange(len(self.log.records)))

    @property
    def is_damaged(self) -> bool:
        return bool(self.log.rotten) or ROTTEN in self._files.values()

    def mend(self) -> None:
        """What an operator does who was told of damage: moves away what cannot be read."""
        if self.log.rotten:
            self.log = Log()
        for name in [name for name, payload in self._files.items() if payload == ROTTEN]:
            if name != GUARD:  # its owner reads a damaged one as such
                self.delete(name)

    def wipe(self) -> None:
        """All that the agreement keeps is gone; the published chain lies elsewhere."""
        self.log = Log()
        self._files.clear()
        self._durable.clear()

    def remember(self) -> None:
        """Somebody takes a copy of all that the agreement keeps."""
        self._copy = (list(self.log.records), dict(self._files))

    def roll_back(self) -> None:
        """And puts it back: as a virtual machine's snapshot does, or a backup."""
        records, files = self._copy
        self.log = Log(list(records), len(records))
        self._files, self._durable = dict(files), {}

    def _lies(self, name: str) -> bool:
        return bool(self.lies_about) and name.split("/")[0] in self.lies_about

    def _interrupted(self, name: str) -> bool:
        """Whether power fails in the middle of this write. Raises StorageFailed when full."""
        if self.full:
            raise StorageFailed("no space left on device")
        if self.cut_in is None:
            return False
        self.cut_in -= 1
        if self.cut_in > 0:
            return False
        self.torn.append(name)
        return True

    def _end_if_cut(self) -> None:
        if self.cut_in == 0:
            raise PowerCut


class Journal:
    """The signer's seam over a disk; see daa_node/adapters/disk_journal.py for the real one."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def load(self) -> list[bytes]:
        """Cuts a damaged last record. Raises StorageFailed for one with a whole one behind it."""
        log = self._disk.log
        while log.rotten and max(log.rotten) == len(log.records) - 1:
            log.rotten.remove(len(log.records) - 1)
            log.records.pop()
            log.synced = min(log.synced, len(log.records))
        if log.rotten:
            raise StorageFailed(f"record {min(log.rotten)} is damaged, and a whole one follows")
        return list(log.records)

    async def append(self, record: bytes) -> None:
        self._disk.append(record)

    async def rewrite(self, records: list[bytes]) -> None:
        self._disk.rewrite(records)

    async def read_guard(self) -> bytes | None:
        return self._disk.read(GUARD)

    async def write_guard(self, payload: bytes) -> None:
        self._disk.put(GUARD, payload)


class Records:
    """The small records of the blob store seam, as far as Kept uses them."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def put_record(self, kind: str, name: str, payload: bytes, durable: bool = True) -> None:
        self._disk.put(f"kept/{kind}/{name}", payload, durable)

    async def get_record(self, kind: str, name: str) -> bytes | None:
        return self._disk.read(f"kept/{kind}/{name}")

    async def record_names(self, kind: str) -> list[str]:
        prefix = f"kept/{kind}/"
        return [name.removeprefix(prefix) for name in self._disk.names(prefix)]

    async def delete_record(self, kind: str, name: str) -> None:
        self._disk.delete(f"kept/{kind}/{name}")
