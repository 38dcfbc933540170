"""Pages of checkpoints as they leave us: each made once, however many ask for it, and kept a while.

Whoever is behind asks page after page, and so do others from the same places. A page that ends
below the newest final block stays what it is; one that reaches it does until the next is final.
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing

from daa_consensus.bft.messages import (
    Block,
    EmptyPayload,
    ResultPayload,
    encode_block,
    encode_certificate,
)
from daa_consensus.votes import Certificate
from daa_dag import canonical
from daa_dag.ids import BlockId
from daa_dag.sizes import NOTHING, blob, fields, items
from daa_node.checkpoints import epochs
from daa_node.checkpoints.chain import ChainStore, final_block_of
from daa_node.checkpoints.long_epochs import bytes_of
from daa_node.checkpoints.pages import (
    PAGE_BLOCKS_MAX,
    PART_BLOCKS_MAX,
    REQUEST,
    Part,
    asked_blocks,
    page_value,
    part_value,
)
from daa_node.checkpoints.publish import Page, Proved
from daa_node.checkpoints.shown_proofs import shown_exec, shown_final
from daa_node.errors import StorageFailed
from daa_node.network.requests import Answer, Requests
from daa_node.prompt_lock import PromptLock
from daa_node.seams import PeerId
from daa_node.wire.limits import KIB, MIB

BLOCK_READ_COST_BYTES = 8 * KIB  # 0.27 ms to read, decode and encode one; see network/shares.py
PAGES_BYTES_MAX = 16 * MIB  # 250 pages of four validators, ten of a hundred


class Pages:
    """The pages of one chain, encoded."""

    def __init__(self, chain: ChainStore) -> None:
        self._chain = chain
        # By what is asked: the answer, and the tip with which it is out of date.
        self._made: OrderedDict[bytes, tuple[bytes, BlockId | None]] = OrderedDict()
        self._bytes = 0
        self._making = PromptLock()

    def serve(self, requests: Requests) -> None:
        """Answer who asks from now on."""
        requests.register(REQUEST, self._answer, of_history=True)
        requests.register(epochs.REQUEST, self._answer_epochs, of_history=True)

    async def _answer(self, _peer_id: PeerId, body: bytes) -> Answer:
        before = self._chain.blocks_read
        page = await self.answer(body)
        return Answer(page, (self._chain.blocks_read - before) * BLOCK_READ_COST_BYTES)

    async def _answer_epochs(self, _peer_id: PeerId, body: bytes) -> Answer:
        before = self._chain.blocks_read
        shown = await self.epochs_after(body)
        return Answer(shown, (self._chain.blocks_read - before) * BLOCK_READ_COST_BYTES)

    async def epochs_after(self, body: bytes) -> bytes:
        """The wire form of the epochs right above a block, or of a part of a long one.

        Raises PeerFault and StorageFailed.
        """
        block_id, upper_id = asked_blocks(body)
        if upper_id is not None:
            async with self._making:
                return canonical.encode(
                    part_value(await bare_part_below(self._chain, block_id, upper_id))
                )
        asked = epochs.REQUEST.encode() + block_id
        async with self._making:
            tip_id = self._chain.final_tip[0].id
            encoded, of_tip = self._made.get(asked, (b"", None))
            if not encoded or of_tip not in (None, tip_id):
                shown = await _epochs_after(self._chain, block_id)
                encoded = epochs.encode_epochs(shown)
                self._keep(asked, encoded, tip_id, len(shown) < epochs.EPOCHS_MAX)
            else:
                self._made.move_to_end(asked)
            return encoded

    async def answer(self, body: bytes) -> bytes:
        """What is asked for. Raises PeerFault and StorageFailed."""
        block_id, upper_id = asked_blocks(body)
        if upper_id is None:
            return await self.after(block_id)
        async with self._making:
            return canonical.encode(part_value(await part_below(self._chain, block_id, upper_id)))

    async def after(self, block_id: BlockId) -> bytes:
        """The wire form of what follows the block here. Raises StorageFailed."""
        async with self._making:
            tip_id = self._chain.final_tip[0].id
            encoded, of_tip = self._made.get(block_id, (b"", None))
            if not encoded or of_tip not in (None, tip_id):
                page = await page_after(self._chain, block_id)
                encoded = canonical.encode(page_value(page))
                if page is not None:
                    self._keep(block_id, encoded, tip_id, page.blocks[-1].id == tip_id)
            else:
                self._made.move_to_end(block_id)
            return encoded

    def _keep(self, asked: bytes, encoded: bytes, tip_id: BlockId, is_newest: bool) -> None:
        before, _ = self._made.pop(asked, (b"", None))
        self._made[asked] = (encoded, tip_id if is_newest else None)
        self._bytes += len(encoded) - len(before)
        while self._bytes > PAGES_BYTES_MAX:
            _, (oldest, _) = self._made.popitem(last=False)
            self._bytes -= len(oldest)


async def page_after(chain: ChainStore, block_id: BlockId) -> Page | None:
    """The top of what follows `block_id` here; None if it is our newest, or not on our chain.

    None, too, if a vertex is not here, or of a light epoch (see thinning) if it needs more than a
    page up to its end, which alone proves it.

    Reads `block_id`, what the page shows, and the block above it.
    """
    path = await chain.path_up(block_id, PAGE_BLOCKS_MAX + 1)
    if not path:
        return None
    if path[0].epoch < chain.path.light_below:
        page = await _epoch_after(chain, block_id)
        if page is not None:
            return page
    certificate = await _end_of_page(chain, block_id, path)
    if certificate is None:
        return None
    blocks = await _shown(chain, final_block_of(certificate), block_id, path)
    if blocks[0].parent_id != block_id and len(blocks) < PART_BLOCKS_MAX:
        return None  # of a long epoch that came by its end alone
    page = Page(tuple(blocks), certificate, await _vertices_of(chain, blocks))
    return page if _has_vertices(page) else None


async def _epochs_after(chain: ChainStore, block_id: BlockId) -> list[Page]:
    """Those above the block that are over, as many as fill an answer; or the top of one."""
    found, size_bytes = list[Page](), 0
    while len(found) < epochs.EPOCHS_MAX and size_bytes <= epochs.FILLED_BYTES:
        page = await _epoch_above(chain, block_id)
        closing = None if page is None else epochs.closing_of(page)
        if page is None or closing is None or (found and not epochs.follows(page, block_id)):
            break
        found.append(page)
        size_bytes += bytes_of(page)
        if not epochs.follows(page, block_id):
            break
        block_id = closing.id
    return found


async def _epoch_after(chain: ChainStore, block_id: BlockId) -> Page | None:
    """What is left of the epoch above a block, if it is not longer than a page."""
    page = await _epoch_above(chain, block_id)
    if page is None or epochs.is_long(page) or not epochs.follows(page, block_id):
        return None
    return page


async def _epoch_above(chain: ChainStore, block_id: BlockId) -> Page | None:
    """What is left of the epoch above a final block, up to its end, without executions.

    Or the top of it, as much as an answer holds. None if the epoch is open here, has no proof of
    its own, or a vertex of what is shown is not here: the headers may be final before.
    """
    above = await chain.path_up(block_id, 1)
    ended = await chain.furthest.get(above[0].epoch) if above else None
    if ended is None:
        return None
    certificate = await _final(chain, ended.block_id)
    part = await _bare_part(chain, ended.block_id, block_id, len(encode_certificate(certificate)))
    if part is None or not part.blocks:
        return None
    page = Page(part.blocks, certificate, part.vertices)
    closing = epochs.closing_of(page)
    return None if closing is None or not await _is_over(chain, closing) else page


async def bare_part_below(chain: ChainStore, block_id: BlockId, upper_id: BlockId) -> Part | None:
    """What stands above the one block and below the other, without executions, as much as fits.

    None if nothing does, or a vertex is not here.
    """
    upper = await chain.block(upper_id)
    if upper is None or upper.view == 0 or upper.parent_id == block_id:
        return None
    return await _bare_part(chain, upper.parent_id, block_id)


async def _bare_part(
    chain: ChainStore, top_id: BlockId, block_id: BlockId, beside_bytes: int = 0
) -> Part | None:
    """As much as an answer is filled with, or as few rounds as a page has if these are more."""
    blocks, vertices, decisions = list[Block](), list[Proved](), 0
    size_bytes = beside_bytes + items(PART_BLOCKS_MAX, 0) * 4  # lists, and what is around them
    while top_id != block_id and len(blocks) < PART_BLOCKS_MAX:
        block = await chain.block(top_id)
        if block is None:
            raise StorageFailed(f"block {top_id.hex()}, which is final, is missing")
        if block.view == 0:
            break
        vertex, is_decision = None, not isinstance(block.payload, EmptyPayload)
        size_bytes += blob(len(encode_block(block)))
        if isinstance(block.payload, ResultPayload):
            vertex = await chain.vertex(block.payload.vertex_id)
            if vertex is None:
                return None
            size_bytes += fields(blob(len(vertex.encode())), NOTHING)
        if size_bytes > epochs.FILLED_BYTES and decisions + is_decision > PAGE_BLOCKS_MAX:
            break
        decisions += is_decision
        vertices += [] if vertex is None else [(vertex, None)]
        blocks.append(block)
        top_id = block.parent_id
    return Part(tuple(blocks[::-1]), tuple(vertices[::-1]))


def _has_vertices(page: Page) -> bool:
    results = sum(isinstance(block.payload, ResultPayload) for block in page.blocks)
    return len(page.vertices) == results


async def _is_over(chain: ChainStore, closing: Block) -> bool:
    """Whether this block ends its epoch, and the next one has begun here."""
    above = await chain.path_up(closing.id, 1)
    return bool(above) and above is not None and above[0].epoch > closing.epoch


async def part_below(chain: ChainStore, block_id: BlockId, upper_id: BlockId) -> Part | None:
    """What stands above the one block and below the other, as much as fits; None if nothing."""
    upper = await chain.block(upper_id)
    if upper is None or upper.view == 0 or upper.parent_id == block_id:
        return None
    blocks = await _shown(chain, upper.parent_id, block_id, ())
    return Part(tuple(blocks), await _vertices_of(chain, blocks))


async def _shown(
    chain: ChainStore, top_id: BlockId, block_id: BlockId, path: Sequence[Block]
) -> list[Block]:
    """From the top block down to right above the other one, or as far as fits; oldest first."""
    at_hand = {block.id: block for block in path}
    shown: list[Block] = []
    decisions = 0
    while top_id != block_id and len(shown) < PART_BLOCKS_MAX:
        block = at_hand.get(top_id) or await chain.block(top_id)
        if block is None:
            raise StorageFailed(f"block {top_id.hex()}, which is final, is missing")
        decisions += not isinstance(block.payload, EmptyPayload)
        if decisions > PAGE_BLOCKS_MAX or block.view == 0:
            break
        shown.append(block)
        top_id = block.parent_id
    return shown[::-1]


async def _end_of_page(
    chain: ChainStore, block_id: BlockId, path: list[Block]
) -> Certificate | None:
    """What finalizes the page's newest block, which may lie above the `path`.

    With the block that ends the epoch, if that is near and proved here, the page ends: what follows
    may be another committee's, which nobody knows before that block is final.
    """
    epoch = path[0].epoch
    ended = await chain.furthest.get(epoch)
    within = [block for block in path if block.epoch == epoch]
    if ended is not None and len(within) < len(path) and ended.view >= within[-1].view:
        return await _final(chain, ended.block_id)
    certificate = await _certified(chain, path)
    if certificate is not None or epoch < chain.path.light_below:
        return certificate  # of a light epoch no page ends below its end, which is too far
    base = await chain.block(block_id)
    assert base is not None, "it is on the path"
    lowest_id = await chain.path.lowest_certified_above(base)
    if lowest_id is None:
        return None
    lowest = await _final(chain, lowest_id)
    if ended is None or lowest.statement.domain.epoch == epoch:
        return lowest
    async with aclosing(chain.path_down(lowest_id)) as path_down:
        async for block in path_down:
            if block.epoch == epoch:
                # Else the end became final to us by a later epoch of the same committee.
                return await _final(chain, ended.block_id) if ended.view >= block.view else lowest
    raise AssertionError("the path leads down to the block that was asked about")


async def _certified(chain: ChainStore, path: list[Block]) -> Certificate | None:
    """Of the longest page that fits, else of the shortest one.

    The certificates kept are those of published headers: not every block has one. The lowest is of
    the committee that whoever asks knows, for we followed that committee to it; one of another
    committee they could not judge.
    """
    ends = [count for count, block in enumerate(path, 1) if await _is_certified(chain, block)]
    if not ends:
        return None
    lowest = await _final(chain, path[ends[0] - 1].id)
    for further in (end for end in reversed(ends[1:]) if end <= PAGE_BLOCKS_MAX):
        certificate = await _final(chain, path[further - 1].id)
        if _same_committee(certificate, lowest):
            return certificate
    return lowest


async def _is_certified(chain: ChainStore, block: Block) -> bool:
    if block.epoch < chain.path.light_below:  # the disk knows what has been let go
        return await chain.final_certificate(block.id) is not None
    return block.id in chain.certified or await chain.path.is_certified(block)


async def _final(chain: ChainStore, block_id: BlockId) -> Certificate:
    certificate = await shown_final(chain, block_id)
    if certificate is None:
        raise StorageFailed(f"the certificate of block {block_id.hex()} is missing")
    return certificate


def _same_committee(one: Certificate, other: Certificate) -> bool:
    roots = [c.statement.domain.validator_set_root for c in (one, other)]
    return roots[0] == roots[1]


async def _vertices_of(chain: ChainStore, blocks: list[Block]) -> tuple[Proved, ...]:
    """Where not all executions are here, none is shown: an epoch's end proves all of it."""
    found: list[Proved] = []
    for block in blocks:
        if isinstance(block.payload, ResultPayload):
            vertex = await chain.vertex(block.payload.vertex_id)
            if vertex is not None:
                found.append((vertex, await shown_exec(chain, vertex.vertex_id)))
    if all(proof is not None for _, proof in found):
        return tuple(found)
    return tuple((vertex, None) for vertex, _ in found)
