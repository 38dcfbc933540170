"""Catch up with checkpoints that others certified: ask for a page, trust nothing, replay, publish.

A page follows the asker's newest final block: the header blocks after it, the certificate that
makes the last of them final, and each vertex among their results with its execution certificate.
The state follows from the deltas, which come over the bulk channel; its roots must be exact.
"""

from dataclasses import dataclass
from typing import Any

from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    Limits,
    ResultPayload,
    SetPayload,
    certificate_from_value,
    certificate_value,
    decode_block,
    encode_block,
)
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Certificate, Kind
from daa_dag import canonical
from daa_dag.checkpoint import Vertex, decode_vertex, result_root
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES, BlockId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.publish import vertex_of
from daa_node.errors import PeerFault, StorageFailed
from daa_node.identity.validators import Validators
from daa_node.seams import StateRef, SteppedState

WORD = "checkpoints"  # the request's name
PAGE_BLOCKS_MAX = 8  # three or four rounds; the size of a page is bounded by that of its blocks
# Blocks from one certificate to the next, at the very most: a round's, in a bad hour.
PATH_BLOCKS_MAX = 128


@dataclass(frozen=True, slots=True)
class Page:
    """What follows a block: headers oldest first, their finalization, certified vertices."""

    blocks: tuple[Block, ...]
    certificate: Certificate
    vertices: tuple[tuple[Vertex, Certificate], ...]


def page_bytes_max(limits: Limits) -> int:
    """The largest page: its blocks, and a certificate for each vertex and for the headers."""
    certificates = (PAGE_BLOCKS_MAX + 1) * limits.certificate_bytes_max
    return 1024 + PAGE_BLOCKS_MAX * (limits.block_bytes_max + 65_536) + certificates


async def page_after(chain: ChainStore, block_id: BlockId) -> Page | None:
    """What follows `block_id` here; None if it is our newest, or is not on our chain.

    Reads what the page shows, and the block above it.
    """
    path = await chain.path_up(block_id, PAGE_BLOCKS_MAX + 1)
    if not path:
        return None
    page = await _epoch_end(chain, path, PAGE_BLOCKS_MAX) or await _certified(chain, path)
    if page is not None and page.blocks[-1].epoch == path[0].epoch:
        return page
    if len(path) > PAGE_BLOCKS_MAX:  # there is more, and what ends it lies further up
        path = await chain.path_up(block_id, PATH_BLOCKS_MAX) or path
        page = page or await _certified(chain, path)
    if page is None or page.blocks[-1].epoch != path[0].epoch:
        return await _epoch_end(chain, path, PATH_BLOCKS_MAX) or page
    return page


async def _certified(chain: ChainStore, path: list[Block]) -> Page | None:
    """The longest page that fits, else the shortest one.

    The certificates kept are those of published headers: not every block has one. The lowest is of
    the committee that whoever asks knows, for we followed that committee to it; one of another
    committee they could not judge.
    """
    ends = [count for count, block in enumerate(path, 1) if block.id in chain.certified]
    if not ends:
        return None
    lowest = await _final(chain, path[ends[0] - 1])
    chosen, count = lowest, ends[0]
    for further in (end for end in reversed(ends[1:]) if end <= PAGE_BLOCKS_MAX):
        certificate = await _final(chain, path[further - 1])
        if _same_committee(certificate, lowest):
            chosen, count = certificate, further
            break
    blocks = path[:count]
    return Page(tuple(blocks), chosen, await _vertices_of(chain, blocks))


async def _final(chain: ChainStore, block: Block) -> Certificate:
    certificate = await chain.final_certificate(block.id)
    if certificate is None:
        raise StorageFailed(f"the certificate of block {block.id.hex()} is missing")
    return certificate


def _same_committee(one: Certificate, other: Certificate) -> bool:
    roots = [c.statement.domain.validator_set_root for c in (one, other)]
    return roots[0] == roots[1]


async def _epoch_end(chain: ChainStore, path: list[Block], blocks_max: int) -> Page | None:
    """The page that ends with the epoch of the first block, if that is near and proved here.

    What follows may be another committee's, which nobody knows before that block is final.
    """
    certificate = chain.furthest.get(path[0].epoch)
    if certificate is None:
        return None
    blocks = [block for block in path if block.epoch == path[0].epoch]
    if len(blocks) == len(path) or len(blocks) > blocks_max:
        return None  # the epoch goes on, or another page of it comes first
    if certificate.statement.view < blocks[-1].view:
        return None  # the end became final to us by a later epoch of the same committee
    value = certificate.statement.value
    assert isinstance(value, bytes)  # a finalization names a block
    proving: list[Block] = []
    async for block in chain.path_down(BlockId(value)):
        if block.view <= blocks[-1].view:
            break
        proving.append(block)
    whole = [*blocks, *reversed(proving)]
    return Page(tuple(whole), certificate, await _vertices_of(chain, blocks))


