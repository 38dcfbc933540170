"""Pages of checkpoints: what members show each other of the chain, and what an asker makes of one.

A page follows the asker's newest final block: the header blocks after it, the certificate that
makes the last of them final, and each vertex among their results with its execution certificate.
Nothing of it is trusted. The state follows from deltas; its roots must be exact.

    asker's tip [ part ][ part ][ top: blocks, certificate ]      any number of empty blocks

A page with more blocks than an answer holds comes in parts, the top first. Its certificate is
checked before the next one is asked for, and each part hangs on the one above by its hash: so all
that is taken in is final, and there is an end to it. Who serves it chooses where it ends, so it has
a few rounds at most: all those of a long absence, each part as late as may be, would take for ever.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
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
from daa_dag.checkpoint import Vertex, decode_vertex, result_root, vertex_bytes_max
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES, BlockId
from daa_dag.sizes import blob, fields, items
from daa_node.checkpoints.publish import Page, Proved, step_of, vertex_on
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators

REQUEST = "checkpoints"  # the request's name
Ask = Callable[[bytes], Awaitable[bytes]]  # a request's body to its answer
# Three or four rounds; sets, results and aborts of one page, in however many parts it comes. A
# chain is published round by round, or page by page, with a certificate each: so no page is longer.
PAGE_BLOCKS_MAX = 8
PART_BLOCKS_MAX = 256  # of one answer, empty ones among them: 32 kB of those


@dataclass(frozen=True, slots=True)
class Part:
    """What stands right below the lowest block of a page that is not whole: oldest first."""

    blocks: tuple[Block, ...]
    vertices: tuple[Proved, ...]


def page_bytes_max(limits: Limits) -> int:
    """The largest answer that an honest node makes."""
    certificate, empty = limits.certificate_bytes_max, limits.empty_block_bytes_max
    # Convicted are members and trainers, who all may contribute.
    vertex = vertex_bytes_max(limits.contributors, max(limits.contributors, limits.validators))
    # Between two sets lies a closing: half are sets, half are results with all that proves them.
    pairs = PAGE_BLOCKS_MAX // 2
    closings = blob(limits.result_block_bytes_max) + fields(blob(vertex), certificate)
    decisions = pairs * (blob(limits.block_bytes_max) + closings)
    # `[blocks, certificate, vertices]`: the two lists have room for their lengths
    return fields(items(PART_BLOCKS_MAX, blob(empty)), certificate, items(pairs, 0), decisions)


def page_value(page: Page | None) -> canonical.Value:
    """The wire form: `[blocks, certificate, [[vertex, certificate or None], ...]]`, or None."""
    if page is None:
        return None
    blocks, vertices = _part_value(page)
    return [blocks, certificate_value(page.certificate), vertices]


def part_value(part: Part | None) -> canonical.Value:
    """The wire form: `[blocks, [[vertex, certificate or None], ...]]`, or None."""
    return None if part is None else _part_value(part)


def _part_value(part: Page | Part) -> list[canonical.Value]:
    return [
        [encode_block(block) for block in part.blocks],
        [
            [vertex.encode(), None if proof is None else certificate_value(proof)]
            for vertex, proof in part.vertices
        ],
    ]


def decode_page(payload: bytes, limits: Limits, bytes_max: int | None = None) -> Page | None:
    """The page in a peer's answer, nothing in it verified. Raises PeerFault("malformed").

    `bytes_max`: where it is not an answer, but what several have told.
    """
    try:
        value = canonical.decode(payload, bytes_max or page_bytes_max(limits))
        return None if value is None else page_from_value(value, limits)
    except (DagError, BadMessage, TypeError, ValueError) as fault:
        raise PeerFault("malformed", f"page: {fault}") from None


def page_from_value(value: Any, limits: Limits) -> Page:
    """Nothing in it verified. Raises BadMessage, DagError, TypeError and ValueError."""
    match value:
        case [list() as blocks, certificate, list() as vertices]:
            part = _part_from(blocks, vertices, limits)
            final = certificate_from_value(certificate, limits)
            return Page(part.blocks, final, part.vertices)
        case _:
            raise BadMessage("a page is blocks, a certificate and vertices")


def decode_part(payload: bytes, limits: Limits, bytes_max: int | None = None) -> Part | None:
    """The part in a peer's answer, nothing in it verified. Raises PeerFault("malformed").

    `bytes_max`: of an answer that may have more than a page.
    """
    try:
        match canonical.decode(payload, bytes_max or page_bytes_max(limits)):
            case None:
                return None
            case [list() as blocks, list() as vertices]:
                return _part_from(blocks, vertices, limits)
            case _:
                raise BadMessage("a part of a page is blocks and vertices")
    except (DagError, BadMessage, TypeError, ValueError) as fault:
        raise PeerFault("malformed", f"part of a page: {fault}") from None


def _part_from(blocks: list[Any], vertices: list[Any], limits: Limits) -> Part:
    return Part(
        tuple(decode_block(_bytes(block), limits) for block in blocks),
        tuple(
            (
                decode_vertex(_bytes(vertex)),
                None if proof is None else certificate_from_value(proof, limits),
            )
            for vertex, proof in vertices
        ),
    )


def asked_blocks(value: Any) -> tuple[BlockId, BlockId | None]:
    """The block that a page is to follow, and the one that a part of it is to stand below.

    Raises PeerFault("malformed").
    """
    if not isinstance(value, bytes) or len(value) not in (DIGEST_BYTES, 2 * DIGEST_BYTES):
        raise PeerFault("malformed", "a page is asked for by a block id, a part of one by two")
    upper = value[DIGEST_BYTES:]
    return BlockId(value[:DIGEST_BYTES]), BlockId(upper) if upper else None


async def whole_page(ask: Ask, tip: Block, validators: Validators) -> Page | None:
    """What follows `tip` at whoever answers, part after part; None if nothing does.

    Of a page in one answer nothing is verified. Raises PeerFault, and what `ask` raises.
    """
    limits = validators.limits
    page = decode_page(await ask(tip.id), limits)
    if page is None or not page.blocks or page.blocks[0].parent_id == tip.id:
        return page
    check_final(page, validators)
    answered = page.blocks
    while page.blocks[0].parent_id != tip.id:
        lowest = page.blocks[0]
        check_full(answered)
        part = decode_part(await ask(tip.id + lowest.id), limits)
        if part is None:
            raise PeerFault("bad_page", "its blocks do not lead down to where we stand")
        check_below(part, lowest, tip)
        answered = part.blocks
        blocks, vertices = (*part.blocks, *page.blocks), (*part.vertices, *page.vertices)
        page = Page(blocks, page.certificate, vertices)
        if decisions(blocks) > PAGE_BLOCKS_MAX:
            raise PeerFault("bad_page", "it has more rounds than a page holds")
    return page


def check_full(blocks: Sequence[Block]) -> None:
    """Return when an answer holds no more: one by one, blocks would take for ever.

    Raises PeerFault.
    """
    if len(blocks) < PART_BLOCKS_MAX and decisions(blocks) < PAGE_BLOCKS_MAX:
        raise PeerFault("bad_page", f"an answer of {len(blocks)} blocks, and there is more")


def check_below(part: Part, lowest: Block, tip: Block) -> None:
    """Return when the part hangs on the lowest block that is final, and may lead to `tip`.

    Raises PeerFault.
    """
    if not part.blocks or lowest.parent_view <= tip.view:
        raise PeerFault("bad_page", "its blocks do not lead down to where we stand")
    check_linked((*part.blocks, lowest))


def check_linked(blocks: Sequence[Block]) -> None:
    """Return when each hangs on the one before: where the last is final, so are all.

    Raises PeerFault.
    """
    for below, above in pairwise(blocks):
        if above.parent_id != below.id:
            raise PeerFault("bad_page", "a block does not stand on the one before")


def decisions(blocks: Sequence[Block]) -> int:
    """How many of them are not empty."""
    return sum(not isinstance(block.payload, EmptyPayload) for block in blocks)


def check_headers(page: Page, tip: Block, validators: Validators) -> None:
    """Return when the page's blocks follow from `tip` and are final. Raises PeerFault."""
    below = tip
    for block in page.blocks:
        if (block.parent_id, block.parent_view) != (below.id, below.view):
            raise PeerFault("bad_page", "a block does not stand on the one before")
        below = block
    check_final(page, validators)


