"""Many epochs in one answer, each by one certificate: for who is far behind, and needs no more.

    asker's tip [ epoch: headers, vertices, its end's certificate ][ epoch ] ...

An entry is a page without execution certificates (see pages), and is judged as a page is: its
committee is the one that the epochs below lead to, its blocks hang on each other by their hashes,
and its last one is final. What the committee executed is final with its result. Where an epoch
needs more than a page of one answer, whoever asks goes on page by page.
"""

from collections.abc import Sequence

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_consensus.errors import BadMessage
from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import BlockId
from daa_node.checkpoints.pages import page_bytes_max, page_from_value, page_value
from daa_node.checkpoints.publish import Page
from daa_node.errors import PeerFault

REQUEST = "epochs"  # the request's name; its body is the id of the block to follow
EPOCHS_MAX = 16  # of one answer: some 270 reads


def answer_bytes_max(limits: Limits) -> int:
    """The largest answer that an honest node makes: no larger than that of a page."""
    return page_bytes_max(limits)


def encode_epochs(pages: Sequence[Page], limits: Limits) -> bytes:
    """As many of the first ones as one answer holds."""
    for count in range(len(pages), 0, -1):
        encoded = canonical.encode([page_value(page) for page in pages[:count]])
        if len(encoded) <= answer_bytes_max(limits):
            return encoded
    return canonical.encode([])


def decode_epochs(payload: bytes, limits: Limits) -> list[Page]:
    """Nothing in them verified. Raises PeerFault("malformed")."""
    try:
        value = canonical.decode(payload, answer_bytes_max(limits))
        if not isinstance(value, list) or len(value) > EPOCHS_MAX:
            raise BadMessage(f"at most {EPOCHS_MAX} epochs are shown at once")
        return [page_from_value(each, limits) for each in value]
    except (DagError, BadMessage, TypeError, ValueError) as fault:
        raise PeerFault("malformed", f"epochs: {fault}") from None


def bare(page: Page) -> Page:
    """The same without what its end proves anyway."""
    return Page(page.blocks, page.certificate, tuple((vertex, None) for vertex, _ in page.vertices))


def closing_of(page: Page) -> Block | None:
    """The block that ends the newest of its rounds: where the next page begins."""
    closed = [b for b in page.blocks if isinstance(b.payload, ResultPayload | AbortPayload)]
    return closed[-1] if closed else None


def follows(page: Page, block_id: BlockId) -> bool:
    """Whether it is whole, and stands on that block."""
    return bool(page.blocks) and page.blocks[0].parent_id == block_id