async def _vertices_of(
    chain: ChainStore, blocks: list[Block]
) -> tuple[tuple[Vertex, Certificate], ...]:
    found = []
    for block in blocks:
        if isinstance(block.payload, ResultPayload):
            vertex = await chain.vertex(block.payload.vertex_id)
            certificate = await chain.exec_certificate(block.payload.vertex_id)
            if vertex is not None and certificate is not None:
                found.append((vertex, certificate))
    return tuple(found)


def page_value(page: Page | None) -> canonical.Value:
    """The wire form: `[blocks, certificate, [[vertex, certificate], ...]]`, or None."""
    if page is None:
        return None
    return [
        [encode_block(block) for block in page.blocks],
        certificate_value(page.certificate),
        [[vertex.encode(), certificate_value(proof)] for vertex, proof in page.vertices],
    ]


def decode_page(payload: bytes, limits: Limits) -> Page | None:
    """The page in a peer's answer, nothing in it verified. Raises PeerFault("malformed")."""
    try:
        match canonical.decode(payload, page_bytes_max(limits)):
            case None:
                return None
            case [list() as blocks, certificate, list() as vertices]:
                pass
            case _:
                raise BadMessage("a page is blocks, a certificate and vertices")
        return Page(
            tuple(decode_block(_bytes(block), limits) for block in blocks),
            certificate_from_value(certificate, limits),
            tuple(
                (decode_vertex(_bytes(vertex)), certificate_from_value(proof, limits))
                for vertex, proof in vertices
            ),
        )
    except (DagError, BadMessage, TypeError, ValueError) as fault:
        raise PeerFault("malformed", f"page: {fault}") from None


def asked_block(value: Any) -> BlockId:
    """The block that a request names. Raises PeerFault("malformed")."""
    if not isinstance(value, bytes) or len(value) != DIGEST_BYTES:
        raise PeerFault("malformed", "a page is asked for by a block id")
    return BlockId(value)


def check_headers(page: Page, tip: Block, validators: Validators) -> None:
    """Return when the page's blocks follow from `tip` and are final. Raises PeerFault."""
    below = tip
    for block in page.blocks:
        if (block.parent_id, block.parent_view) != (below.id, below.view):
            raise PeerFault("bad_page", "a block does not stand on the one before")
        below = block
    final = page.certificate.statement
    if final.kind is not Kind.FINALIZE or not page.blocks or final.value != below.id:
        raise PeerFault("bad_page", "the certificate does not finalize the newest block")
    validators.verify(page.certificate)


def check_page(
    page: Page,
    tip: Block,
    parent: Vertex,
    validators: Validators,
) -> list[tuple[Vertex, Certificate]]:
    """The page's vertices in order, if all of it follows from `tip` and `parent`.

    `validators` is led on over the page's blocks. Raises PeerFault.
    """
    check_headers(page, tip, validators)
    roots_of = validators.copy()
    roots_of.follow(page.blocks)
    set_blocks = {b.payload.round: b for b in page.blocks if isinstance(b.payload, SetPayload)}
    results = [b.payload for b in page.blocks if isinstance(b.payload, ResultPayload)]
    if len(results) != len(page.vertices):
        raise PeerFault("bad_page", f"{len(results)} results and {len(page.vertices)} vertices")
    checked = []
    for result, (vertex, proof) in zip(results, page.vertices, strict=True):
        set_block = set_blocks.get(result.round)
        said = proof.statement
        if set_block is None or said.kind is not Kind.EXEC or said.height != result.round:
            raise PeerFault("bad_page", f"round {result.round} lacks its set or its execution")
        if said.value != [vertex.vertex_id, result.result_root]:
            raise PeerFault("bad_page", "the execution certificate is of another vertex")
        if result.vertex_id != vertex.vertex_id or vertex != vertex_of(
            parent,
            set_block,
            _stepped_of(vertex),
            roots_of.domain(set_block.epoch).validator_set_root,
            roots_of.convicted_by(set_block),
        ):
            raise PeerFault("bad_page", "the vertex does not follow from its set")
        roots = (vertex.model_root, vertex.outer_state_root, vertex.delta_root)
        if result_root(*roots) != result.result_root:
            raise PeerFault("bad_page", "the result is of other roots")
        roots_of.verify(proof)
        checked.append((vertex, proof))
        parent = vertex
    validators.follow(page.blocks)
    return checked


def rounds_in(page: Page) -> int:
    """The newest round that the page resolves, by result or abort; 0 if none."""
    resolved = [
        b.payload.round for b in page.blocks if isinstance(b.payload, ResultPayload | AbortPayload)
    ]
    return max(resolved, default=0)


def _stepped_of(vertex: Vertex) -> SteppedState:
    state = StateRef(vertex.model_root, vertex.outer_state_root)
    return SteppedState(state, vertex.delta_root)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise BadMessage("a page holds encoded things")
    return value
