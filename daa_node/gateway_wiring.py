"""Which parts a gateway has for volunteers, and which of the node's each of them is given."""

from typing import Any

from daa_node.checkpoints.chain import ChainStore
from daa_node.gateway.front_desk import Facts, FrontDesk
from daa_node.gateway.proofs import Certificates, Links, SnapshotChunks
from daa_node.gateway.task_desk import Evidence
from daa_node.gateway.training_pieces import Gradients, Losses, Segments, Slices, Workshop
from daa_node.gateway.volunteers import Surroundings, Volunteers
from daa_node.identity.validators import Validators
from daa_node.node_parts import NodeParts
from daa_node.observability import events
from daa_node.rounds.job_runner import JobRunner
from daa_node.spot_checks.checks import SpotChecks


class GatewayWiring:
    """The parts of one node's gateway."""

    def __init__(
        self,
        parts: NodeParts,
        chain: ChainStore,
        validators: Validators,
        spot_checks: SpotChecks,
    ) -> None:
        self._parts = parts
        genesis, job = parts.genesis, parts.genesis.job
        around = Surroundings(
            genesis.chain_id,
            parts.keys.node_id,
            parts.transport,
            parts.clock,
            parts.entropy,
            parts.offload,
            parts.work_store,
            parts.events,
        )
        shop = Workshop(
            chain,
            job.model,
            job.updates.delta_format,
            job.inner,
            job.evaluation,
            parts.offload,
            parts.open_examples,
        )
        segments = Segments(shop, job.spot_checks.is_on, job.spot_checks.tolerance)
        spot_checks.on_shown = segments.keep
        sources = (
            Certificates(chain, lambda: validators.public_keys),
            Links(chain),
            SnapshotChunks(chain, job.checkpoints.snapshot_every),
            Slices(shop),
            Losses(shop),
            Gradients(shop),
            segments,
        )
        self.volunteers = Volunteers(parts.config.gateway, around, sources, self._weigh_evidence)

    def open(self, runner: JobRunner) -> None:
        """Serve the page, where this node has a door for it."""
        parts, transport = self._parts, self._parts.transport
        if parts.web is None:
            return
        facts = Facts(
            parts.genesis.chain_id,
            parts.keys.node_id,
            transport.peer_id,
            transport.addresses,
            lambda: runner.newest.height,
            self.volunteers.wanted,
            self.volunteers.places,
        )
        desk = FrontDesk(parts.config.gateway, parts.web.site, facts)
        parts.web.door.set_desk(desk.answer)

    def standing(self) -> dict[str, Any]:
        """For the operator."""
        web = self._parts.web
        told = {} if web is None else web.door.standing()
        return {**told, "volunteers": self.volunteers.standing()}

    def _weigh_evidence(self, evidence: Evidence) -> None:
        """What volunteers found convicts nobody: it is told, and counted."""
        piece = evidence.piece
        self._parts.events.emit(
            events.VOLUNTEERS_FOUND,
            kind=piece.kind,
            about=dict(piece.about),
            sound=evidence.is_sound,
            ours=evidence.is_ours,
            distance=piece.distance(evidence.result),
        )
