"""What the walk of one round is given: plan, base, and the parts of the node it talks to."""

from collections.abc import Callable
from dataclasses import dataclass

from daa_consensus.bft.messages import Block
from daa_consensus.committee import Committee
from daa_dag.checkpoint import Vertex
from daa_dag.ids import NodeId, VertexId
from daa_node.agreement.wan_bft import WanBft
from daa_node.contributors.records import HealthRecords
from daa_node.disputes.disputes import Disputes
from daa_node.errors import PeerFault
from daa_node.observability.events import EventLog
from daa_node.rounds.peers import Peers
from daa_node.rounds.plan import Plan, RoundRules
from daa_node.seams import BlobStore, Offload, StateRef, SteppedState, Trainer
from daa_node.spot_checks.checks import SpotChecks


@dataclass(frozen=True, slots=True)
class RoundContext:
    """One round on one base."""

    me: NodeId
    committee: Committee
    plan: Plan
    state: StateRef
    rules: RoundRules
    agreement: WanBft
    trainer: Trainer
    store: BlobStore
    offload: Offload
    events: EventLog
    peers: Peers
    spot_checks: SpotChecks
    disputes: Disputes
    health: HealthRecords
    merged_vertex: Callable[[NodeId], VertexId | None]  # the newest that merged its work
    fault: Callable[[NodeId, PeerFault], None]
    vertex_of: Callable[[Block, SteppedState], Vertex]  # of a decided set's block
    first_step: int  # inner steps of ours before this round, for the learning-rate schedule
    merged_round: int  # the newest round that merged an update of ours, for error feedback
    upload_bytes_per_s: int  # as measured; 0 if never
    base_loss_micronats: int
    contributes: bool = True  # False: this node never trains

    @property
    def merges(self) -> bool:
        """Whether we fetch all updates and merge them, and do not only replay the delta."""
        return self.rules.are_merged_by(self.me, self.committee)
