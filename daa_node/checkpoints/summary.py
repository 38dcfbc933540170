"""What a start would have to read the whole chain for, as of the moment before files were packed.

Kept in the work store: it is a cache, and whoever has none, or a damaged one, or one of another
chain, reads everything. All that is newer lies in files of its own, for packing writes this first;
so packs hold what it names and nothing else, or one of both was put there from elsewhere.
"""

import re
from dataclasses import dataclass

from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES, BlockId, VertexId, digest_of
from daa_node.checkpoints.digests import Digests
from daa_node.checkpoints.layout import CERTIFICATES, FINAL_SUFFIX, VERTICES
from daa_node.seams import BlobStore

HISTORY = "history"  # the kind, of the work store, and the name
SUMMARY = "summary"

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Summary:
    """Ids lie one behind the other, 32 bytes each."""

    tip: BlockId  # the newest final block
    turns_tip: BlockId  # the newest that was looked at for `turns`
    heights: bytes  # the vertex of each height
    certified: bytes  # blocks with a finalization of their own
    furthest: tuple[tuple[int, int, bytes], ...]  # of each epoch: its number, view and block
    turns: bytes | None  # final blocks that membership follows from; None if nobody has asked


def encode_summary(summary: Summary) -> bytes:
    furthest = b"".join(
        epoch.to_bytes(8) + view.to_bytes(8) + block_id
        for epoch, view, block_id in summary.furthest
    )
    turns = [] if summary.turns is None else [summary.turns]
    body = canonical.encode(
        [[summary.tip, summary.turns_tip], summary.heights, summary.certified, furthest, *turns],
    )
    return digest_of(body) + body


def decode_summary(payload: bytes) -> Summary | None:
    """None if these bytes are none, or damaged."""
    check, body = payload[:DIGEST_BYTES], payload[DIGEST_BYTES:]
    if check != digest_of(body):
        return None
    try:
        match canonical.decode(body, len(body)):
            case [
                [bytes(tip), bytes(turns_tip)],
                bytes(heights),
                bytes(certified),
                bytes(furthest),
                *turns,
            ]:
                pass
            case _:
                return None
    except DagError:
        return None
    size = 16 + DIGEST_BYTES
    ends = tuple(
        (
            int.from_bytes(furthest[at : at + 8]),
            int.from_bytes(furthest[at + 8 : at + 16]),
            furthest[at + 16 : at + size],
        )
        for at in range(0, len(furthest), size)
    )
    turned = turns[0] if turns and isinstance(turns[0], bytes) else None
    return Summary(BlockId(tip), BlockId(turns_tip), heights, certified, ends, turned)


async def recalled(store: BlobStore, work: BlobStore, first_id: VertexId) -> Summary | None:
    """The one in the work store, if it is of the chain in `store`, which begins with this vertex.

    Raises StorageFailed.
    """
    payload = await work.get_record(HISTORY, SUMMARY)
    summary = None if payload is None else decode_summary(payload)
    if summary is None or summary.heights[:DIGEST_BYTES] != first_id:
        return None
    tells_all = await _holds(store, VERTICES, "", summary.heights) and await _holds(
        store, CERTIFICATES, FINAL_SUFFIX, summary.certified
    )
    return summary if tells_all else None


async def _holds(store: BlobStore, kind: str, suffix: str, joined: bytes) -> bool:
    """Whether all of these are in the store, and of their kind only newer files besides."""
    told, found = Digests(), 0
    told.take(joined)
    newer = {*await store.record_names(kind, packed=False)}
    for name in await store.record_names(kind):
        digits = name.removesuffix(suffix)
        if not _DIGEST.fullmatch(digits):
            continue
        if bytes.fromhex(digits) in told:
            found += 1
        elif name not in newer:
            return False
    return found == len(told)
