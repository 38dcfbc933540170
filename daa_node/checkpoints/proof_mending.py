"""Good certificates in the place of those that have rotted in files of their own.

What somebody has asked for, or packing has looked at (see loose_proofs), is mended as what the
daily reading finds, but soon: the reading may take a day to come there.

    found --asked for--> mended
      +--nobody had it--> lost --again, in turn, after those that are found meanwhile--> ...

A disk may lose thousands at a time. Each that nobody had has cost some dozens of requests, so a
turn ends with a few of these, and what was mended is paid for with time as the reading does.
"""

import math

import trio

from daa_consensus.bft.messages import ResultPayload
from daa_dag.ids import BlockId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import CERTIFICATES, FINAL_SUFFIX
from daa_node.checkpoints.repair import Repair
from daa_node.checkpoints.scrub import BYTES_PER_S, HEADERS_BYTES
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

PAUSE_S = 60.0  # before members are asked for more
AGAIN_S = 600.0  # before they are asked for what nobody within reach had
FAILED_MAX = 16  # of a turn: half a thousand requests
MENDED_PAUSE_S = HEADERS_BYTES / BYTES_PER_S
RESULT_WITHIN = 64  # blocks above a set, of which all but the result are empty


class ProofMending:
    """Of one chain, beside everything else."""

    def __init__(self, chain: ChainStore, repair: Repair, log: EventLog) -> None:
        self._chain = chain
        self._repair = repair
        self._log = log
        self._found = dict[str, None]()  # and not asked for yet
        self._lost = dict[str, None]()  # that nobody had, and told of; the first is the next

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not self._found:
                with trio.move_on_after(AGAIN_S if self._lost else math.inf):
                    await self._chain.loose.has_found.wait()
            await self.once()
            await trio.sleep(PAUSE_S)

    async def once(self) -> None:
        """A turn: what was found is asked for, then what nobody had; of that it is told once."""
        loose = self._chain.loose
        self._found |= dict.fromkeys(loose.take_found())
        failed = 0
        for name in [*self._found, *(name for name in self._lost if name not in self._found)]:
            if failed == FAILED_MAX:
                return
            is_new = name not in self._lost
            self._found.pop(name, None)
            self._lost.pop(name, None)
            if name not in loose.rotten:
                continue  # the daily reading was faster, or it was let go
            if await self._is_mended(name, is_new):
                await trio.sleep(MENDED_PAUSE_S)
            elif name in loose.rotten:
                failed += 1
                self._lost[name] = None

    async def _is_mended(self, name: str, is_new: bool) -> bool:
        """Whether it is; of what is new all is told."""
        what = f"{CERTIFICATES}/{name} has rotted in its file"
        if is_new:
            self._log.emit(events.RECORD_DAMAGED, detail=what)
        try:
            is_good = await self._mend(name)
        except StorageFailed as failure:  # a disk that takes nothing more, or gives nothing
            if is_new:
                self._log.emit(events.STORAGE_FAILED, detail=str(failure))
            is_good = False
        if is_good:
            self._log.emit(events.RECORD_REPAIRED, detail=what)
        elif is_new:
            self._log.emit(events.RECORD_LOST, detail=what)
        return is_good

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
