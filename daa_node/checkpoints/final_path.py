"""Where each final block stands, and where each epoch's proofs end: searched on the disk by halves.

A block says its own epoch and view, and the path goes up by these: so whoever has a block finds its
place in the part that begins below it, and no id of what is long past stays in memory.
"""

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Container, Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from daa_consensus.bft.messages import Block, EmptyPayload
from daa_dag.checkpoint import ZERO_ID
from daa_dag.ids import BlockId
from daa_node.checkpoints.rows import PART_ROWS, KeptRows, Rows
from daa_node.seams import BlobStore

Slot = tuple[int, int]  # epoch and view

_PLACE = Struct(">QQ32s?")  # its slot, its id, and whether it has a finalization of its own here
_END = Struct(">Q32s")  # view and block; no block: nothing has proved the epoch by itself
ENDS_RECENT = 64  # epochs whose proofs may still come


class Furthest(NamedTuple):
    """The last block of an epoch that has a finalization of its own here, and its view."""

    view: int
    block_id: BlockId


class Descent:
    """Blocks as they are met on a way down, in few bytes each: it may be a whole chain's."""

    def __init__(self, blocks: Iterable[Block] = (), certified: Container[bytes] = ()) -> None:
        """`certified` tells whose own finalization is here."""
        self._rows = bytearray()
        self._certified = certified
        for block in blocks:
            self.add(block)

    def add(self, block: Block) -> None:
        """The next one, below those before."""
        # Nothing but empty blocks is ever left beside the path, above the end of an epoch.
        is_settled = not isinstance(block.payload, EmptyPayload)
        is_certified = block.id in self._certified
        self._rows += _PLACE.pack(block.epoch, block.view, block.id, is_certified)
        self._rows.append(is_settled)

    def upwards(self) -> Iterator[tuple[bytes, bool]]:
        """Rows of the path, oldest first, each with whether no proof of an epoch's end moves it."""
        size = _PLACE.size + 1
        for at in range(len(self._rows) - size, -1, -size):
            yield bytes(self._rows[at : at + size - 1]), bool(self._rows[at + size - 1])


