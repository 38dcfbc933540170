"""The course of a job on one node: where it stands, one round after the other, and catching up.

    opened --walk--> published --walk--> ... --> ended
       ^                |
       +-- catch_up ----+   pages from peers, replayed (or leapt over, see leap), published

`newest` is the highest published vertex, `round` the newest resolved round that we concluded
(aborted ones count), `state` the model state of `newest`. They move together, after the disk has
everything.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import trio

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_consensus.votes import Certificate
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, NodeId, VertexId
from daa_dag.retention import Retention
from daa_node.agreement.outcomes import Resolution
from daa_node.agreement.wan_bft import WanBft
from daa_node.checkpoints.chain import ChainStore, final_block_of
from daa_node.checkpoints.pages import check_page, rounds_in
from daa_node.checkpoints.publish import Page, publish_all, vertex_of
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.errors import NotHeld, PeerFault, TrainerFailed, Unavailable
from daa_node.identity.validators import Validators
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.rounds.collect import Collection
from daa_node.rounds.config import EndConfig
from daa_node.rounds.context import RoundContext
from daa_node.rounds.guides import Guides
from daa_node.rounds.leap import Leap, Stand, step_to
from daa_node.rounds.loss_watch import LossWatch
from daa_node.rounds.peers import Peers
from daa_node.rounds.plan import Plan, RoundRules, told_loss_micronats, why_ended
from daa_node.rounds.synchronous import Happened, SynchronousRound, Work
from daa_node.seams import BlobStore, Offload, StateRef, SteppedState, Trainer

ROUNDS_LISTED_MAX = 4096  # of `daa-node rounds`; the chain has them all


@dataclass(frozen=True, slots=True)
class CourseFacts:
    """What the genesis says, and the operator, as far as the course needs it."""

    me: NodeId
    validators: Validators
    rules: RoundRules
    snapshot_every: int
    retention: Retention  # this node's own
    end: EndConfig


@dataclass(frozen=True, slots=True)
class CourseParts:
    """The parts of the node that a course talks to."""

    chain: ChainStore
    work: BlobStore
    trainer: Trainer
    agreement: WanBft
    offload: Offload
    events: EventLog
    peers: Peers
    fault: Callable[[NodeId, PeerFault], None]
    bytes_sent: Callable[[], int]
    restore: Callable[[Vertex], Awaitable[StateRef]]
    # Nodes that claim to hold one of these vertices; asked when no member can help.
    holders: Callable[[Sequence[VertexId]], Awaitable[list[NodeId]]]
    # Pages right above the tip that somebody brought when no member was heard.
    scouted: Callable[[Block], Mapping[NodeId, Page]]


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """What `daa-node rounds` tells of one published vertex."""

    height: int
    training_round: int
    vertex_id: str
    loss_nats: float | None
    certified_by: tuple[str, ...]
    contributors: tuple[str, ...]
    bytes_sent: int
    wall_s: float


class Course:
    """Walks rounds and publishes checkpoints; the loop above decides when and how much."""

    def __init__(self, facts: CourseFacts, parts: CourseParts, newest: Vertex, round: int) -> None:
        self._facts = facts
        self._parts = parts
        self.f_agg_among = facts.rules.f_agg_among  # bad ones that the rule holds off among so many
        self.newest = newest
        self.round = round
        self.state: StateRef | None = None
        self.loss_nats: float | None = None
        self.loss_watch = LossWatch()
        self.records: list[RoundRecord] = []
        self.phase = "starting"
        self.upload_bytes_per_s = 0  # as measured by whoever serves our blobs
        self._guides = Guides(parts.peers, parts.fault)
        self._unfinished: set[BlobRoot] = set()  # updates that the disk may hold a part of
        self.snapshots = Snapshots(parts.chain, facts.snapshot_every, facts.retention, parts.events)

    def plan(self) -> Plan:
        """The plan of the round after the newest resolved one."""
        facts = self._facts
        epoch = facts.validators.epoch_of(self.round + 1)
        contributors = facts.validators.contributors(self.round + 1)
        committee = facts.validators.committee(epoch)
        return facts.rules.plan(self.newest, contributors, self.round, committee)

    def ended(self) -> str | None:
        """Why the job is done, or None. A pure function of the newest certified vertex."""
        return why_ended(self.newest, self._facts.end)

    async def restore_state(self) -> None:
        """Make the newest vertex's state usable here. Raises StorageFailed or TrainerFailed."""
        self.phase = "restoring"
        self.state = await self._parts.restore(self.newest)
        self._parts.events.emit(events.CHECKPOINT_RESTORED, height=self.newest.height)
        await self._evaluate()

    async def walk(
        self, work: Work | None, may_close: Callable[[Collection, float, float | None], str | None]
    ) -> Happened:
        """Walk the next round to its final resolution, and conclude it."""
        assert self.state is not None
        plan = self.plan()
        self.phase = "training" if work is not None else "serving"
        self._parts.events.emit(
            events.ROUND_STARTED,
            round=plan.round,
            base=plan.base,
            steps=0 if work is None else work.steps,
        )
        sent_before = self._parts.bytes_sent()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.snapshots.store)
            happened = await self._round(plan, work, may_close).run()
        self._unfinished |= happened.unfinished
        if not await self._conclude(happened, sent_before):
            # Others executed, we did not, or not yet: their checkpoint brings us there.
            self._parts.events.emit(
                events.DECISION,
                decision="follow",
                reason=f"round {plan.round} is final and cannot be published from here",
            )
        return happened

    def _round(
        self,
        plan: Plan,
        work: Work | None,
        may_close: Callable[[Collection, float, float | None], str | None] = lambda *_: None,
    ) -> SynchronousRound:
        return SynchronousRound(self._context(plan), work, may_close)

    async def catch_up(self) -> None:
        """Follow the others for one page, or end one round that nobody has published.

        Raises Unavailable if neither is possible, StorageFailed or TrainerFailed.
        """
        self.phase = "catching_up"
        await self.snapshots.store()
        if self.state is None:
            await self.restore_state()
            return
        failures: list[str] = []
        scouted = self._parts.scouted(await self._parts.chain.resume_point())

        async def follow_one_of(nodes: Iterable[NodeId]) -> bool:
            for node in nodes:
                try:
                    if await self._follow(node, scouted.get(node)):
                        return True
                except PeerFault as fault:
                    self._parts.fault(node, fault)
                    failures.append(str(fault))
                except Unavailable as failure:
                    failures.append(str(failure))
                self._guides.failed(node)
            return False

        if await follow_one_of(scouted):
            return
        resolution = self._parts.agreement.outcomes.resolution(self.round + 1)
        aborted = resolution if resolution is not None and resolution.result is None else None
        if aborted is not None and await self._publish_abort(aborted):
            return
        members = self._guides.members()
        # A member that stalls must not cost its timeout every page.
        if await follow_one_of(members):
            return
        wanted = [self.newest.vertex_id]
        if resolution is not None and resolution.result is not None:
            happened = await self._round(self.plan(), None).execute_resolved(resolution)
            if await self._conclude(happened, self._parts.bytes_sent()):
                return
            wanted.append(resolution.result.vertex_id)
        holders = await self._parts.holders(wanted)
        if await follow_one_of(node for node in holders if node not in members):
            return
        raise Unavailable("; ".join(failures) or "nobody has more than we do")

    async def _follow(self, member: NodeId, page: Page | None) -> bool:
        """Follow the member's page, asked for unless it is at hand; False if it has none."""
        parts, tip = self._parts, await self._parts.chain.resume_point()
        if page is None:
            page = await self._guides.ask(member, tip, self._facts.validators)
        if page is None:
            return False
        check_page(page, tip, self.newest, self._facts.validators.copy())
        assert self.state is not None
        states = [self.state]
        try:
            for vertex, _ in page.vertices:
                reached = await step_to(vertex, states[-1], parts.peers, parts.trainer, member)
                states.append(reached)
        except NotHeld:
            await self._leap(page, Stand(tip, self.newest, self.state, self.round), member)
            return True
        await self._publish(page)
        self.round = max(self.round, rounds_in(page))
        await parts.agreement.caught_up(page.certificate, page.blocks)
        for (vertex, proof), reached in zip(page.vertices, states[1:], strict=True):
            self.newest, self.state = vertex, reached
            if vertex is page.vertices[-1][0]:
                await self._evaluate()
            self._record(vertex, proof, 0, 0.0)
        await self._tidy_work()
        parts.events.emit(events.CAUGHT_UP, height=self.newest.height, round=self.round)
        return True

    async def _leap(self, page: Page, start: Stand, member: NodeId) -> None:
        """Come back over vertices whose deltas nobody has. Raises as Leap.run does."""
        facts, parts = self._facts, self._parts
        leap = Leap(
            parts.chain,
            parts.peers,
            parts.trainer,
            facts.validators.copy(),
            facts.snapshot_every,
            start,
            self._guides.next_page,
        )
        landed = await leap.run(page, member)
        await parts.agreement.published(parts.chain.final_tip[0])
        async for blocks, certificate in leap.gap.pages():
            await parts.agreement.caught_up(certificate, blocks)
        self.newest, self.state, self.round = landed.newest, landed.state, landed.round
        await self._evaluate()
        self.records.clear()
        await self.recall()
        proof = await parts.chain.exec_certificate(self.newest.vertex_id)
        del self.records[-1:]  # the newest, recorded below as news
        assert proof is not None, "published"
        self._record(self.newest, proof, 0, 0.0)
        await self._tidy_work()
        parts.events.emit(
            events.GAP_CROSSED, from_height=start.newest.height, height=self.newest.height
        )
        parts.events.emit(events.CAUGHT_UP, height=self.newest.height, round=self.round)

    async def _publish(self, page: Page) -> None:
        parts = self._parts
        await publish_all(parts.chain, page, self._facts.snapshot_every)
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
        facts, parts = self._facts, self._parts
        loss_nats = self.loss_nats if self.loss_nats is not None else 0.0
        parent = self.newest
        return RoundContext(
            me=facts.me,
            committee=facts.validators.committee(facts.validators.epoch_of(plan.round)),
            plan=plan,
            state=self.state,
            rules=facts.rules,
            agreement=parts.agreement,
            trainer=parts.trainer,
            store=parts.work,
            offload=parts.offload,
            events=parts.events,
            fetch_update=parts.peers.fetch_update,
            fault=parts.fault,
            vertex_of=lambda block, stepped: _vertex_of(facts.validators, parent, block, stepped),
            # The schedule follows the chain, so that a newcomer joins at everybody's rate.
            first_step=parent.height * facts.rules.rounds.inner_steps_max,
            merged_round=self._merged_round(),
            upload_bytes_per_s=self.upload_bytes_per_s,
            base_loss_micronats=max(0, round(loss_nats * 1e6)),
        )

    async def _conclude(self, happened: Happened, sent_before: int) -> bool:
        """Publish how the round ended; False if only the others' checkpoint can tell."""
        resolution, parts = happened.resolution, self._parts
        if resolution is None:
            return False
        if resolution.result is None:
            return await self._publish_abort(resolution)
        proof = parts.agreement.exec_certificate(resolution.round)
        vertex = self._own_vertex(happened, resolution.result)
        blocks = await self._blocks_to(resolution)
        if vertex is None or proof is None or blocks is None:
            return False
        self.phase = "publishing"
        assert happened.stepped is not None
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
        self.newest, self.state = vertex, happened.stepped.state
        self.round = resolution.round
        await self._evaluate()
        self._record(vertex, proof, parts.bytes_sent() - sent_before, happened.wall_s)
        await self._tidy_work()
        return True

    def _own_vertex(self, happened: Happened, result: ResultPayload) -> Vertex | None:
        """The vertex of our own execution, if it is the certified one."""
        resolution, stepped = happened.resolution, happened.stepped
        if stepped is None or resolution is None:
            return None
        vertex = _vertex_of(self._facts.validators, self.newest, resolution.set_block, stepped)
        assert vertex.vertex_id == result.vertex_id, (
            f"executed {vertex.vertex_id.hex()}, the committee certified {result.vertex_id.hex()}:"
            " this node's aggregation differs from everybody else's"
        )
        return vertex

    async def _publish_abort(self, resolution: Resolution) -> bool:
        blocks = await self._blocks_to(resolution)
        if blocks is None:
            return False
        await self._publish(Page(blocks, resolution.certificate, ()))
        self.round = resolution.round
        self._parts.events.emit(events.ROUND_ABORTED, round=resolution.round)
        await self._tidy_work()
        return True

    async def _evaluate(self) -> None:
        assert self.state is not None
        try:
            self.loss_nats = await self._parts.trainer.evaluate(self.state)
            if self.loss_watch.look(self.loss_nats):
                self._parts.events.emit(
                    events.LOSS_JUMPED,
                    height=self.newest.height,
                    loss_nats=self.loss_nats,
                    why=self.loss_watch.alarm,
                )
        except TrainerFailed as failure:
            # A loss is for people; without it the round goes on.
            self._parts.events.emit(events.TRAINER_REFUSED, why=str(failure))
            self.loss_nats = None

    async def recall(self) -> None:
        """List the rounds that the chain holds already; each loss is what the next set reported."""
        chain = self._parts.chain
        ids = chain.graph.canonical_order()
        vertices = [v for vertex_id in ids if (v := await chain.vertex(vertex_id)) is not None]
        for vertex, child in zip(vertices, [*vertices[1:], None], strict=True):
            told = None if child is None else told_loss_micronats(child)
            loss_nats = self.loss_nats if child is None else told and told / 1e6
            proof = await chain.exec_certificate(vertex.vertex_id)
            self.records.append(_record_of(vertex, proof, loss_nats, 0, 0.0))
        self.loss_watch.look_back(record.loss_nats for record in self.records)
        del self.records[:-ROUNDS_LISTED_MAX]

    def _merged_round(self) -> int:
        """The newest round whose certified set holds an update of ours; -1 before there is one."""
        me = self._facts.me.hex()
        rounds = (r.training_round for r in reversed(self.records) if me in r.contributors)
        return next(rounds, -1)

    def _record(self, vertex: Vertex, proof: Certificate, sent: int, wall_s: float) -> None:
        record = _record_of(vertex, proof, self.loss_nats, sent, wall_s)
        self.records.append(record)
        del self.records[:-ROUNDS_LISTED_MAX]
        self._parts.events.emit(
            events.ROUND_FINALIZED,
            round=vertex.training_round,
            height=vertex.height,
            vertex_id=vertex.vertex_id,
            loss_nats=self.loss_nats,
            contributors=len(vertex.contributors),
            wall_s=round(wall_s, 3),
            bytes_sent=sent,
        )

    async def _tidy_work(self) -> None:
        """Drop updates and states that no open round needs any more."""
        work, vertex = self._parts.work, self.newest
        states = {vertex.model_root, vertex.outer_state_root}
        for parent_id in vertex.parents:
            parent = await self._parts.chain.vertex(parent_id)
            if parent is not None:
                states |= {parent.model_root, parent.outer_state_root}
        for root in await work.blob_roots("states"):
            if root not in states:
                await work.delete_blob("states", root)
        kept = _updates_wanted(vertex, self._parts.agreement.outcomes.resolution(self.round))
        for root in {*await work.blob_roots("updates"), *self._unfinished} - kept:
            await work.delete_blob("updates", root)
        self._unfinished &= kept


def _updates_wanted(newest: Vertex, resolution: Resolution | None) -> set[BlobRoot]:
    """Blobs of the round just resolved: peers may still execute it."""
    kept = {newest.delta_root}
    if resolution is not None:
        payload = resolution.set_block.payload
        kept |= {offer.blob_root for offer in getattr(payload, "offers", ())}
    return kept


def _record_of(
    vertex: Vertex, proof: Certificate | None, loss_nats: float | None, sent: int, wall_s: float
) -> RoundRecord:
    signers = () if proof is None else tuple(signer.hex() for signer, _ in proof.signatures)
    return RoundRecord(
        height=vertex.height,
        training_round=vertex.training_round,
        vertex_id=vertex.vertex_id.hex(),
        loss_nats=loss_nats,
        certified_by=signers,
        contributors=tuple(facts.author.hex() for facts in vertex.contributors),
        bytes_sent=sent,
        wall_s=round(wall_s, 3),
    )


def _vertex_of(known: Validators, parent: Vertex, block: Block, stepped: SteppedState) -> Vertex:
    root = known.domain(block.epoch).validator_set_root
    return vertex_of(parent, block, stepped, root, known.convicted_by(block))
