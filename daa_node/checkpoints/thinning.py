"""Of an epoch that is long over one certificate stays, as a light client has it.

    whole    a certificate for each vertex, and for each page's last block
    light    the furthest finalization of the epoch: by their hashes it proves all blocks below it,
             and each final result names its vertex and the roots of its state

Blocks and vertices stay. Epochs go in their order and all certificates of one together, so whoever
verifies the chain can tell what was let go from what was lost. An epoch whose last block became
final by the next one's proof alone stays whole, and so does that next one: others could not follow.
So does one of more bytes than anybody holds of what is on its way (see long_epochs).
"""

from daa_consensus.bft.messages import ResultPayload, encode_block
from daa_dag.ids import BlockId
from daa_dag.retention import Retention
from daa_node.checkpoints import long_epochs
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import CERTIFICATES, PROOFS, exec_name, final_name
from daa_node.checkpoints.recollection import certified_in_files, is_pack_due, keep_pack_names
from daa_node.errors import StorageFailed

# At once: packs that hold some of them are written anew, and less often is cheaper.
EPOCHS_AT_ONCE = 16


async def thin(
    chain: ChainStore, policy: Retention, lowest: int, at_once: int | None = None
) -> int | None:
    """Make the next few epochs from `lowest` up light if they are old; the first that is not.

    None: it is too soon for `at_once` of them, or EPOCHS_AT_ONCE. Raises StorageFailed; what is
    begun then is finished by the next write, or nothing has gone.
    """
    if policy.epochs_whole is None:
        return None
    end = lowest + (at_once or EPOCHS_AT_ONCE)
    if end > chain.final_tip[0].epoch - policy.epochs_whole:
        return None
    await chain.look_up()
    names = list[str]()
    is_below_proved = lowest == 0 or await _proof_of(chain, lowest - 1) is not None
    for epoch in range(lowest, end):
        proof_id = await _proof_of(chain, epoch)
        if proof_id is not None and is_below_proved:
            names += await _certificates_of(chain, epoch, proof_id)
        is_below_proved = proof_id is not None
    chain.path.light_below = max(end, chain.path.light_below)  # before any of them is gone
    await chain.groups.drop(sorted(names))
    chain.certified = await certified_in_files(chain)
    # else a start would find fewer than the summary counts, and read the whole chain
    await chain.groups.pack((), lambda: is_pack_due(chain, PROOFS, 0))
    await keep_pack_names(chain)
    return end


async def _proof_of(chain: ChainStore, epoch: int) -> BlockId | None:
    """The block whose finalization proves all of an epoch that is over; None: a later one does."""
    end, blocks = await chain.furthest.get(epoch), await chain.path.of_epoch(epoch)
    closing = await chain.block(blocks[-1][0]) if blocks else None
    is_proved = end is not None and closing is not None and end.view >= closing.view
    return end.block_id if end is not None and is_proved else None


async def _certificates_of(chain: ChainStore, epoch: int, proof_id: BlockId) -> list[str]:
    """Those of an epoch that is over, but for the one that proves it; none if it comes in pages."""
    names, size_bytes = list[str](), 0
    for block_id, is_certified in await chain.path.of_epoch(epoch):
        if is_certified and block_id != proof_id:
            names.append(final_name(block_id))
        block = await chain.block(block_id)
        if block is None:
            raise StorageFailed(f"blocks/{block_id.hex()}, which is final, is missing")
        size_bytes += len(encode_block(block))
        if isinstance(block.payload, ResultPayload):
            vertex = await chain.vertex(block.payload.vertex_id)
            size_bytes += 0 if vertex is None else len(vertex.encode())
            names.append(exec_name(block.payload.vertex_id))
    if size_bytes > long_epochs.HELD_BYTES_MAX:
        return []
    has = chain.store.has_record
    return [f"{CERTIFICATES}/{name}" for name in names if await has(CERTIFICATES, name)]
