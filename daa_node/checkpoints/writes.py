"""Files that come together or not at all: the only way in which a chain directory changes.

A write is a few groups of files (see layout). Before it starts, a durable note names the files that
it will add; then the files follow, what is referred to before what refers; then the note goes.
After a crash or a failed write the next one finishes the thought first: a group whose last file is
there is kept, what there is of any other is removed. What goes in exchange for it goes last. So the
chain is always one that a verifier accepts, and nothing certified is lost.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot
from daa_node.checkpoints.layout import (
    CERTIFICATES,
    DELTAS,
    MANIFESTS,
    NOTE,
    PUBLISHING,
    Group,
    decode_note,
    encode_note,
    unsettled,
)
from daa_node.checkpoints.loose_proofs import LooseProofs
from daa_node.errors import StorageFailed
from daa_node.prompt_lock import PromptLock
from daa_node.seams import BlobStore

# Files of their own between two packs: each takes a whole block of the disk, and who lands after
# years has a million of them.
LOOSE_MAX = 1024


@dataclass(frozen=True, slots=True)
class Write:
    """One file on its way in: its name `kind/name`, and how to put it there, durably.

    Those of which many come, and that a pack may hold, tell how to put them there without a sync.
    """

    name: str
    put: Callable[[], Awaitable[None]]
    put_loosely: Callable[[], Awaitable[None]] | None = None


class GroupWriter:
    """Writes one set of groups at a time. What is wrong with the disk is StorageFailed."""

    def __init__(self, store: BlobStore, work: BlobStore, loose: LooseProofs | None = None) -> None:
        """`loose` is told of certificates that come as files of their own."""
        self._store = store
        self._loose = loose
        self._work = work
        self._writing = PromptLock()
        self._noted = True  # a note may be there, from this process or one before it

    def record(self, kind: str, name: str, payload: bytes) -> Write:
        """A durable write of a small record."""

        async def put() -> None:
            await self._store.put_record(kind, name, payload)
            self._note(kind, name, payload)

        return Write(f"{kind}/{name}", put)

    async def add(self, groups: Sequence[Sequence[Write]], going: Sequence[str] = ()) -> None:
        """Add the files that are not there yet, group by group, each in the given order.

        Once all are there, delete the files in `going`; a crash leaves none of both undone.
        """
        async with self._writing:
            await self._finish_last_write()
            new = await self._absent(groups)
            if not new and not going:
                return
            note = [Group("add", tuple(w.name for w in group)) for group in new]
            await self._take_note([*note, Group("drop", tuple(going))] if going else note)
            for group in new:
                await self._put(group)
            await self._delete(going)
            await self._discard_note()

    async def drop(self, names: Sequence[str]) -> None:
        """Delete these files; what is interrupted here is finished by the next write or `open`."""
        async with self._writing:
            await self._finish_last_write()
            if not names:
                return
            await self._take_note([Group("drop", tuple(names))])
            await self._delete(names)
            await self._discard_note()

    async def settle(self) -> None:
        """Wait for whoever writes, and finish what was cut off: no file is half gone then."""
        async with self._writing:
            await self._finish_last_write()

    async def put_record_anew(
        self,
        kind: str,
        name: str,
        payload: bytes,
        is_wanted: Callable[[], Awaitable[bool]] | None = None,
    ) -> bool:
        """`put_anew` of a small record."""

        async def put() -> None:
            await self._store.put_record(kind, name, payload, anew=True)
            self._note(kind, name, payload)

        return await self.put_anew(put, is_wanted)

    async def put_anew(
        self,
        put: Callable[[], Awaitable[object]],
        is_wanted: Callable[[], Awaitable[bool]] | None = None,
    ) -> bool:
        """Put a good file in the place of one that is damaged or lost; whether that was done.

        `put` replaces it in one step: whenever the process ends, the one or the other is there.
        `is_wanted`: it was not let go meanwhile.
        """
        async with self._writing:
            await self._finish_last_write()
            if is_wanted is not None and not await is_wanted():
                return False
            await put()
            return True

    async def purge(self, kinds: Sequence[str]) -> None:
        """Rid packs of what was put anew; durable once this returns."""
        async with self._writing:
            await self._finish_last_write()
            await self._store.settle(kinds)

    async def pack(
        self,
        parts: Sequence[Sequence[str]],
        is_due: Callable[[], Awaitable[bool]],
        good: Collection[str] = (),
    ) -> int:
        """Move files of these kinds into packs, one a part, if that is due; how many it moved.

        Nothing is written while it is asked whether it is. Of certificates in files of their own
        those of these names move.
        """
        async with self._writing:
            await self._finish_last_write()
            if not await is_due():
                return 0
            return sum([await self._pack(kinds, good) for kinds in parts])

    def _note(self, kind: str, name: str, payload: bytes) -> None:
        if kind == CERTIFICATES and self._loose is not None:
            self._loose.wrote(name, payload)

    async def _put(self, group: Sequence[Write]) -> None:
        """What is put loosely goes into packs, with one sync for many and not two for each.

        The last file says that all are there for good, so it comes after the packs.
        """
        *first, last = group
        loose, unpacked = set[str](), 0
        for write in first:
            if write.put_loosely is None:
                await write.put()
                continue
            await write.put_loosely()
            loose.add(write.name.partition("/")[0])
            unpacked += 1
            if unpacked == LOOSE_MAX:
                await self._pack(sorted(loose))
                unpacked = 0
        while loose and await self._pack(sorted(loose)):
            pass  # a pack takes a batch
        await last.put()

    async def _pack(self, kinds: Sequence[str], good: Collection[str] = ()) -> int:
        """How many it moved. A pack seals what it gets, so nothing that nobody has looked at."""
        names = frozenset[str]() if self._loose is None else self._loose.names
        but = frozenset(f"{CERTIFICATES}/{name}" for name in names.difference(good))
        return await self._store.pack(kinds, 1, but)

    async def _absent(self, groups: Sequence[Sequence[Write]]) -> list[list[Write]]:
        absent = []
        for group in groups:
            new = [write for write in group if not await self._has(write.name)]
            if new:
                absent.append(new)
        return absent

    async def _has(self, name: str) -> bool:
        kind, _, rest = name.partition("/")
        if kind == DELTAS:
            root = BlobRoot(bytes.fromhex(rest))
            return await self._store.blob_manifest(DELTAS, root) is not None
        return await self._store.has_record(kind, rest)

    async def _take_note(self, groups: list[Group]) -> None:
        self._noted = True
        await self._work.put_record(PUBLISHING, NOTE, encode_note(groups))

    async def _discard_note(self) -> None:
        await self._work.delete_record(PUBLISHING, NOTE)
        self._noted = False

    async def _finish_last_write(self) -> None:
        if not self._noted:
            return
        payload = await self._work.get_record(PUBLISHING, NOTE)
        try:
            groups = [] if payload is None else decode_note(payload)
        except DagError as fault:
            raise StorageFailed(
                f"work/{PUBLISHING}/{NOTE} is damaged: {fault}; move it away, and `daa-node "
                "checkpoint verify` names what the write has left behind"
            ) from fault
        there = {group.names[-1] for group in groups if await self._has(group.names[-1])}
        arriving, leaving = unsettled(groups, there)
        await self._delete([*reversed(arriving), *leaving])  # what refers, then what is referred to
        await self._discard_note()

    async def _delete(self, names: Sequence[str]) -> None:
        """For good: what a power cut brought back, once the note is gone, would stay."""
        kinds = set[str]()
        for name in names:
            kinds |= await self._remove(name)
        if kinds:
            await self._store.settle(sorted(kinds))

    async def _remove(self, name: str) -> set[str]:
        """Nobody finds it any more; in which kinds something has gone."""
        kind, _, rest = name.partition("/")
        if kind == DELTAS:
            await self._store.delete_blob(DELTAS, BlobRoot(bytes.fromhex(rest)))
            return {DELTAS, MANIFESTS}
        await self._store.delete_record(kind, rest)
        if kind == CERTIFICATES and self._loose is not None:
            self._loose.forget([rest])
        return {kind}
