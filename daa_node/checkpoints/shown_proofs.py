"""Certificates as they are shown to others, by who has looked at them first (see loose_proofs).

What has rotted is shown to nobody, and is mended (see proof_mending).
"""

from daa_consensus.votes import Certificate
from daa_dag.ids import BlockId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import exec_name, final_name


async def shown_final(chain: ChainStore, block_id: BlockId) -> Certificate | None:
    """As ChainStore.final_certificate, and not rotten. Raises StorageFailed."""
    certificate = await chain.final_certificate(block_id)
    if certificate is not None:
        chain.loose.check(final_name(block_id), certificate)
    return certificate


async def shown_exec(chain: ChainStore, vertex_id: VertexId) -> Certificate | None:
    """As ChainStore.exec_certificate, and not rotten. Raises StorageFailed."""
    certificate = await chain.exec_certificate(vertex_id)
    if certificate is not None:
        chain.loose.check(exec_name(vertex_id), certificate)
    return certificate
