"""A chain's files, read by who trusts nobody: commands, never the daemon.

Every entry is looked at once and nothing is followed: a symlink, a socket or a stray directory is
named as a problem. Contents are read with a limit and judged by the caller.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from blake3 import blake3

from daa_dag.errors import DagError
from daa_node.checkpoints.chain_index import ChainIndex
from daa_node.checkpoints.layout import (
    KINDS,
    NOTE,
    NOTE_BYTES_MAX,
    PUBLISHING,
    Group,
    decode_note,
    is_fitting,
    unsettled,
)
from daa_node.checkpoints.long_listing import LongListing
from daa_node.checkpoints.packed_files import PackedFiles, Shelf
from daa_node.checkpoints.plain_files import (
    GONE,
    Gone,
    Problem,
    Unreadable,
    nature_of,
    plain_pieces,
    read_plain,
    shown,
    unreadable,
)
from daa_node.packs.format import PACKS, RECORD_BYTES_MAX

# A running daemon may add files while we list; a listing settles between two rounds.
LISTINGS_MAX = 50


@dataclass(frozen=True, slots=True)
class Listing:
    """What the directory held at one moment, in files of its own or in packs."""

    sizes: dict[str, int]  # bytes by `kind/name`, of files whose names fit
    strange: tuple[Problem, ...]
    arriving: frozenset[str]  # names of groups that are not whole: there or not, they do not count
    leaving: frozenset[str]  # names of groups on their way out: treated as gone
    # Files that a pack holds as well: packing was cut off before it had deleted them.
    twice: frozenset[str] = frozenset()
    shelf: Shelf = Shelf((), (), 0)

    def __contains__(self, name: object) -> bool:
        return name in self.sizes

    def each(self) -> Iterator[str]:
        """Every name, once."""
        yield from self.sizes

    def names(self, kind: str) -> list[str]:
        """`kind/name` of every file of this kind, sorted."""
        return sorted(name for name in self.sizes if name.startswith(kind + "/"))


class ChainReader(Protocol):
    """Where a chain's files are, on a disk or in memory."""

    def listing(self) -> Listing: ...

    def read(self, name: str, size_bytes_max: int, again: bool = False) -> bytes:
        """The file's bytes. Raises Unreadable, in words for the report.

        `again`: they have been read, and counted, before.
        """
        ...


