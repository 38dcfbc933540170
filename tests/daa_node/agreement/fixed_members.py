"""A history of validators in which nobody comes or goes."""

from collections.abc import Mapping

from daa_consensus.committee import Committee
from daa_dag.ids import ChainId, NodeId
from daa_node.identity.validators import Validators


def fixed_validators(
    chain_id: ChainId,
    committee: Committee,
    public_keys: Mapping[NodeId, bytes],
    epoch_rounds: int,
) -> Validators:
    """Everybody contributes."""
    return Validators(chain_id, epoch_rounds, committee, public_keys, {}, tuple(committee.stake_of))
