"""What a start would have to read the whole chain for, as of the moment before files were packed.

Kept in the work store: it is a cache, and whoever has none, or a damaged one, or one of another
chain or format, reads everything. All that is newer lies in files of its own, for packing writes
this first; so packs hold as many vertices and certificates as it counts, or one of both was put
there from elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES, BlockId, Digest, digest_of
from daa_node.checkpoints.rows import KeptRows

SUMMARY = "summary"  # its name, in rows.HISTORY
PACK_NAMES = "packs"  # beside it: the packs that hold what it counts
# The first one had no number, and all ids in itself; the second no light epochs; the third did not
# count blocks.
FORMAT = 4


@dataclass(frozen=True, slots=True)
class Membership:
    """Who voted when, up to a final block: in the words of whoever follows it."""

    tip: BlockId
    record: bytes


@dataclass(frozen=True, slots=True)
class Summary:
    """What is long past is in parts beside it (see rows)."""

    tip: BlockId  # the newest final block
    heights: KeptRows
    path: KeptRows
    ends: KeptRows
    certificates: int  # how many there were
    blocks: int  # the same
    loose: tuple[BlockId, ...]  # blocks whose finalizations lay in files of their own
    loose_blocks: tuple[BlockId, ...]  # that lay in files of their own
    membership: Membership | None  # None if nobody has asked
    light_below: int = 0  # epochs below have one certificate each (see thinning)


def encode_summary(summary: Summary) -> bytes:
    lists = (summary.heights, summary.path, summary.ends)
    rows: list[canonical.Value] = [[list(kept.parts), kept.rest] for kept in lists]
    who = summary.membership
    body = canonical.encode(
        [
            FORMAT,
            summary.tip,
            rows,
            [summary.certificates, summary.blocks],
            [list(summary.loose), list(summary.loose_blocks)],
            None if who is None else [who.tip, who.record],
            summary.light_below,
        ]
    )
    return digest_of(body) + body


def decode_summary(payload: bytes) -> Summary | None:
    """None if these bytes are none, damaged, or of another format."""
    check, body = payload[:DIGEST_BYTES], payload[DIGEST_BYTES:]
    if check != digest_of(body):
        return None
    try:
        match canonical.decode(body, len(body)):
            case [
                int(number),
                bytes(tip),
                [*lists],
                [int(certificates), int(blocks)],
                [[*loose], [*loose_blocks]],
                who,
                int(light),
            ] if number == FORMAT and _are_ids([tip, *loose, *loose_blocks]):
                kept = [_rows_from(rows) for rows in lists]
            case _:
                return None
    except DagError:
        return None
    match kept:
        case [KeptRows() as heights, KeptRows() as path, KeptRows() as ends]:
            pass
        case _:
            return None
    return Summary(
        BlockId(tip),
        heights,
        path,
        ends,
        certificates,
        blocks,
        tuple(map(BlockId, loose)),
        tuple(map(BlockId, loose_blocks)),
        _membership_from(who),
        light,
    )


def encode_names(names: Sequence[str]) -> bytes:
    """Names of packs, with a check."""
    body = canonical.encode(list(names))
    return digest_of(body) + body


def decode_names(payload: bytes) -> set[str] | None:
    """None if these bytes are none, or damaged."""
    check, body = payload[:DIGEST_BYTES], payload[DIGEST_BYTES:]
    if check != digest_of(body):
        return None
    try:
        names = canonical.decode(body, len(body))
    except DagError:
        return None
    match names:
        case [*names] if all(isinstance(name, str) for name in names):
            return set(map(str, names))
    return None


def _are_ids(values: Sequence[Any]) -> bool:
    return all(isinstance(value, bytes) and len(value) == DIGEST_BYTES for value in values)


def _rows_from(value: Any) -> KeptRows | None:
    match value:
        case [[*parts], bytes(rest)] if _are_ids(parts):
            return KeptRows(tuple(map(Digest, parts)), rest)
        case _:
            return None


def _membership_from(value: Any) -> Membership | None:
    match value:
        case [bytes(tip), bytes(record)] if _are_ids([tip]):
            return Membership(BlockId(tip), record)
        case _:
            return None
