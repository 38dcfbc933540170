"""The largest honest page of checkpoints passes, and one byte more than its limit does not."""

import pytest

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import EmptyPayload, ResultPayload
from daa_consensus.bft.values import INT_MAX, WORD_BYTES_MAX
from daa_consensus.votes import Kind
from daa_dag import canonical
from daa_dag.checkpoint import Contributor, Vertex, vertex_bytes_max
from daa_dag.ids import (
    BlobRoot,
    BlockId,
    ContributionRoot,
    Digest,
    NodeId,
    ValidatorSetRoot,
    VertexId,
)
from daa_node.checkpoints.pages import (
    PAGE_BLOCKS_MAX,
    PART_BLOCKS_MAX,
    Part,
    decode_page,
    decode_part,
    page_bytes_max,
    page_value,
    part_value,
)
from daa_node.checkpoints.publish import Page
from daa_node.errors import PeerFault
from tests.daa_node.agreement.test_message_sizes import (
    X,
    block,
    certificate,
    execution,
    name,
    set_block,
)


def vertex(limits: Limits) -> Vertex:
    """As large as a set of everybody makes one, with everybody convicted."""
    counts = [INT_MAX] * 6
    return Vertex(
        parents=(VertexId(X),),
        height=INT_MAX,
        training_round=INT_MAX,
        decided_block=BlockId(X),
        contributors=tuple(
            Contributor(NodeId(name(i)), ContributionRoot(X), *counts)
            for i in range(limits.contributors)
        ),
        rule="r" * WORD_BYTES_MAX,
        f_agg=INT_MAX,
        delta_root=BlobRoot(X),
        model_root=BlobRoot(X),
        outer_state_root=BlobRoot(X),
        ledger_root=X,
        validator_set_root=ValidatorSetRoot(X),
        tokens_total=INT_MAX,
        excluded=tuple(NodeId(name(i)) for i in range(limits.validators)),
    )


def largest(limits: Limits) -> Page:
    """Every second decision a set, and as many empty blocks as an answer holds."""
    pairs = PAGE_BLOCKS_MAX // 2
    closing, empty = block(ResultPayload(INT_MAX, VertexId(X), Digest(X))), block(EmptyPayload())
    blocks = [set_block(limits), closing] * pairs
    blocks += [empty] * (PART_BLOCKS_MAX - len(blocks))
    proved = [(vertex(limits), execution(limits))] * pairs
    final = certificate(limits, Kind.FINALIZE, X, INT_MAX)
    return Page(tuple(blocks), final, tuple(proved))


@pytest.mark.parametrize("n", [4, 100])
def test_the_largest_page_passes_and_a_larger_one_does_not(n: int) -> None:
    limits = Limits(n, n)
    page, most = largest(limits), page_bytes_max(limits)
    payload = canonical.encode(page_value(page))
    assert 0.97 * most <= len(payload) <= most
    assert decode_page(payload, limits) == page
    part = Part(page.blocks, page.vertices)
    assert decode_part(canonical.encode(part_value(part)), limits) == part
    with pytest.raises(PeerFault, match=f"at most {most}"):
        decode_page(bytes(most + 1), limits)
    with pytest.raises(PeerFault, match=f"at most {most}"):
        decode_part(bytes(most + 1), limits)


@pytest.mark.parametrize("n", [4, 100])
def test_the_largest_vertex_has_the_bytes_that_a_page_counts_for_it(n: int) -> None:
    limits = Limits(n, n)
    assert len(vertex(limits).encode()) == vertex_bytes_max(n, n)
