"""An epoch of more rounds than an answer holds: its end comes first, and the rest downwards.

    asker's tip [ part ][ part ] ... [ top: blocks, vertices, the end's certificate ]

The certificate is checked before a part is asked for, and each part hangs on the one above by its
hash, each vertex on its result: so all that is held is final, whoever brought it, and nothing of it
is asked for again. Parts come from whoever is asked meanwhile; one that is late is a part too many.
The model's state is judged from below, so the whole epoch is held until then: up to a limit, beyond
which it comes in pages, each with its certificates, from who has them.
"""

from collections import deque

from daa_consensus.bft.messages import Block, ResultPayload, encode_block
from daa_dag.ids import BlockId
from daa_node.checkpoints import epochs
from daa_node.checkpoints.pages import Ask, Part, check_below, check_final, check_full, decode_part
from daa_node.checkpoints.publish import Page
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.validators import Validators
from daa_node.wire.limits import MIB

# A thousand rounds, the longest epoch that a genesis allows, of 64 kB: some eighty who contribute.
# In memory it takes some three times as much, while a newcomer is on its way.
HELD_BYTES_MAX = 64 * MIB


class LongEpoch:
    """One, as far as it has come."""

    def __init__(self, top: Page, tip: Block) -> None:
        """`top` is final, and ends its epoch. Raises PeerFault."""
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
        """Then nothing of it is held, and nobody is asked for it again."""
        return self._bytes > HELD_BYTES_MAX

    def take(self, part: Part) -> None:
        """What stands right below the lowest block. Raises PeerFault."""
        check_below(part, self._lowest, self._tip)
        self._take(part)

    def _take(self, part: Part) -> None:
        if part.blocks[0].parent_id != self._tip.id:
            check_full(part.blocks)
        epoch = self._top.certificate.statement.domain.epoch
        if any(block.epoch != epoch for block in part.blocks):
            # of an epoch without an end of its own whoever follows us could be shown nothing
            raise PeerFault("bad_page", "it leads down through more than one epoch")
        results = [block.payload for block in part.blocks]
        named = [(r.vertex_id, None) for r in results if isinstance(r, ResultPayload)]
        if named != [(vertex.vertex_id, proof) for vertex, proof in part.vertices]:
            raise PeerFault("bad_page", "they are not the vertices of the results, and no more")
        self._bytes += sum(len(encode_block(block)) for block in part.blocks)
        self._bytes += sum(len(vertex.encode()) for vertex, _ in part.vertices)
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

    async def shown(self, ask: Ask, tip: Block, validators: Validators) -> list[Page]:
        """Epochs above `tip` at whoever answers, each whole; of those nothing is verified.

        But of a long one, which comes alone. Raises PeerFault, and what `ask` raises.
        """
        limits = validators.limits
        found = epochs.decode_epochs(await ask(tip.id), limits)
        if not found or not found[0].blocks or epochs.follows(found[0], tip.id):
            return found
        coming = self._of(found[0], tip, validators)
        while not coming.is_whole:
            if coming.is_too_long:
                raise Unavailable(f"more than {HELD_BYTES_MAX} bytes of an epoch come in pages")
            lowest = coming.lowest
            part = decode_part(
                await ask(tip.id + lowest.id), limits, epochs.answer_bytes_max(limits)
            )
            if coming.lowest != lowest:
                continue  # somebody else was faster
            if part is None:
                raise Unavailable("it has no more of that epoch")
            coming.take(part)
        self._coming = None
        return [coming.page()]

    def _of(self, top: Page, tip: Block, validators: Validators) -> LongEpoch:
        """Raises PeerFault."""
        check_final(top, validators)
        end = epochs.closing_of(top)
        if end is None or end.height % validators.epoch_rounds or end.height <= tip.height:
            raise PeerFault("bad_page", "it has more rounds than a page holds, and no epoch's end")
        if self._coming is None or self._coming[:2] != (tip.id, end.id):
            self._coming = (tip.id, end.id, LongEpoch(top, tip))
        return self._coming[2]
