"""What authors of contributions committed to, brought here for as long as a check takes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from daa_consensus.bft.messages import SetPayload
from daa_dag.chunking import Manifest, cut, manifest_of
from daa_dag.ids import BlobRoot, NodeId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS
from daa_node.errors import Unavailable
from daa_node.rounds.peers import Peers
from daa_node.seams import Offload, StateRef
from daa_node.tensors import GRID_DTYPE
from daa_node.training.boundaries import CLAIMED, DISPUTED, FP32
from daa_node.updates.grid import to_float32

BASES_KEPT = DISPUTE_ROUNDS  # 16 kB each for a hundred million parameters


@dataclass(frozen=True, slots=True)
class Claims:
    """See spot_checks.checks for what is done with them. Raises NodeError where nothing comes."""

    peers: Peers
    chain: ChainStore
    offload: Offload
    _bases: dict[BlobRoot, Manifest] = field(default_factory=dict)  # in the order of rounds

    async def fetch(self, author: NodeId, root: BlobRoot) -> None:
        """A boundary, whole and checked, into the work store."""
        await self.peers.fetch_boundary(root, author)

    async def manifest(self, author: NodeId, root: BlobRoot) -> Manifest:
        for shelf in (CLAIMED, DISPUTED):
            held = await self.chain.work.blob_manifest(shelf, root)
            if held is not None:
                return held
        return await self.peers.fetch_boundary_manifest(root, author)

    async def last_boundary(self, merged: VertexId, author: NodeId) -> BlobRoot | None:
        """The end of the author's contribution that this vertex merged; None if it names none.

        Raises Unavailable if the block is not here: nobody may be blamed for that.
        """
        vertex = await self.chain.vertex(merged)
        block = None if vertex is None else await self.chain.block(vertex.decided_block)
        if block is None or not isinstance(block.payload, SetPayload):
            raise Unavailable(f"the block that decided {merged.hex()[:16]} is not here")
        own = [offer for offer in block.payload.offers if offer.author == author]
        roots = own[0].snapshot_roots if own else ()
        return BlobRoot(roots[-1]) if roots else None

    async def base_manifest(self, base: StateRef) -> Manifest:
        """Of the base's weights as fp32, as a boundary has them.

        Kept when the base itself is not here any more: an author may show late where it began.
        """
        if base.model_root not in self._bases:
            view = await self.chain.work.view_blob("states", base.model_root)
            self._bases[base.model_root] = await self.offload.run(lambda: _manifest_of(view))
            while len(self._bases) > BASES_KEPT:
                del self._bases[next(iter(self._bases))]
        return self._bases[base.model_root]

    async def drop(self, roots: Sequence[BlobRoot]) -> None:
        for root in roots:
            await self.chain.work.delete_blob(CLAIMED, root)

    async def drop_all(self) -> None:
        """What a check has left that a restart cut off."""
        await self.drop(await self.chain.work.blob_roots(CLAIMED))


def _manifest_of(view: memoryview) -> Manifest:
    weights_D = to_float32(np.frombuffer(view, GRID_DTYPE)).astype(FP32, copy=False)
    return manifest_of(weights_D.data.cast("B"), cut([weights_D.nbytes]))
