"""Which of our own boundaries others may still ask for; all others go.

A segment is drawn when the set that merges its contribution is final, and checked within a few
rounds. Our newest merged contribution is kept for longer: where its last boundary left off, our
next contribution begins. What was left out of a set is asked for by nobody.
"""

from collections.abc import Sequence, Set

from daa_consensus.bft.messages import SetPayload, offer_from_value
from daa_consensus.votes import Kind
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, Digest, VertexId
from daa_node.agreement.wan_bft import WanBft
from daa_node.checkpoints.chain import ChainStore
from daa_node.errors import StorageFailed, TrainerFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.seams import Trainer
from daa_node.training.boundaries import BOUNDARIES

KEEP_TRIES_MAX = 2  # a worker that dies has left its files to the next one
# Resolved ones, the newest; with four segments, each takes 80 bytes a parameter.
ROUNDS_KEPT = 3


async def keep_boundaries(
    trainer: Trainer, roots: Sequence[Digest], round_number: int, told: EventLog
) -> None:
    """Have the boundaries of our newest update in the store. What is lost is told, and no more."""
    for _ in range(KEEP_TRIES_MAX):
        try:
            return await trainer.keep_boundaries(roots)
        except TrainerFailed as failure:
            told.emit(events.TRAINER_REFUSED, round=round_number, why=str(failure))
        except StorageFailed as failure:
            return told.emit(events.STORAGE_FAILED, detail=str(failure))


class OwnBoundaries:
    """Those in the work store."""

    def __init__(self, chain: ChainStore, agreement: WanBft) -> None:
        self._chain = chain
        self._agreement = agreement
        self._roots: dict[VertexId, tuple[BlobRoot, ...]] = {}  # ours, of the vertices looked at

    async def recover(self, trainer: Trainer, open_round: int, told: EventLog) -> None:
        """Before anything is trained: an earlier process may have died right after its Offer."""
        offered = [Digest(root) for root in self._offered(open_round)]
        if offered:
            await keep_boundaries(trainer, offered, open_round, told)

    async def tidy(
        self,
        newest: Vertex,
        resolved_round: int,
        merged: VertexId | None,
        disputed: Set[BlobRoot],
    ) -> None:
        """Drop what no check can want once this vertex, and this round, are the newest.

        `merged` is the vertex of our newest merged contribution; `disputed` stay, too.
        """
        work = self._chain.work
        here = await work.blob_roots(BOUNDARIES)
        if not here:
            return
        known, self._roots = self._roots, {}
        for vertex in await self._wanted(newest, resolved_round - ROUNDS_KEPT, merged):
            found = known.get(vertex.vertex_id)
            self._roots[vertex.vertex_id] = await self._own(vertex) if found is None else found
        kept = {*disputed, *(root for roots in self._roots.values() for root in roots)}
        kept.update(self._offered(resolved_round + 1))
        for root in here:
            if root not in kept:
                await work.delete_blob(BOUNDARIES, root)

    async def _wanted(
        self, newest: Vertex, after_round: int, merged: VertexId | None
    ) -> list[Vertex]:
        vertices, vertex = list[Vertex](), newest
        while vertex.training_round > after_round and vertex.parents:
            vertices.append(vertex)
            below = await self._chain.vertex(vertex.parents[0])
            if below is None:
                break
            vertex = below
        if merged is not None and all(one.vertex_id != merged for one in vertices):
            older = await self._chain.vertex(merged)
            vertices += [] if older is None else [older]
        return vertices

    async def _own(self, vertex: Vertex) -> tuple[BlobRoot, ...]:
        me = self._agreement.me
        if all(contributor.author != me for contributor in vertex.contributors):
            return ()
        block = await self._chain.block(vertex.decided_block)
        if block is None or not isinstance(block.payload, SetPayload):
            return ()
        own = [offer for offer in block.payload.offers if offer.author == me]
        return tuple(BlobRoot(root) for offer in own for root in offer.snapshot_roots)

    def _offered(self, round_number: int) -> tuple[BlobRoot, ...]:
        """Of a round that is open, maybe since before a restart."""
        said = self._agreement.own_statement(Kind.OFFER, round_number)
        if said is None:
            return ()
        offer = offer_from_value(said.statement.value)
        return tuple(BlobRoot(root) for root in offer.snapshot_roots)
