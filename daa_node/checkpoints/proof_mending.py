"""Good certificates in the place of those that have rotted in files of their own.

What somebody has asked for, or packing has looked at (see loose_proofs), is mended as what the
daily reading finds, but soon: the reading may take a day to come there.
"""

import math

import trio

from daa_consensus.bft.messages import ResultPayload
from daa_dag.ids import BlockId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import CERTIFICATES, FINAL_SUFFIX
from daa_node.checkpoints.repair import Repair
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

PAUSE_S = 60.0  # before members are asked for more
AGAIN_S = 600.0  # before they are asked for what nobody within reach had
RESULT_WITHIN = 64  # blocks above a set, of which all but the result are empty


class ProofMending:
    """Of one chain, beside everything else."""

    def __init__(self, chain: ChainStore, repair: Repair, log: EventLog) -> None:
        self._chain = chain
        self._repair = repair
        self._log = log
        self._lost = set[str]()  # that nobody had

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with trio.move_on_after(AGAIN_S if self._lost else math.inf):
                await self._chain.loose.has_found.wait()
            await self.once()
            await trio.sleep(PAUSE_S)

    async def once(self) -> None:
        """Ask for each that was found, and for what nobody had; of that it is told once."""
        loose = self._chain.loose
        found = [*self._lost, *loose.take_found()]
        before, self._lost = self._lost, set()
        for name in found:
            if name not in loose.rotten:
                continue  # the daily reading was faster
            what = f"{CERTIFICATES}/{name} has rotted in its file"
            if name not in before:
                self._log.emit(events.RECORD_DAMAGED, detail=what)
            try:
                is_good = await self._mend(name)
            except StorageFailed as failure:  # a disk that takes nothing more
                self._log.emit(events.STORAGE_FAILED, detail=str(failure))
                is_good = False
            if is_good:
                self._log.emit(events.RECORD_REPAIRED, detail=what)
                continue
            self._lost.add(name)
            if name not in before:
                self._log.emit(events.RECORD_LOST, detail=what)

    async def _mend(self, name: str) -> bool:
        digest = bytes.fromhex(name.partition(".")[0])
        if name.endswith(FINAL_SUFFIX):
            block = await self._chain.block(BlockId(digest))
            return block is not None and await self._repair.final(block)
        vertex = await self._chain.vertex(VertexId(digest))
        if vertex is None:
            return False
        for block in await self._chain.path_up(vertex.decided_block, RESULT_WITHIN) or ():
            match block.payload:
                case ResultPayload(vertex_id=vertex_id) as result if vertex_id == digest:
                    return await self._repair.execution(result, block.epoch)
                case _:
                    pass
        return False
