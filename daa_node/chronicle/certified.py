"""One round of the history, made of what is certified and of what this node has seen. Pure."""

from daa_consensus.bft.messages import Block, SetPayload
from daa_consensus.votes import Certificate
from daa_dag.checkpoint import Vertex
from daa_node.checkpoints.history import loss_below
from daa_node.chronicle.notes import Finished
from daa_node.chronicle.rows import Contributed, RoundRow

MICRO = 1_000_000
# Of one contribution: sums of a billion of them still fit a signed integer of 64 bits.
COUNT_MAX = 2**33
BYTES_MAX = 2**42  # millions of these do


def round_row(
    vertex: Vertex, signers: int, set_block: Block | None, seen: Finished | None
) -> RoundRow:
    """`set_block`: the vertex's decided block, which has the sizes of updates; None: not here."""
    sizes = {}
    if set_block is not None and isinstance(set_block.payload, SetPayload):
        offers = set_block.payload.offers
        sizes = {offer.author: min(offer.size_bytes, BYTES_MAX) for offer in offers}
    members = tuple(
        Contributed(
            facts.author,
            min(facts.tokens, COUNT_MAX),
            min(facts.steps, COUNT_MAX),
            sizes.get(facts.author),
            facts.weight > 0,
        )
        for facts in vertex.contributors
    )
    below = loss_below(vertex)
    number = vertex.training_round
    return RoundRow(
        height=vertex.height,
        round=number,
        vertex_id=vertex.vertex_id,
        signers=signers,
        contributors=members,
        ended_s=None if seen is None else seen.at_s,
        loss_nats=None if seen is None else seen.loss_nats,
        base_loss_nats=None if below is None else min(below, COUNT_MAX) / MICRO,
        wall_s=None if seen is None else seen.wall_s,
        sent_bytes=None if seen is None else seen.sent_bytes,
        left_out=() if seen is None else tuple(seen.left_out(number, members)),
    )


def signers_of(certificate: Certificate | None) -> int:
    return 0 if certificate is None else len(certificate.signatures)
