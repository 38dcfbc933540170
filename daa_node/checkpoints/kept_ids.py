"""The ids of a chain's vertices by height, as packing has left them, for commands.

A daemon that starts believes work/history where it is of the files that lie there (see
recollection), and so does who asks for a little of a long chain: nobody reads what is long past for
it. Nothing is written here, and a daemon may run meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from daa_dag.ids import DIGEST_BYTES, VertexId, digest_of
from daa_node.checkpoints.files import ChainFiles, Listing
from daa_node.checkpoints.heights import HEIGHTS
from daa_node.checkpoints.layout import CERTIFICATES, PROOFS, VERTICES, final_name
from daa_node.checkpoints.plain_files import Unreadable, read_plain
from daa_node.checkpoints.recollection import packed_beside, vertices_named
from daa_node.checkpoints.rows import HISTORY, KeptRows, part_name
from daa_node.checkpoints.summary import (
    PACK_NAMES,
    SUMMARY,
    Summary,
    decode_names,
    decode_summary,
)

RECORD_BYTES_MAX = 2**26  # the most voters there can be have 10 MB of keys; a part is much smaller
TRIES_MAX = 3  # a daemon may pack while it is read, once in dozens of rounds


@dataclass(frozen=True, slots=True)
class KeptIds:
    """`beside`: files of their own, those that came later among them."""

    summary: Summary
    ids: list[VertexId]
    beside: Listing


def kept_ids(files: ChainFiles) -> KeptIds | None:
    """None if there are none, or they are damaged, or not of what lies here."""
    history = files.directory.parent / "work" / HISTORY
    try:
        for _ in range(TRIES_MAX):
            summary = decode_summary(read_plain(history / SUMMARY, RECORD_BYTES_MAX))
            packs = decode_names(read_plain(history / PACK_NAMES, RECORD_BYTES_MAX))
            beside = files.listing(PROOFS)
            if summary is None or packs is None:
                return None
            ids = list(_ids(history, summary.heights))
            there = {head.name for head in (*beside.shelf.heads, *beside.shelf.superseded)}
            if packs <= there and _is_of(files, beside, summary, ids):
                return KeptIds(summary, ids, beside)
    except Unreadable:
        pass
    return None


def _ids(history: Path, kept: KeptRows) -> Iterator[VertexId]:
    """Raises Unreadable for a part that is not what it was."""
    for number, digest in enumerate(kept.parts):
        part = read_plain(history / part_name(HEIGHTS, number), RECORD_BYTES_MAX)
        if digest_of(part) != digest:
            raise Unreadable("is damaged")
        yield from _cut(part)
    yield from _cut(kept.rest)


def _cut(rows: bytes) -> Iterator[VertexId]:
    for at in range(0, len(rows), DIGEST_BYTES):
        yield VertexId(rows[at : at + DIGEST_BYTES])


def _is_of(files: ChainFiles, beside: Listing, summary: Summary, ids: list[VertexId]) -> bool:
    """As a start judges it (see recollection.recall). Raises Unreadable."""
    if not files.has(f"{CERTIFICATES}/{final_name(summary.tip)}"):
        return False
    names = {kind: beside.names(kind) for kind in PROOFS}
    loose = {kind: [name.partition("/")[2] for name in names[kind]] for kind in PROOFS}
    named = vertices_named((*loose[VERTICES], *loose[CERTIFICATES]))
    known = named.intersection(ids)
    return all(
        files.packed_count(kind, names[kind]) == count
        for kind, count in packed_beside(summary, len(ids), loose, known).items()
    )
