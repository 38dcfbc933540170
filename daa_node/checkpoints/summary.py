"""What a start would have to read the whole chain for, as of the moment before files were packed.

Kept in the work store: it is a cache, and whoever has none, or a damaged one, or one of another
chain, reads everything. All that is newer lies in files of its own, for packing writes this first.
"""

from dataclasses import dataclass

from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES, BlockId, VertexId, digest_of
from daa_node.checkpoints.layout import CERTIFICATES, VERTICES, final_name
from daa_node.seams import BlobStore

HISTORY = "history"  # the kind, of the work store, and the name
SUMMARY = "summary"


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
    newest = summary.heights[-DIGEST_BYTES:].hex()
    is_here = await store.has_record(VERTICES, newest) and await store.has_record(
        CERTIFICATES, final_name(summary.tip)
    )
    return summary if is_here else None