class FinalPath:
    """Final blocks, oldest first; what is long past is read: that raises StorageFailed."""

    def __init__(self, work: BlobStore) -> None:
        self._rows = Rows(work, "path", _PLACE.size)
        self._firsts: list[Slot] = []  # of the parts that are closed
        self._settled = 0  # rows at the beginning that no block of the next epoch replaces
        # Epochs below this one have kept one certificate each, whatever their rows say.
        self.light_below = 0

    @property
    def newest(self) -> BlockId | None:
        return self._recent(len(self._rows) - 1)[1] if len(self._rows) else None

    def __contains__(self, block: Block) -> bool:
        """Whether it is one of the newest, which are not closed."""
        return self._place_in(self._rows.rest, block) is not None

    def lead_on(self, below: Block | None, above: Descent) -> None:
        """`above` stand on `below`; what stood there only carried an epoch's proof.

        None: they are the whole path. `below` is one of the newest.
        """
        place = -1
        if below is not None:
            found = self._place_in(self._rows.rest, below)
            assert found is not None
            place = self._rows.closed + found
        self._rows.cut(place + 1)
        self._settled = min(self._settled, len(self._rows))
        for row, is_settled in above.upwards():
            self._rows.append(row)
            if is_settled:
                self._settled = len(self._rows)

    def certify(self, block: Block) -> None:
        """Its own finalization has come; of one that is not among the newest nobody needs it."""
        place = self._place_in(self._rows.rest, block)
        if place is not None:
            row = _PLACE.pack(block.epoch, block.view, block.id, True)
            self._rows.replace(self._rows.closed + place, row)

    async def place_of(self, block: Block) -> int | None:
        """None if it is not on the path."""
        part = bisect_right(self._firsts, (block.epoch, block.view)) - 1
        place = self._place_in(self._rows.rest, block)
        if place is not None:
            return self._rows.closed + place
        found = None if part < 0 else self._place_in(await self._rows.part(part), block)
        return None if found is None else part * PART_ROWS + found

    async def ids(self) -> AsyncIterator[BlockId]:
        """All of them as they are now."""
        for place in range(len(self._rows)):
            yield (await self._at(place))[1]

    async def of_epoch(self, epoch: int) -> list[tuple[BlockId, bool]]:
        """Its blocks, oldest first, each with whether it has a finalization of its own.

        In memory while they are looked at: an epoch is as long as its genesis says.
        """
        found = []
        for at in range(await self._place_from((epoch, 0)), len(self._rows)):
            (of, _), block_id, is_certified = await self._at(at)
            if of > epoch:
                break
            found.append((block_id, is_certified))
        return found

    async def above(self, block: Block, count_max: int) -> list[BlockId] | None:
        """At most so many right above this one, oldest first; None if it is not on the path."""
        place = await self.place_of(block)
        if place is None:
            return None
        end = min(len(self._rows), place + 1 + count_max)
        return [(await self._at(at))[1] for at in range(place + 1, end)]

    async def is_certified(self, block: Block) -> bool:
        """Whether it is on the path, and has a finalization of its own here.

        Of epochs below `light_below` it says no: their ends alone have one (see EpochEnds).
        """
        place = None if block.epoch < self.light_below else await self.place_of(block)
        return place is not None and (await self._at(place))[2]

    async def lowest_certified_above(self, block: Block) -> BlockId | None:
        """The lowest block above this one, which is on the path, that has one."""
        place = await self.place_of(block)
        assert place is not None, "it is on the path"
        for at in range(place + 1, len(self._rows)):
            _, found, is_certified = await self._at(at)
            if is_certified:
                return found
        return None

    async def close(self) -> None:
        """Keep on the disk what is long past."""
        before = len(self._firsts)
        # the last of them stays: what replaces those above stands on it
        await self._rows.close(self._settled - 1)
        for part in range(before, self._rows.closed // PART_ROWS):
            self._firsts.append(_slot_of(await self._rows.row(part * PART_ROWS)))

    def kept(self) -> KeptRows:
        return self._rows.kept()

    async def recall(self, kept: KeptRows) -> bool:
        """As a summary says; False if a part is not what it was."""
        firsts = await self._rows.recall(kept)
        self._firsts = [_slot_of(row) for row in firsts or ()]
        self._settled = 0  # what is in memory may be cut until more is known
        return firsts is not None

    async def _place_from(self, slot: Slot) -> int:
        """Of the first row from this slot on."""
        recent = _row_from(self._rows.rest, slot)
        if recent:
            return self._rows.closed + recent
        part = bisect_left(self._firsts, slot) - 1  # the last that begins below it
        if part < 0:
            return 0
        return part * PART_ROWS + _row_from(await self._rows.part(part), slot)

    def _place_in(self, rows: bytes | bytearray, block: Block) -> int | None:
        slot = (block.epoch, block.view)
        low = _row_from(rows, slot)
        at = low * _PLACE.size
        there = at < len(rows) and _PLACE.unpack_from(rows, at)[:3] == (*slot, block.id)
        return low if there else None

    async def _at(self, place: int) -> tuple[Slot, BlockId, bool]:
        return _read(await self._rows.row(place))

    def _recent(self, place: int) -> tuple[Slot, BlockId, bool]:
        return _read(self._rows.recent(place))


class EpochEnds:
    """The furthest proof of each epoch; of one that is over, its end."""

    def __init__(self, work: BlobStore) -> None:
        self._rows = Rows(work, "ends", _END.size)

    def __len__(self) -> int:
        return len(self._rows)

    async def get(self, epoch: int) -> Furthest | None:
        """Raises StorageFailed."""
        if epoch >= len(self._rows):
            return None
        view, block_id = _END.unpack(await self._rows.row(epoch))
        return None if block_id == ZERO_ID else Furthest(view, BlockId(block_id))

    def note(self, epoch: int, view: int, block_id: BlockId) -> None:
        """One more proof. One of an epoch that is long past tells nothing new."""
        while len(self._rows) <= epoch:
            self._rows.append(_END.pack(0, ZERO_ID))
        if epoch < self._rows.closed:
            return
        known, before = _END.unpack(self._rows.recent(epoch))
        if before == ZERO_ID or view > known:
            self._rows.replace(epoch, _END.pack(view, block_id))

    async def close(self) -> None:
        """Keep on the disk what is long past. Raises StorageFailed."""
        await self._rows.close(len(self._rows) - ENDS_RECENT)

    def kept(self) -> KeptRows:
        return self._rows.kept()

    async def recall(self, kept: KeptRows) -> bool:
        """As a summary says; False if a part is not what it was."""
        return await self._rows.recall(kept) is not None


def _row_from(rows: bytes | bytearray, slot: Slot) -> int:
    """The first of these rows from this slot on; as many as there are if all are below it."""
    places = range(len(rows) // _PLACE.size)
    return bisect_left(places, slot, key=lambda place: _slot_of(rows, place * _PLACE.size))


def _slot_of(rows: bytes | bytearray, at: int = 0) -> Slot:
    epoch, view, _, _ = _PLACE.unpack_from(rows, at)
    return epoch, view


def _read(row: bytes) -> tuple[Slot, BlockId, bool]:
    epoch, view, block_id, is_certified = _PLACE.unpack(row)
    return (epoch, view), BlockId(block_id), is_certified