class ChainFiles:
    """Reads `directory`, a chain/; the publishing note lies in work/ beside it."""

    def __init__(self, directory: Path, on_bytes: Callable[[int], None] = lambda count: None):
        self.directory = directory
        self._on_bytes = on_bytes
        self._packs = PackedFiles(directory / PACKS)
        self._shelf = Shelf((), (), 0)  # as of the last listing

    def listing(self, loose: Collection[str] | None = None) -> Listing:
        """A consistent listing, even while a daemon is writing.

        `loose`: of these kinds alone, and of no pack; of proofs that is little in a long chain.
        """
        before = self._listed(loose)
        for _ in range(LISTINGS_MAX):
            again = self._listed(loose)
            if again == before:
                break
            before = again
        self._shelf = before.shelf
        return before

    def has(self, name: str) -> bool:
        """Whether there is such a file, or a record of that name. Raises Unreadable.

        A running daemon may have packed it since the last listing, or merged packs.
        """
        for _ in range(LISTINGS_MAX):
            with suppress(Gone):
                if self._is_there(self._shelf, name):
                    return True
            if not self._have_packs_changed():
                return False
        raise Gone(GONE)

    def _is_there(self, shelf: Shelf, name: str) -> bool:
        return os.path.lexists(self.directory / name) or self._packs.has(shelf, name)

    def packed_count(self, kind: str, but: Collection[str]) -> int:
        """How many records of the kind packs hold together, but for these `kind/name`.

        As of the last listing. Raises Unreadable.
        """
        return self._packs.count(self._shelf, kind, but)

    def packed_names(self, kind: str) -> Iterator[str]:
        """`kind/name` of each record of the kind in packs, as of the last listing.

        Raises Unreadable.
        """
        for name, _, _ in self._packs.each(self._shelf.heads, kind):
            yield name

    def long_listing(self, index: ChainIndex) -> LongListing:
        """The same of a chain of any length. Raises Unreadable."""
        before = None
        for _ in range(LISTINGS_MAX):
            listing, seen = self._listed_long(index)
            if seen == before:
                break
            before = seen
        self._shelf = listing.shelf
        return listing

    def read(self, name: str, size_bytes_max: int, again: bool = False) -> bytes:
        payload = self._read(name, size_bytes_max)
        self._on_bytes(0 if again else len(payload))
        return payload

    def pieces(self, name: str, size_bytes_max: int) -> Iterator[bytes]:
        """What `read` gives, in order, none of it long. Raises Unreadable."""
        try:
            for piece in plain_pieces(self.directory / name, size_bytes_max):
                self._on_bytes(len(piece))
                yield piece
        except Gone:
            yield self.read(name, size_bytes_max)  # what a pack holds is short

    def pack_problems(self, listing: Listing | LongListing) -> Iterator[Problem]:
        """What is wrong with packs as such, and with files that a pack holds as well."""
        yield from self._packs_judged(listing.shelf)
        for name in sorted(listing.twice):
            try:
                payload = read_plain(self.directory / name, RECORD_BYTES_MAX)
            except Gone:
                continue  # a running daemon has just deleted it
            except Unreadable:
                continue  # named by who wanted to read it
            try:
                agrees = self._packs.agrees(listing.shelf, name, payload)
            except Gone:
                continue  # a running daemon has deleted it, and merged its pack
            if not agrees:
                yield Problem("is not what a pack holds by this name", name)

    def _packs_judged(self, shelf: Shelf) -> Iterator[Problem]:
        """Each once; instead of one that a running daemon has merged, the one that it made."""
        judged: set[str] = set()
        for _ in range(LISTINGS_MAX):
            gone = False
            for head in (*shelf.heads, *shelf.superseded):
                if head.name in judged:
                    continue
                try:
                    yield from self._packs.problems(head, self._on_bytes)
                    judged.add(head.name)
                except Gone:
                    gone = True
            if not gone:
                return
            shelf = self._packs.shelf(self._pack_names(), [])

    def _read(self, name: str, size_bytes_max: int) -> bytes:
        for _ in range(LISTINGS_MAX):
            try:
                return read_plain(self.directory / name, size_bytes_max)
            except Gone:
                pass  # or it never was a file of its own
            try:
                packed = self._packs.read(self._shelf, name, size_bytes_max)
            except Gone:
                packed = None  # a running daemon merged the pack
            if packed is not None:
                return packed
            if not self._have_packs_changed():
                break
        raise Gone(GONE)

    def _have_packs_changed(self) -> bool:
        """Look at them anew, if there are others than there were; whether that told more."""
        names, before = self._pack_names(), self._shelf
        if {*names} == {head.name for head in (*before.heads, *before.superseded)}:
            return False  # what many that are not there are asked for costs no more
        self._shelf = self._packs.shelf(names, [])
        return self._shelf != before

    def _pack_names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.directory / PACKS))
        except OSError:
            return []  # there is none, or a listing has named it

    def _listed(self, loose: Collection[str] | None) -> Listing:
        strange: list[Problem] = []
        groups = self._note(strange)
        packs: list[str] = []
        sizes = dict(self._loose(packs, strange, KINDS if loose is None else loose))
        shelf = self._packs.shelf(sorted(packs), strange)
        packed = self._packs.sizes(shelf, strange) if loose is None else {}
        lasts = {group.names[-1] for group in groups if group.verb == "add" and loose is not None}
        elsewhere = {name for name in lasts if self._is_there(shelf, name)}
        listing = listing_of(packed | sizes, groups, strange, elsewhere)
        return replace(listing, twice=frozenset(packed.keys() & sizes.keys()), shelf=shelf)

    def _listed_long(self, index: ChainIndex) -> tuple[LongListing, object]:
        """With what must be the same once more."""
        strange: list[Problem] = []
        groups = self._note(strange)
        packs: list[str] = []
        seen = blake3()
        index.names.forget_loose()
        for name, size_bytes in self._loose(packs, strange, KINDS):
            seen.update(os.fsencode(f"{name} {size_bytes}\n"))  # a name may be no text
            if is_fitting(name):
                index.names.add_loose(name, size_bytes)
            else:
                strange.append(_misnamed(name))
        shelf = self._packs.shelf(sorted(packs), strange)
        listing = LongListing(self._packs, self._pack_names, shelf, index, tuple(strange))
        listing.settle(groups)
        return listing, (seen.digest(), groups, strange, shelf)

    def _loose(
        self, packs: list[str], strange: list[Problem], kinds: Collection[str]
    ) -> Iterator[tuple[str, int]]:
        """`kind/name` and bytes of each plain file, one at a time; packs by their names."""
        for entry in _entries(self.directory, "", strange):
            if entry.name not in (*KINDS, PACKS) or not entry.is_dir(follow_symlinks=False):
                found = _looked_at(entry, entry.name, strange)
                if found is not None:
                    what = f"{nature_of(found)} does not belong here"
                    strange.append(Problem(what, shown(entry.name)))
                continue
            if entry.name not in (*kinds, PACKS):
                continue
            for item in _entries(Path(entry.path), entry.name, strange):
                name = f"{entry.name}/{item.name}"
                found = _looked_at(item, name, strange)
                if found is None:
                    continue
                if not stat.S_ISREG(found.st_mode):
                    nature = nature_of(found)
                    strange.append(Problem(f"{nature} does not belong here", shown(name)))
                elif entry.name == PACKS:
                    packs.append(item.name)
                else:
                    yield name, found.st_size

    def _note(self, strange: list[Problem]) -> list[Group]:
        path = self.directory.parent / "work" / PUBLISHING / NOTE
        if not os.path.lexists(path):
            return []
        try:
            return groups_of(read_plain(path, NOTE_BYTES_MAX), strange)
        except Gone:
            return []  # a running daemon just deleted it
        except Unreadable as fault:
            strange.append(_damaged_note(fault))
            return []


