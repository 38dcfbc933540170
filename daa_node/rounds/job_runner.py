"""One job on one node: where it stands, and one round after the other.

    opened --walk--> published --walk--> ... --> ended
       ^                |
       +-- follow ------+   what others certified, replayed or passed over, see catch_up

`newest` is the highest published vertex, `round` the newest resolved round that we concluded
(aborted ones count), `state` the model state of `newest`. They move together, after the disk has
everything.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import trio

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_consensus.votes import Certificate
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, NodeId, VertexId
from daa_node.agreement.outcomes import Resolution, last_closed
from daa_node.agreement.wan_bft import WanBft
from daa_node.checkpoints.chain import ChainStore, final_block_of
from daa_node.checkpoints.publish import Page, publish_all, vertex_on
from daa_node.checkpoints.restore import restore
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.contributors.records import HealthRecords
from daa_node.disputes.disputes import Disputes
from daa_node.errors import PeerFault, UserError
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.rounds.closing import MayClose
from daa_node.rounds.config import EndConfig
from daa_node.rounds.context import RoundContext
from daa_node.rounds.history import History
from daa_node.rounds.loss_turns import LossTurns
from daa_node.rounds.own_boundaries import OwnBoundaries
from daa_node.rounds.past_sets import past_sets
from daa_node.rounds.peers import Peers
from daa_node.rounds.plan import Plan, RoundRules, why_ended
from daa_node.rounds.synchronous import Happened, SynchronousRound, Work
from daa_node.seams import Offload, StateRef, Trainer
from daa_node.spot_checks.checks import SpotChecks


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """The parts of the node that a job runner talks to."""

    chain: ChainStore
    trainer: Trainer
    agreement: WanBft
    offload: Offload
    events: EventLog
    peers: Peers
    spot_checks: SpotChecks
    disputes: Disputes
    health: HealthRecords
    fault: Callable[[NodeId, PeerFault], None]
    bytes_sent: Callable[[], int]
    told_height: Callable[[], int]  # of members, as enough of them tell it to be believed
    anchor: VertexId | None = None  # without it in the chain this node takes part in nothing
    contributes: bool = True  # False: this node never trains


@dataclass(frozen=True, slots=True)
class ChainPosition:
    """Where a node stands before a state sync, and after it."""

    tip: Block  # closes a round
    newest: Vertex
    state: StateRef
    round: int


class JobRunner:
    """Walks rounds and publishes checkpoints; the loop above decides when and how much."""

    def __init__(
        self,
        parts: RunnerParts,
        rules: RoundRules,
        end: EndConfig,
        snapshots: Snapshots,
        newest: Vertex,
        round: int,
    ) -> None:
        self._parts = parts
        self.rules = rules
        self._end = end
        self.snapshots = snapshots
        self.newest = newest
        self.round = round
        self.state: StateRef | None = None
        self.history = History(parts.chain, parts.trainer, parts.events)
        self._loss_turns = LossTurns()
        self._boundaries = OwnBoundaries(parts.chain, parts.agreement)
        self.phase = "starting"
        self.contributes = parts.contributes
        self.upload_bytes_per_s = 0  # as measured by whoever serves our blobs
        self._unfinished: set[BlobRoot] = set()  # updates that the disk may hold a part of
        self._planned: tuple[object, Plan] | None = None  # from what, and the plan itself

    @property
    def in_round(self) -> bool:
        """Whether one is open here; till it ends, nothing that others publish is followed."""
        return self.phase in ("training", "serving")

    def plan(self) -> Plan:
        """The plan of the round after the newest resolved one."""
        validators, next_round = self._parts.agreement.validators, self.round + 1
        committee = validators.committee(validators.epoch_of(next_round))
        who = validators.contributors(next_round)
        asked = (self.newest, who, self.round, committee, validators.rolls.trainers(next_round))
        if self._planned is None or self._planned[0] != asked:
            self._planned = asked, self.rules.plan(*asked)
        return self._planned[1]

    def ended(self) -> str | None:
        """Why the job is done, or None. A pure function of the newest certified vertex."""
        return why_ended(self.newest, self._end)

    async def restore_state(self) -> None:
        """Make the newest vertex's state usable here. Raises StorageFailed or TrainerFailed."""
        self.phase = "restoring"
        self.state = await restore(self._parts.chain, self.newest, self._parts.trainer)
        self._parts.events.emit(events.CHECKPOINT_RESTORED, height=self.newest.height)
        await self.snapshots.restored(self.newest)
        agreement = self._parts.agreement
        is_founder = agreement.me in agreement.validators.listeners
        if self.contributes and (self.newest.height or is_founder):
            # What a newcomer begins with is long past.
            await self.history.measure(self.state, self.newest.height)

    async def recall(self) -> None:
        """List the rounds that the chain holds, and what may be disputed of them."""
        await self.history.recall()
        await self._recall_sets()
        parts = self._parts
        await self._boundaries.recover(parts.trainer, self.round + 1, parts.events)

    async def _recall_sets(self) -> None:
        disputes, steps = self._parts.disputes, self.rules.rounds.inner_steps_max
        merged = self.history.merged_below
        for basis, block in await past_sets(
            self._parts.chain, self.newest, steps, merged, disputes.knows
        ):
            disputes.recalled(basis, block)

    async def run_round(self, work: Work | None, may_close: MayClose) -> Happened:
        """Walk the next round to its final resolution, and conclude it.

        Raises UserError where the chain is not the one that this node was told to trust.
        """
        await self.check_anchor()
        plan, parts = self.plan(), self._parts
        self.phase = "training" if work is not None else "serving"
        parts.events.emit(
            events.ROUND_STARTED,
            round=plan.round,
            base=plan.base,
            steps=0 if work is None else work.steps,
        )
        sent_before = parts.bytes_sent()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.snapshots.store)
            happened = await SynchronousRound(self._context(plan), work, may_close).run()
        self._unfinished |= happened.unfinished
        if happened.own_included:
            self._loss_turns.contributed()
        if not await self._conclude(happened, sent_before):
            # Others executed, we did not, or not yet: their checkpoint brings us there.
            parts.events.emit(
                events.DECISION,
                decision="follow",
                reason=f"round {plan.round} is final and cannot be published from here",
            )
        return happened

    async def check_anchor(self) -> None:
        """Once the others were followed. Raises UserError for another past than is trusted."""
        anchor = self._parts.anchor
        if anchor is not None and not await self._parts.chain.heights.has(anchor):
            raise UserError(
                f"the chain up to height {self.newest.height} does not hold the vertex "
                f"{anchor.hex()} that you trust: members show another past, or the id is of "
                "another network. This node takes part in nothing",
                exit_code=1,
            )

    async def execute(self, resolution: Resolution) -> bool:
        """Execute and conclude a final round that nobody has published; False if that cannot be."""
        context = self._context(self.plan())
        if not context.merges:
            return False  # who votes will
        walk = SynchronousRound(context, None, lambda *_: None)
        happened = await walk.execute_resolved(resolution)
        return await self._conclude(happened, self._parts.bytes_sent())

    async def publish_abort(self, resolution: Resolution) -> bool:
        """Conclude an aborted round; False if only a page of the others' can tell."""
        blocks = await self._blocks_to(resolution)
        if blocks is None:
            return False
        await self._publish(Page(blocks, resolution.certificate, ()))
        self.round = resolution.round
        self._parts.events.emit(events.ROUND_ABORTED, round=resolution.round)
        await self._tidy_work()
        return True

    async def follow(self, page: Page, states: Sequence[StateRef]) -> None:
        """Publish a page, checked, to whose vertices these states belong."""
        parts = self._parts
        await self._publish(page)
        self.round = max(self.round, last_closed(page.blocks))
        await parts.agreement.caught_up(page.certificate, page.blocks)
        await parts.agreement.published(parts.chain.final_tip[0])  # of what is final here since
        steps = zip(page.vertices, states, strict=True)
        for place, ((vertex, proof), reached) in enumerate(steps, 1):
            self.newest, self.state = vertex, reached
            if place == len(states):
                await self._measure()
            else:
                self.history.told(page.vertices[place][0])
            self.history.add(vertex, proof)
        await self._recall_sets()
        await self._tidy_work()
        parts.events.emit(events.CAUGHT_UP, height=self.newest.height, round=self.round)

    async def land(
        self, landed: ChainPosition, pages: AsyncIterator[tuple[tuple[Block, ...], Certificate]]
    ) -> None:
        """Stand where a state sync, published, has come to over these pages."""
        parts, from_height = self._parts, self.newest.height
        async for blocks, certificate in pages:
            await parts.agreement.caught_up(certificate, blocks)
        await parts.agreement.published(parts.chain.final_tip[0])
        self.newest, self.state, self.round = landed.newest, landed.state, landed.round
        await self._measure()
        await self.history.recall_anew(self.newest)
        await self._recall_sets()
        await self._tidy_work()
        height = self.newest.height
        parts.events.emit(events.GAP_CROSSED, from_height=from_height, height=height)
        parts.events.emit(events.CAUGHT_UP, height=height, round=self.round)

    async def _publish(self, page: Page) -> None:
        parts = self._parts
        await publish_all(parts.chain, page, self.snapshots.every)
        await parts.agreement.published(parts.chain.final_tip[0])
        await self.snapshots.prune_after(*(vertex for vertex, _ in page.vertices))

    async def _blocks_to(self, resolution: Resolution) -> tuple[Block, ...] | None:
        """What to publish the round with; None if only a page of the others' can tell.

        All blocks from those published up to the one that the certificate finalizes, any number of
        empty ones among them: what we voted for and what is final is kept until then. A round that
        was resolved above belongs into the same publication, and its vertex is not here.
        """
        parts = self._parts
        block_id, path = final_block_of(resolution.certificate), list[Block]()
        while await parts.chain.block(block_id) is None:
            block = await parts.agreement.block(block_id)
            if block is None:
                return None
            match block.payload:
                case ResultPayload(round=closed) | AbortPayload(round=closed):
                    if closed != resolution.round:
                        return None
                case _:
                    pass
            path.append(block)
            block_id = block.parent_id
        return tuple(reversed(path))

    def _context(self, plan: Plan) -> RoundContext:
        assert self.state is not None
        parts, parent = self._parts, self.newest
        validators = parts.agreement.validators
        return RoundContext(
            me=parts.agreement.me,
            committee=validators.committee(validators.epoch_of(plan.round)),
            plan=plan,
            state=self.state,
            rules=self.rules,
            agreement=parts.agreement,
            trainer=parts.trainer,
            store=parts.chain.work,
            offload=parts.offload,
            events=parts.events,
            peers=parts.peers,
            spot_checks=parts.spot_checks,
            disputes=parts.disputes,
            health=parts.health,
            merged_vertex=self.history.merged_vertex,
            fault=parts.fault,
            vertex_of=lambda block, stepped: vertex_on(parent, block, stepped, validators),
            # The schedule follows the chain, so that a newcomer joins at everybody's rate.
            first_step=parent.height * self.rules.rounds.inner_steps_max,
            merged_round=self.history.merged_round(parts.agreement.me),
            upload_bytes_per_s=self.upload_bytes_per_s,
            base_loss_micronats=self.history.loss_micronats,
            contributes=self.contributes,
        )

    async def _conclude(self, happened: Happened, sent_before: int) -> bool:
        """Publish how the round ended; False if only the others' checkpoint can tell."""
        resolution, stepped, parts = happened.resolution, happened.stepped, self._parts
        if resolution is None:
            return False
        if resolution.result is None:
            return await self.publish_abort(resolution)
        proof = parts.agreement.exec_certificate(resolution.round)
        vertex = None
        if stepped is not None:
            known = parts.agreement.validators
            vertex = vertex_on(self.newest, resolution.set_block, stepped, known)
            ours, certified = vertex.vertex_id, resolution.result.vertex_id
            assert ours == certified, (
                f"executed {ours.hex()}, the committee certified {certified.hex()}: this node's "
                "aggregation differs from everybody else's"
            )
        blocks = await self._blocks_to(resolution)
        if stepped is None or vertex is None or proof is None or blocks is None:
            return False
        self.phase = "publishing"
        started_s = trio.current_time()
        page = Page(blocks, resolution.certificate, ((vertex, proof),))
        await publish_all(parts.chain, page, None)
        await parts.agreement.published(parts.chain.final_tip[0])
        self.snapshots.published(vertex)
        parts.events.emit(
            events.CHECKPOINT_PUBLISHED,
            height=vertex.height,
            vertex_id=vertex.vertex_id,
            wall_s=round(trio.current_time() - started_s, 4),
        )
        self.newest, self.state = vertex, stepped.state
        self.round = resolution.round
        await self._measure()
        self.history.add(vertex, proof, parts.bytes_sent() - sent_before, happened.wall_s)
        await self._tidy_work()
        return True

    async def _measure(self) -> None:
        """Look at the loss of what was just published, unless that would keep us from a round."""
        assert self.state is not None
        # Who never contributes has no model here.
        if not self.contributes or not self._loss_turns.may_look(self._is_behind()):
            self.history.loss_nats = None
            return
        began_s = trio.current_time()
        await self.history.measure(self.state, self.newest.height)
        self._loss_turns.looked(trio.current_time() - began_s, self._is_behind())

    def _is_behind(self) -> bool:
        parts = self._parts
        resolved = parts.agreement.outcomes.resolved_round
        return resolved > self.round or parts.told_height() > self.newest.height

    async def _tidy_work(self) -> None:
        """Drop updates, states and boundaries that no open round needs any more."""
        work, vertex = self._parts.chain.work, self.newest
        checks = self._parts.spot_checks
        states = {vertex.model_root, vertex.outer_state_root, *checks.states()}
        states |= self._parts.disputes.states()
        for parent_id in vertex.parents:
            parent = await self._parts.chain.vertex(parent_id)
            if parent is not None:
                states |= {parent.model_root, parent.outer_state_root}
        for root in await work.blob_roots("states"):
            if root not in states:
                await work.delete_blob("states", root)
        kept = _updates_wanted(vertex, self._parts.agreement.outcomes.resolution(self.round))
        kept |= {*checks.updates(), *self._parts.disputes.updates()}
        for root in {*await work.blob_roots("updates"), *self._unfinished} - kept:
            await work.delete_blob("updates", root)
        self._unfinished &= kept
        if self.rules.segment_steps:
            merged = self.history.merged_vertex(self._parts.agreement.me)
            disputed = await self._parts.disputes.kept()
            await self._boundaries.tidy(vertex, self.round, merged, disputed)


def _updates_wanted(newest: Vertex, resolution: Resolution | None) -> set[BlobRoot]:
    """Blobs of the round just resolved: peers may still execute it."""
    kept = {newest.delta_root}
    if resolution is not None:
        payload = resolution.set_block.payload
        kept |= {offer.blob_root for offer in getattr(payload, "offers", ())}
    return kept
