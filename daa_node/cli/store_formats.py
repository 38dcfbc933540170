"""Every format of a node's directory that has a number of its own, and which numbers we read.

D/VERSION is the number of the whole, and it is raised with each of these: an older program refuses
the directory in one sentence, before it opens anything in it. The numbers here are for a file that
came alone, with a backup or a copy: one of a newer program is refused before the node starts. It is
not read as damage, so nothing cuts it, sets it aside or writes over it.

What has no number holds text in one form, refused with its line if it is another one (config.yaml,
tags.json, trusted, network), or lines of which a reader passes over what it does not know (event
log, audit, traces), or is made again whenever it does not fit (in work/ and trainer/). Vertices,
blocks and certificates are named by their content: whatever has another form is no part of a chain.
"""

import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from daa_node.adapters import journal_format, key_files, sqlite_schema
from daa_node.adapters.durable_files import storage
from daa_node.agreement import invitations, invite_book, withdrawal
from daa_node.cli.data_directory import DataDirectory
from daa_node.contributors import kept
from daa_node.disputes import shunning
from daa_node.errors import UserError
from daa_node.gateway import volunteers
from daa_node.packs import format as packed
from daa_node.spot_checks import canaries

HEAD_BYTES = 100  # the header of an SQLite file; every other one is shorter
FORMATS_MAX = sqlite_schema.VERSIONS_MAX  # what says more has rotted: its own reader tells that

# Whoever puts back an older copy of what a node signed has it sign something else in its place.
NO_OLDER_COPY = "or make a new node: with an older copy of this file it could vote twice"

VersionOf = Callable[[bytes], int | None]


@dataclass(frozen=True, slots=True)
class StoredFormat:
    """`version_of`: of a file's first HEAD_BYTES; None if they do not tell, as those of a wreck."""

    what: str
    pattern: str  # below D, or below what D has of another network
    newest: int
    version_of: VersionOf
    oldest: int = 1
    instead: str = "or put back the file that this program wrote"


def _journal(magic: bytes) -> VersionOf:
    def version(head: bytes) -> int | None:
        size = len(magic) + 4
        if len(head) < size or not head.startswith(magic):
            return None
        return int.from_bytes(head[len(magic) : size])

    return version


def _word(word: bytes) -> VersionOf:
    """Of a text that begins with the word and its number."""

    def version(head: bytes) -> int | None:
        match head.partition(b"\n")[0].split():
            case [first, number, *_] if first == word and number.isdigit():
                return int(number)
        return None

    return version


def _history(head: bytes) -> int | None:
    """Source: sqlite.org/fileformat.html, "The Database Header"; offsets 60 and 68."""
    if len(head) < HEAD_BYTES or not head.startswith(b"SQLite format 3\0"):
        return None
    (version, _, application) = struct.unpack_from(">III", head, 60)
    # 0: all that was written lies in the file beside it still, which its own reader looks into
    return version or None if application == sqlite_schema.APPLICATION_ID else None


def _record(head: bytes) -> int | None:
    """Of a canonical list: the number that it begins with; 1 for those of before there was one."""
    lists = {0xDC: 3, 0xDD: 5}
    start = 1 if head[:1] and 0x90 <= head[0] <= 0x9F else lists.get(head[0] if head else 0, 0)
    if not start:
        return None
    first = head[start : start + 1]
    if first and first[0] < 0x80:
        return first[0]
    if first == b"\xcc":
        return head[start + 1] if len(head) > start + 1 else None
    return 1


FORMATS = (
    *(
        StoredFormat("a key", f"keys/{name}", key_files.KEY_FORMAT_VERSION, _word(b"daa-key"))
        for name in key_files.NAMES
    ),
    StoredFormat(
        "the list of chains that the keys have signed on",
        f"agreement/{key_files.BEGUN}",
        key_files.BEGUN_VERSION,
        _word(key_files.BEGUN_WORD),
        instead=NO_OLDER_COPY,
    ),
    StoredFormat(
        "the log of what this node signed",
        "agreement/wal",
        journal_format.JOURNAL_VERSION,
        _journal(journal_format.LOG_MAGIC),
        instead=NO_OLDER_COPY,
    ),
    StoredFormat(
        "the guard of what this node signed",
        "agreement/guard",
        journal_format.JOURNAL_VERSION,
        _journal(journal_format.GUARD_MAGIC),
        instead=NO_OLDER_COPY,
    ),
    StoredFormat(
        "a pack of the chain", f"chain/{packed.PACKS}/*", packed.VERSION, packed.version_of
    ),
    StoredFormat(
        "a history",
        "history/rounds.sqlite",
        sqlite_schema.VERSION,
        _history,
        instead="or move it away: another one is begun from the chain",
    ),
    *(
        StoredFormat(what, f"work/{kind}/{name}", version, _record)
        for what, kind, name, version in (
            ("the book of invites", invitations.KIND, invitations.NAME, invite_book.BOOK_VERSION),
            ("the word that it has retired", withdrawal.KIND, withdrawal.NAME, withdrawal.VERSION),
            ("the health of contributors", kept.KIND, kept.NAME, kept.VERSION),
            ("a list of whom this node shuns", shunning.KIND, shunning.NAME, shunning.VERSION),
            ("what devices compute", canaries.KIND, canaries.NAME, canaries.VERSION),
            (
                *("the standing of volunteers", volunteers.STORED, volunteers.STORED),
                volunteers.STORED_VERSION,
            ),
        )
    ),
)


def check_formats(directory: DataDirectory) -> None:
    """Raise UserError for the first file that another release has written, and we do not read.

    Reads the first bytes of each, and changes nothing. Raises StorageFailed for a disk that fails.
    """
    with storage(f"look at the files in {directory.root}"):
        for stored in FORMATS:
            for path in _files(directory, stored.pattern):
                _check(stored, path)


def _check(stored: StoredFormat, path: Path) -> None:
    version = stored.version_of(_head(path))
    if version is None or version > FORMATS_MAX:
        return
    if version > stored.newest:
        raise UserError(
            f"{path} was written by a newer daa-node: it is {stored.what} of format {version}, "
            f"this program reads up to {stored.newest}; update the program, {stored.instead}"
        )
    if version < stored.oldest:
        raise UserError(
            f"{path} is {stored.what} of format {version}, this program reads from "
            f"{stored.oldest} on; run the program that wrote it, {stored.instead}"
        )


def _files(directory: DataDirectory, pattern: str) -> Iterator[Path]:
    for root in (directory.root, *sorted(directory.networks.glob("*"))):
        yield from sorted(root.glob(pattern))


def _head(path: Path) -> bytes:
    try:
        if stat.S_ISREG(path.stat().st_mode):  # at a pipe one would wait
            with path.open("rb") as file:
                return file.read(HEAD_BYTES)
    except (FileNotFoundError, PermissionError):
        pass
    return b""  # its own reader has words for these
