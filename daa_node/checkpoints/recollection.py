"""What a chain store takes up from a summary, and what it leaves for the next start (see summary).

`recall` believes nothing that the chain on the disk contradicts; `is_pack_due` writes the summary
last thing before files are packed, `keep_pack_names` the names of packs once they have changed.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from daa_consensus.bft.messages import Block
from daa_consensus.votes import Certificate
from daa_dag.ids import BlockId, VertexId
from daa_node.checkpoints.digests import Digests
from daa_node.checkpoints.final_path import EpochEnds, FinalPath
from daa_node.checkpoints.heights import Heights
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    DELTAS,
    FINAL_SUFFIX,
    PROOFS,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.rows import HISTORY
from daa_node.checkpoints.summary import (
    PACK_NAMES,
    SUMMARY,
    Summary,
    decode_names,
    decode_summary,
    encode_names,
    encode_summary,
)
from daa_node.checkpoints.turns import Turns
from daa_node.packs.format import PACKS, key_of
from daa_node.seams import BlobStore


class Chain(Protocol):
    """As much of a ChainStore as is kept, and taken up again."""

    store: BlobStore
    work: BlobStore
    heights: Heights
    path: FinalPath
    furthest: EpochEnds
    certified: Digests
    turns: Turns
    lacks_blocks: bool

    @property
    def final_tip(self) -> tuple[Block, Certificate | None]: ...

    async def look_up(self) -> None: ...


async def recall(chain: Chain, first_id: VertexId) -> BlockId | None:
    """Take up what the summary has; the newest final block that it knows.

    None: there is none, or it is not of what lies here, and what was taken up counts for nothing.
    Raises StorageFailed.
    """
    payload = await chain.work.get_record(HISTORY, SUMMARY)
    summary = None if payload is None else decode_summary(payload)
    if summary is None:
        return None
    whole = (
        await chain.heights.rows.recall(summary.heights) is not None
        and await chain.path.recall(summary.path)
        and await chain.furthest.recall(summary.ends)
        and await chain.heights.at(0) == first_id
        and await chain.store.has_record(CERTIFICATES, final_name(summary.tip))
        and await _counts(chain, summary)
        and await _knows_packs(chain)
    )
    chain.path.light_below = summary.light_below
    chain.turns.recall(summary.membership)
    chain.lacks_blocks = whole and await _lacks_blocks(chain, summary)
    return summary.tip if whole else None


async def loose_files(chain: Chain, kinds: Sequence[str]) -> int:
    """How many files count when it is asked whether packing is due. Raises StorageFailed."""
    return sum(map(len, (await _loose(chain, kinds)).values()))


async def is_pack_due(chain: Chain, kinds: Sequence[str], files_min: int) -> bool:
    """Whether so many files of these kinds lie there; then the summary is written.

    Raises StorageFailed.
    """
    loose = await _loose(chain, kinds)
    if sum(map(len, loose.values())) < files_min or not chain.heights.is_whole:
        return False
    finals = {name for name in loose[CERTIFICATES] if name.endswith(FINAL_SUFFIX)}
    ids = [BlockId(bytes.fromhex(name.removesuffix(FINAL_SUFFIX))) for name in finals]
    if not all(block_id in chain.certified for block_id in ids):
        return False  # a write has just ended, and whoever wrote has not said so yet
    for name in loose[VERTICES]:
        if not await chain.heights.has(VertexId(bytes.fromhex(name))):
            return False
    await chain.turns.look(chain.final_tip[0].id)
    await chain.look_up()
    for closing in (chain.heights, chain.path, chain.furthest):
        await closing.close()
    packed = {
        kind: await chain.store.packed_count(kind, loose[kind]) for kind in (CERTIFICATES, BLOCKS)
    }
    summary = Summary(
        tip=chain.final_tip[0].id,
        heights=chain.heights.rows.kept(),
        path=chain.path.kept(),
        ends=chain.furthest.kept(),
        certificates=packed[CERTIFICATES] + len(loose[CERTIFICATES]),
        blocks=packed[BLOCKS] + len(loose[BLOCKS]),
        loose=tuple(ids),
        loose_blocks=tuple(BlockId(bytes.fromhex(name)) for name in loose[BLOCKS]),
        membership=chain.turns.membership,
        light_below=chain.path.light_below,
    )
    await chain.work.put_record(HISTORY, SUMMARY, encode_summary(summary))
    return True


async def _loose(chain: Chain, kinds: Sequence[str]) -> dict[str, list[str]]:
    """Names of files of their own, by kind; not those that nothing of a chain has."""
    counted, found = {*PROOFS, *kinds} - {DELTAS}, dict[str, list[str]]()
    for kind in counted:
        names = await chain.store.record_names(kind, packed=False)
        found[kind] = [name for name in names if key_of(kind, name) is not None]
    return found


async def _counts(chain: Chain, summary: Summary) -> bool:
    """Whether packs, with files that it knows, hold as much as it counts."""
    loose = {kind: await chain.store.record_names(kind, packed=False) for kind in PROOFS}
    named = vertices_named((*loose[VERTICES], *loose[CERTIFICATES]))
    known = {vertex_id for vertex_id in named if await chain.heights.has(vertex_id)}
    for kind, count in packed_beside(summary, len(chain.heights), loose, known).items():
        if await chain.store.packed_count(kind, loose[kind]) != count:
            return False
    return True


async def _lacks_blocks(chain: Chain, summary: Summary) -> bool:
    """Whether packs hold fewer than it counts: nothing that a start reads would tell."""
    loose = await chain.store.record_names(BLOCKS, packed=False)
    told = len({block_id.hex() for block_id in summary.loose_blocks}.intersection(loose))
    return await chain.store.packed_count(BLOCKS, loose) < summary.blocks - told


def vertices_named(names: Iterable[str]) -> set[VertexId]:
    """Whose vertices or executions these names, of files of their own, are."""
    found = set[VertexId]()
    for name in names:
        digits, _, kind = name.partition(".")
        if kind != FINAL_SUFFIX[1:] and key_of(VERTICES, digits) is not None:
            found.add(VertexId(bytes.fromhex(digits)))
    return found


def packed_beside(
    summary: Summary,
    vertices: int,
    loose: Mapping[str, Collection[str]],
    known: Collection[VertexId],
) -> dict[str, int]:
    """How many of a kind packs hold beside these files, if the summary is of both.

    It lists so many vertices; `known` are those of them that files are named after.
    """
    told = {final_name(block_id) for block_id in summary.loose}
    told |= {name for vertex_id in known for name in (vertex_id.hex(), exec_name(vertex_id))}
    counts = {VERTICES: vertices, CERTIFICATES: summary.certificates}
    return {kind: count - len(told.intersection(loose[kind])) for kind, count in counts.items()}


async def keep_pack_names(chain: Chain) -> None:
    """Once some have come or gone. Raises StorageFailed; then a start may read the whole chain."""
    names = await chain.store.record_names(PACKS, packed=False)
    await chain.work.put_record(HISTORY, PACK_NAMES, encode_names(names))


async def _knows_packs(chain: Chain) -> bool:
    """Whether each pack that was kept is here.

    More may be: the process may have ended before it could name a new one. Where it ended between
    a merge and that, the whole chain is read once.
    """
    payload = await chain.work.get_record(HISTORY, PACK_NAMES)
    names = None if payload is None else decode_names(payload)
    return names is not None and names <= {*await chain.store.record_names(PACKS, packed=False)}


async def certified_in_files(chain: Chain) -> Digests:
    """Of the blocks with finalizations in files of their own those that still have one there."""
    listed = len(chain.certified)  # others are published while the disk is asked
    left, kept = {*await chain.store.record_names(CERTIFICATES, packed=False)}, Digests()
    for place in range(len(chain.certified)):
        if place >= listed or final_name(BlockId(chain.certified[place])) in left:
            kept.add(chain.certified[place])
    return kept
