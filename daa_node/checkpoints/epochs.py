"""Many epochs in one answer, each by one certificate: for who is far behind, and needs no more.

    asker's tip [ epoch: headers, vertices, its end's certificate ][ epoch ] ...

An entry is a page without execution certificates (see pages), and is judged as a page is: its
committee is the one that the epochs below lead to, its blocks hang on each other by their hashes,
and its last one is final. What the committee executed is final with its result. Of an epoch that no
answer holds the top comes, alone, and whoever asks goes on downwards (see long_epochs).
"""

from collections.abc import Sequence

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_consensus.errors import BadMessage
from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import BlockId
from daa_node.checkpoints.pages import (
    PAGE_BLOCKS_MAX,
    decisions,
    page_bytes_max,
    page_from_value,
    page_value,
)
from daa_node.checkpoints.publish import Page
from daa_node.errors import PeerFault
from daa_node.wire.limits import KIB

# The request's name. Its body is the id of the block to follow, or that and the one of the block
# that a part of a long epoch is to stand below.
REQUEST = "epochs"
EPOCHS_MAX = 16  # of one answer
# An answer has no more if it can: whoever stands far below may know a small committee, and have
# little room. A sixteenth of what all strangers together may take at once.
FILLED_BYTES = 256 * KIB


def answer_bytes_max(limits: Limits) -> int:
    """The largest answer that an honest node makes: a few rounds may have more than it fills."""
    return max(FILLED_BYTES, page_bytes_max(limits))


def encode_epochs(pages: Sequence[Page]) -> bytes:
    """As many of the first ones as one answer holds."""
    values = [page_value(page) for page in pages]
    while len(values) > 1 and len(canonical.encode(values)) > FILLED_BYTES:
        values.pop()
    return canonical.encode(values)


def decode_epochs(payload: bytes, limits: Limits) -> list[Page]:
    """Nothing in them verified. Raises PeerFault("malformed").

    `limits` are those of the first one. A later committee may have grown beyond them, which is
    nobody's fault: from there on they are asked for again.
    """
    shown: list[Page] = []
    try:
        value = canonical.decode(payload, answer_bytes_max(limits))
        if not isinstance(value, list) or len(value) > EPOCHS_MAX:
            raise BadMessage(f"at most {EPOCHS_MAX} epochs are shown at once")
        for each in value:
            shown.append(page_from_value(each, limits))
    except (DagError, BadMessage, TypeError, ValueError) as fault:
        if not shown:
            raise PeerFault("malformed", f"epochs: {fault}") from None
    return shown


def closing_of(page: Page) -> Block | None:
    """The block that ends the newest of its rounds: where the next page begins."""
    closed = [b for b in page.blocks if isinstance(b.payload, ResultPayload | AbortPayload)]
    return closed[-1] if closed else None


def is_long(page: Page) -> bool:
    """Whether it has more rounds than a page: then it is the rest of an epoch that is over."""
    return decisions(page.blocks) > PAGE_BLOCKS_MAX


def follows(page: Page, block_id: BlockId) -> bool:
    """Whether it is whole, and stands on that block."""
    return bool(page.blocks) and page.blocks[0].parent_id == block_id
