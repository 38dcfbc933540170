"""The sets of the newest rounds as the chain has them: for whoever did not see them decided.

A node that restarts, or follows a page, must be able to show what is asked of its own work, and to
judge others': with four validators, of whom one lies, each that cannot is one too many. A round
that was aborted is not among them; nothing of it was merged.
"""

from collections.abc import Callable
from functools import partial

from daa_consensus.bft.messages import Block
from daa_dag.checkpoint import Vertex
from daa_dag.ids import Digest, NodeId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.publish import state_of
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS
from daa_node.spot_checks.checks import Basis

MergedBelow = Callable[[int, NodeId], VertexId | None]  # of this height at most; whose work


async def past_sets(
    chain: ChainStore,
    newest: Vertex,
    inner_steps_max: int,
    merged_below: MergedBelow,
    knows: Callable[[int], bool],
) -> list[tuple[Basis, Block]]:
    """Those that a dispute may be about, down to one that is known, the oldest first.

    Raises StorageFailed.
    """
    found: list[tuple[Basis, Block]] = []
    vertex = newest
    while vertex.parents and newest.training_round - vertex.training_round < DISPUTE_ROUNDS:
        block = await chain.block(vertex.decided_block)
        parent = await chain.vertex(vertex.parents[0])
        if block is None or parent is None or knows(vertex.training_round):
            break
        merged = partial(merged_below, parent.height)
        first_step = parent.height * inner_steps_max
        seed = Digest(bytes(parent.vertex_id))
        found.append((Basis(seed, state_of(parent), first_step, merged), block))
        vertex = parent
    return found[::-1]
