"""Names of the gossip topics and DHT records of one chain."""

from daa_dag.ids import ChainId, NodeId, VertexId

# Eight bytes tell chains apart in names; hello compares the whole id.
_SHORT_HEX = 16


def dht_namespace(chain_id: ChainId) -> str:
    return f"daa-{chain_id.hex()[:_SHORT_HEX]}"


def records_topic(chain_id: ChainId) -> str:
    """Signed NodeRecords that have changed."""
    return f"daa/{chain_id.hex()[:_SHORT_HEX]}/records"


def heads_topic(chain_id: ChainId) -> str:
    """How far the sender's finalized chain reaches."""
    return f"daa/{chain_id.hex()[:_SHORT_HEX]}/heads"


def record_key(node_id: NodeId) -> str:
    return f"record/{node_id.hex()}"


def checkpoint_key(vertex_id: VertexId) -> str:
    """What whoever has stood at this vertex provides."""
    return f"checkpoint/{vertex_id.hex()}"
