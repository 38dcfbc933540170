"""A list as long as a chain, of rows of one width: what is long past on the disk, the rest here.

    work/history/<name>.<number>     a part: so many rows, synced before anything names it

A part is written once it is full, and stays as it is. Whoever names it (see summary) has its
digest: a part with another one counts for nothing, and a start without the parts that it needs
makes them anew from the chain.
"""

from collections import OrderedDict
from dataclasses import dataclass

from daa_dag.ids import Digest, digest_of
from daa_node.errors import StorageFailed
from daa_node.seams import BlobStore

HISTORY = "history"  # the kind, of the work store
PART_ROWS = 4096  # 200 kB of the widest; a year at a round a minute is some 550 parts
PARTS_CACHED_MAX = 2  # who serves pages reads on from row to row


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What a summary holds of a list: the digests of its parts, and the rows that fill none yet."""

    parts: tuple[Digest, ...]
    rest: bytes


class Rows:
    """In their order. Reading a part raises StorageFailed if it is lost or damaged."""

    def __init__(self, work: BlobStore, name: str, width_bytes: int) -> None:
        self._work = work
        self._name = name
        self.width_bytes = width_bytes
        self._parts: list[Digest] = []
        self.rest = bytearray()  # the newest rows, joined
        self._cached: OrderedDict[int, bytes] = OrderedDict()

    def __len__(self) -> int:
        return self.closed + len(self.rest) // self.width_bytes

    @property
    def closed(self) -> int:
        """How many of the first rows are on the disk, and change no more."""
        return len(self._parts) * PART_ROWS

    def recent(self, place: int) -> bytes:
        """A row that is not closed."""
        at = (place - self.closed) * self.width_bytes
        assert 0 <= at < len(self.rest)
        return bytes(self.rest[at : at + self.width_bytes])

    async def row(self, place: int) -> bytes:
        """Any row."""
        if place >= self.closed:
            return self.recent(place)
        part = await self.part(place // PART_ROWS)
        at = place % PART_ROWS * self.width_bytes
        return part[at : at + self.width_bytes]

    async def part(self, number: int) -> bytes:
        """The rows of a closed part, joined."""
        found = self._cached.pop(number, None)
        if found is None:
            found = await self._read(number)
            if found is None:
                raise StorageFailed(
                    f"work/{HISTORY}/{self._record(number)} is lost or damaged: delete "
                    f"work/{HISTORY} while the daemon rests, and it is made anew from the chain"
                )
        self._cached[number] = found
        if len(self._cached) > PARTS_CACHED_MAX:
            self._cached.popitem(last=False)
        return found

    def append(self, row: bytes) -> None:
        assert len(row) == self.width_bytes
        self.rest += row

    def replace(self, place: int, row: bytes) -> None:
        """Of the rows that are not closed."""
        at = (place - self.closed) * self.width_bytes
        assert 0 <= at < len(self.rest)
        self.rest[at : at + self.width_bytes] = row

    def cut(self, length: int) -> None:
        """Keep the first so many, all that are closed among them."""
        assert length >= self.closed
        del self.rest[(length - self.closed) * self.width_bytes :]

    async def close(self, settled: int) -> None:
        """Put full parts of the first `settled` rows, which change no more, on the disk.

        The newest row stays here. Raises StorageFailed, and then keeps the part here.
        """
        size_bytes = PART_ROWS * self.width_bytes
        while self.closed + PART_ROWS <= min(settled, len(self) - 1):
            number, payload = len(self._parts), bytes(self.rest[:size_bytes])
            await self._work.put_record(HISTORY, self._record(number), payload)
            self._parts.append(digest_of(payload))
            del self.rest[:size_bytes]

    def kept(self) -> KeptRows:
        return KeptRows(tuple(self._parts), bytes(self.rest))

    async def recall(self, kept: KeptRows) -> list[bytes] | None:
        """As a summary says; the first row of each part, None if one of them is not as it was.

        Reads each part once, and keeps none.
        """
        firsts = []
        self._cached.clear()
        self._parts, self.rest = list(kept.parts), bytearray(kept.rest)
        for number in range(len(self._parts)):
            part = await self._read(number)
            if part is None:
                return None
            firsts.append(part[: self.width_bytes])
        return firsts if len(self.rest) % self.width_bytes == 0 and self.rest else None

    async def _read(self, number: int) -> bytes | None:
        part = await self._work.get_record(HISTORY, self._record(number))
        good = part is not None and digest_of(part) == self._parts[number]
        return part if good and len(part or b"") == PART_ROWS * self.width_bytes else None

    def _record(self, number: int) -> str:
        return part_name(self._name, number)


def part_name(of: str, number: int) -> str:
    return f"{of}.{number}"
