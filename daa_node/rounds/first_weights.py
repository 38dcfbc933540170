"""First weights that come from a file: have them here, whole, before anything starts from them.

    in the chain already --> done
    a file of the operator's --> checked against the genesis' root --> stored --> done
    neither --> asked of members, again and again --> every chunk checked --> stored --> done

They are stored as the snapshot of the genesis vertex, by which this node restores and verifies, and
from which it serves others. It is never pruned: nobody can compute it again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from daa_dag.checkpoint import Vertex
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import STATES
from daa_node.checkpoints.publish import state_of
from daa_node.checkpoints.replay import ReplayedState, StateRules
from daa_node.checkpoints.snapshot_files import snapshot_writes
from daa_node.errors import PeerFault, Unavailable, UserError
from daa_node.observability.events import FIRST_WEIGHTS_AWAITED, EventLog
from daa_node.rounds.peers import Peers
from daa_node.seams import Offload
from daa_node.tensors import GRID_ITEM_BYTES, Int32Array

ASK_S = 2.0  # between two tries to get them from members
TOLD_EACH_S = 60.0  # that they are awaited

# The D grid weights of the operator's file, or None where there is no file. Raises UserError.
ReadFile = Callable[[], Int32Array | None]


@dataclass(frozen=True, slots=True)
class FirstWeights:
    """Those of one network, on their way into one node's chain."""

    vertex: Vertex  # of the genesis
    rules: StateRules
    chain: ChainStore
    peers: Peers
    offload: Offload
    events: EventLog
    read_file: ReadFile

    async def bring(self) -> None:
        """Returns once they are in the chain. Raises UserError for a wrong file, StorageFailed."""
        if self.rules.first_root is None or await self.chain.snapshot(self.vertex) is not None:
            return
        weights_D = await self.offload.run(self.read_file)
        if weights_D is None:
            await self._fetched()
        else:
            await self._take(weights_D)
        await self.chain.groups.add([await snapshot_writes(self.chain, self.vertex)])

    async def _take(self, weights_D: Int32Array) -> None:
        state = ReplayedState(self.rules)
        state.weights_D[:] = weights_D
        manifests = await self.offload.run(state.manifests)
        found, agreed = manifests[0].root, self.vertex.model_root
        if found != agreed:
            raise UserError(
                f"the file of first weights is not that of this network: its weights have the root "
                f"{found.hex()}, those of the genesis {agreed.hex()}; copy the file that the "
                "genesis was made with, or remove this one: members have the weights, too"
            )
        for manifest, vector_D in zip(manifests, (state.weights_D, state.momentum_D), strict=True):
            writer, view = await self.chain.work.begin_blob(STATES, manifest), vector_D.data
            payload = view.cast("B")
            for index in writer.missing():
                at = manifest.offsets[index]
                await writer.write_chunk(index, bytes(payload[at : at + manifest.sizes[index]]))
            await writer.commit()

    async def _fetched(self) -> None:
        """Into the work store, from whichever member has them."""
        state, told_s = state_of(self.vertex), -TOLD_EACH_S
        size_bytes = self.rules.parameter_count * GRID_ITEM_BYTES
        while True:
            for node in sorted(self.peers.reachable()):
                try:
                    for root in (state.model_root, state.outer_root):
                        await self.peers.fetch_state(root, size_bytes, node)
                    return
                except (Unavailable, PeerFault) as failure:
                    why = str(failure)
                    break  # it has asked all of them
            else:
                why = "no member is connected"
            if trio.current_time() - told_s >= TOLD_EACH_S:
                told_s = trio.current_time()
                self.events.emit(FIRST_WEIGHTS_AWAITED, root=state.model_root, why=why)
            await trio.sleep(ASK_S)