def check_final(page: Page, validators: Validators) -> None:
    """Return when its certificate makes its newest block final. Raises PeerFault."""
    final = page.certificate.statement
    if final.kind is not Kind.FINALIZE or not page.blocks or final.value != page.blocks[-1].id:
        raise PeerFault("bad_page", "the certificate does not finalize the newest block")
    validators.verify(page.certificate)


def check_page(page: Page, tip: Block, parent: Vertex, validators: Validators) -> None:
    """Return when all of the page follows from `tip` and `parent`, the newest vertex there.

    `validators` is led on over the page's blocks. Raises PeerFault.
    """
    check_headers(page, tip, validators)
    roots_of = validators.copy()
    roots_of.follow(page.blocks)
    _check_bare(page, validators.epoch_rounds)
    set_blocks = {b.payload.round: b for b in page.blocks if isinstance(b.payload, SetPayload)}
    results = [b.payload for b in page.blocks if isinstance(b.payload, ResultPayload)]
    if len(results) != len(page.vertices):
        raise PeerFault("bad_page", f"{len(results)} results and {len(page.vertices)} vertices")
    for result, (vertex, proof) in zip(results, page.vertices, strict=True):
        set_block = set_blocks.get(result.round)
        if set_block is None:
            raise PeerFault("bad_page", f"round {result.round} lacks its set")
        if proof is not None:
            _check_execution(result, proof)
        if result.vertex_id != vertex.vertex_id or vertex != vertex_on(
            parent, set_block, step_of(vertex), roots_of
        ):
            raise PeerFault("bad_page", "the vertex does not follow from its set")
        roots = (vertex.model_root, vertex.outer_state_root, vertex.delta_root)
        if result_root(*roots) != result.result_root:
            raise PeerFault("bad_page", "the result is of other roots")
        if proof is not None:
            roots_of.verify(proof)
        parent = vertex
    validators.follow(page.blocks)


def _check_execution(result: ResultPayload, proof: Certificate) -> None:
    said = proof.statement
    if said.kind is not Kind.EXEC or said.height != result.round:
        raise PeerFault("bad_page", f"round {result.round} lacks its execution")
    if said.value != [result.vertex_id, result.result_root]:
        raise PeerFault("bad_page", "the execution certificate is of another vertex")


def _check_bare(page: Page, epoch_rounds: int) -> None:
    """Executions may be left out up to an epoch's end, by all or none: the end proves them.

    Nobody honest votes for a result without its execution certificate, so a final result is as good
    as that. Of an epoch that is open a verifier wants them.
    """
    missing = sum(proof is None for _, proof in page.vertices)
    if not missing:
        return
    closed = [b for b in page.blocks if isinstance(b.payload, ResultPayload | AbortPayload)]
    if missing < len(page.vertices) or not closed or closed[-1].height % epoch_rounds:
        raise PeerFault("bad_page", "executions are missing, and no epoch's end is there for them")
    if any(isinstance(b.payload, SetPayload) and b.height > closed[-1].height for b in page.blocks):
        raise PeerFault("bad_page", "executions are missing below a round that is open")


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise BadMessage("a page holds encoded things")
    return value
