"""An epoch of more rounds than an answer holds: its end comes first, and the rest downwards.

    asker's tip [ part ][ part ] ... [ top: blocks, vertices, the end's certificate ]

The certificate is checked before a part is asked for, and each part hangs on the one above by its
hash, each vertex on its result: so all that is held is final, whoever brought it, and nothing of it
is asked for again. Parts come from whoever is asked meanwhile; one that is late is a part too many.
The model's state is judged from below, so the whole epoch is held until then: up to a limit, beyond
which it comes in pages, each with its certificates, from who has them.
"""

from collections import deque

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import Block, ResultPayload, encode_block
from daa_dag.checkpoint import vertex_bytes_max
from daa_dag.ids import BlockId
from daa_node.checkpoints import epochs
from daa_node.checkpoints.pages import (
    Ask,
    Part,
    check_below,
    check_final,
    check_full,
    check_linked,
    decode_part,
)
from daa_node.checkpoints.publish import Page
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.validators import Validators
from daa_node.wire.limits import MIB

# A thousand rounds, the longest epoch that a genesis allows, of 64 kB: some seventy who contribute
# (see full_epoch_bytes). In memory it takes some three times as much, while a newcomer is on its
# way. Beyond that there are more bytes to fetch and to keep, and nothing else is lost.
HELD_BYTES_MAX = 64 * MIB


def full_epoch_bytes(validators: int, contributors: int, epoch_rounds: int) -> int:
    """What an epoch comes to where every place of each round is filled, and nothing is asked.

    Requests and evidence come on top, and blocks that decide nothing, of 0.2 kB each.
    """
    limits = Limits(validators, contributors)
    cargo = limits.evidence_total_bytes_max + limits.operations_total_bytes_max
    vertex = vertex_bytes_max(contributors, max(contributors, validators))
    return epoch_rounds * (limits.block_bytes_max - cargo + limits.result_block_bytes_max + vertex)


def bytes_of(part: Part | Page) -> int:
    """Of its headers and vertices, as they count in HELD_BYTES_MAX."""
    blocks = sum(len(encode_block(block)) for block in part.blocks)
    return blocks + sum(len(vertex.encode()) for vertex, _ in part.vertices)


class LongEpoch:
    """One, as far as it has come."""

    def __init__(self, top: Page, tip: Block) -> None:
        """`top` ends its epoch, and its newest block is final. Raises PeerFault."""
        check_linked(top.blocks)  # what somebody made up below the end would be held, and asked for
        self._top, self._tip = top, tip
        self._parts: deque[Part] = deque()
        self._bytes = 0
        self._lowest = top.blocks[0]
        self._take(Part(top.blocks, top.vertices))

    @property
    def lowest(self) -> Block:
        return self._lowest

    @property
    def is_whole(self) -> bool:
        return self._lowest.parent_id == self._tip.id

    @property
    def is_too_long(self) -> bool:
        """Then nothing of it is held, and nobody is asked for parts of it again."""
        return self._bytes > HELD_BYTES_MAX

    def take(self, part: Part) -> None:
        """What stands right below the lowest block. Raises PeerFault."""
        check_below(part, self._lowest, self._tip)
        self._take(part)

    def _take(self, part: Part) -> None:
        if part.blocks[0].parent_id != self._tip.id:
            check_full(part.blocks)
            if part.blocks[0].parent_view <= self._tip.view:
                # held, it would be blamed on whoever is asked next
                raise PeerFault("bad_page", "its blocks lead down past where we stand")
        results = [block.payload for block in part.blocks]
        named = [(r.vertex_id, None) for r in results if isinstance(r, ResultPayload)]
        if named != [(vertex.vertex_id, proof) for vertex, proof in part.vertices]:
            raise PeerFault("bad_page", "they are not the vertices of the results, and no more")
        self._bytes += bytes_of(part)
        self._lowest = part.blocks[0]
        self._parts.appendleft(part)
        if self.is_too_long:
            self._parts.clear()

    def page(self) -> Page:
        """All of it."""
        blocks = tuple(block for part in self._parts for block in part.blocks)
        vertices = tuple(pair for part in self._parts for pair in part.vertices)
        return Page(blocks, self._top.certificate, vertices)


class LongEpochs:
    """The one that is on its way, for all who are asked at the same time, and after who went."""

    def __init__(self) -> None:
        self._coming: tuple[BlockId, BlockId, LongEpoch] | None = None  # its tip and its end
        self._too_long: BlockId | None = None  # the end of one that all of is asked for in pages

    def stand_on(self, tip: Block) -> None:
        """Let go of what leads to another block: whoever goes on in pages wants it no more."""
        if self._coming is not None and self._coming[0] != tip.id:
            self._coming = None

    async def shown(self, ask: Ask, tip: Block, validators: Validators) -> list[Page]:
        """Epochs above `tip` at whoever answers, each whole; of those nothing is verified.

        But of a long one, which comes alone. Raises PeerFault, and what `ask` raises.
        """
        self.stand_on(tip)
        limits = validators.limits
        found = epochs.decode_epochs(await ask(tip.id), limits)
        if not found or not found[0].blocks or epochs.follows(found[0], tip.id):
            return found
        end_id, coming = self._of(found[0], tip, validators)
        while not self._is_whole(end_id, coming):
            lowest = coming.lowest
            part = decode_part(
                await ask(tip.id + lowest.id), limits, epochs.answer_bytes_max(limits)
            )
            if coming.lowest != lowest:
                continue  # somebody else was faster
            if part is None:
                raise Unavailable("it has no more of that epoch")
            coming.take(part)
        if self._coming is not None and self._coming[2] is coming:
            self._coming = None
        return [coming.page()]

    def _is_whole(self, end_id: BlockId, coming: LongEpoch) -> bool:
        """Raises Unavailable for what is not held, were it the last part that is too much."""
        if coming.is_too_long or end_id == self._too_long:
            self._too_long, self._coming = end_id, None
            raise Unavailable(f"more than {HELD_BYTES_MAX} bytes of an epoch come in pages")
        return coming.is_whole

    def _of(self, top: Page, tip: Block, validators: Validators) -> tuple[BlockId, LongEpoch]:
        """Its end, and as much of it as has come. Raises PeerFault."""
        check_final(top, validators)
        end = epochs.closing_of(top)
        # Of no later epoch: of one without an end of its own we could show nothing to the next.
        height = (tip.height // validators.epoch_rounds + 1) * validators.epoch_rounds
        if end is None or end.height != height:
            raise PeerFault("bad_page", f"it shows no end of the epoch, at height {height}")
        if self._coming is None or self._coming[:2] != (tip.id, end.id):
            self._coming = (tip.id, end.id, LongEpoch(top, tip))
        return end.id, self._coming[2]
