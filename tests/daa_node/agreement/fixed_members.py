"""A history of validators in which nobody comes or goes."""

from collections.abc import Mapping

from daa_consensus.committee import Committee
from daa_consensus.membership import Membership
from daa_dag.ids import ChainId, NodeId
from daa_node.identity.validators import Validators


def fixed_validators(
    chain_id: ChainId,
    committee: Committee,
    public_keys: Mapping[NodeId, bytes],
    epoch_rounds: int,
) -> Validators:
    """Everybody contributes."""
    first = Membership(committee)
    return Validators(chain_id, epoch_rounds, first, public_keys, {}, tuple(committee.stake_of))