def listing_of(
    sizes: dict[str, int],
    groups: list[Group],
    strange: list[Problem],
    elsewhere: Collection[str] = (),
) -> Listing:
    """Of plain files by `kind/name`, and the groups of a publishing note.

    `elsewhere`: names that are there though none of these files has them.
    """
    fitting = {}
    for name, size_bytes in sizes.items():
        if is_fitting(name):
            fitting[name] = size_bytes
        else:
            strange.append(_misnamed(name))
    there = {*fitting, *elsewhere} if elsewhere else fitting
    arriving, leaving = unsettled(groups, there)
    for name in leaving:
        fitting.pop(name, None)
    return Listing(fitting, tuple(strange), frozenset(arriving), frozenset(leaving))


def _misnamed(name: str) -> Problem:
    return Problem("no file of a chain has such a name", shown(name))


def groups_of(note: bytes, strange: list[Problem]) -> list[Group]:
    """What a publishing note names; none if it is damaged, which is a problem."""
    try:
        return decode_note(note)
    except DagError as fault:
        strange.append(_damaged_note(fault))
        return []


def _damaged_note(fault: Exception) -> Problem:
    where = f"../work/{PUBLISHING}/{NOTE}"
    return Problem(f"the note of an unfinished write is damaged: {fault}", where)


def _looked_at(entry: os.DirEntry[str], name: str, strange: list[Problem]) -> os.stat_result | None:
    """What it is, followed nowhere; None for what is gone, or is not to be looked at: named."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        pass  # a running daemon just deleted it
    except OSError as fault:  # of a folder, say, that nobody may enter
        strange.append(Problem(str(unreadable(fault)), shown(name)))
    return None


def _entries(directory: Path, name: str, strange: list[Problem]) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except OSError as fault:
        strange.append(Problem(f"cannot be listed: {fault.strerror or fault}", name or "."))
