"""Certificates as they are shown to others, by who has looked at them first (see loose_proofs).

What has rotted is shown to nobody, and is mended (see proof_mending).
"""

from collections.abc import Awaitable

from daa_consensus.votes import Certificate
from daa_dag.ids import BlockId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import exec_name, final_name
from daa_node.errors import StorageFailed


async def shown_final(chain: ChainStore, block_id: BlockId) -> Certificate | None:
    """As ChainStore.final_certificate, and not rotten. Raises StorageFailed."""
    return await _shown(chain, final_name(block_id), chain.final_certificate(block_id))


async def shown_exec(chain: ChainStore, vertex_id: VertexId) -> Certificate | None:
    """As ChainStore.exec_certificate, and not rotten. Raises StorageFailed."""
    return await _shown(chain, exec_name(vertex_id), chain.exec_certificate(vertex_id))


async def _shown(
    chain: ChainStore, name: str, reading: Awaitable[Certificate | None]
) -> Certificate | None:
    try:
        certificate = await reading
    except StorageFailed:
        chain.loose.damaged(name)
        raise
    if certificate is not None:
        chain.loose.check(name, certificate)
    return certificate
