"""One outer round, top to bottom: train, seal, offer, collect, decide, execute, certify.

    run
      |-- gather      offers -> blobs -> checks -> Acks, until the collection closes
      |-- contribute  train and seal, then offer (only if there is work of ours)
      |-- rehearse    the set that we voted for -> aggregate and step, while votes are on their way
      `-- settle      decided set -> aggregate and step -> Exec -> result or abort, final

It ends when the round is resolved by a final block, whoever did the work. If that block is a
result and we have not executed it by then, the state is caught up by replaying the delta; so it
always is with who does not merge. A round that we offered for before a restart is not trained
again: the signer would refuse a second Offer.
"""

from dataclasses import dataclass, field
from functools import partial

import trio

from daa_consensus.bft.messages import Block, OfferBody, SetPayload
from daa_consensus.votes import Kind
from daa_dag.checkpoint import result_root
from daa_dag.ids import BlobRoot, Digest
from daa_node.agreement.outcomes import Resolution
from daa_node.errors import PeerFault, RuleUnbounded, StorageFailed, TrainerFailed
from daa_node.observability import events
from daa_node.rounds.closing import MayClose
from daa_node.rounds.context import RoundContext
from daa_node.rounds.gather import Gather
from daa_node.rounds.observing import observed
from daa_node.rounds.own_boundaries import keep_boundaries
from daa_node.rounds.voiding import check_bound, counted
from daa_node.seams import AggregateOrder, SealedUpdate, SteppedState, TrainOrder, WeightedUpdate
from daa_node.spot_checks.checks import Basis
from daa_node.spot_checks.usefulness import worths
from daa_node.training.steps_in_time import reported_us_per_step

# Whoever is about to have executed need not fetch what it has; with no trainer, others are quicker.
# It has as long as the others took, if that is longer: a large model is merged for a while.
EXECUTE_GRACE_S = 1.0
TRAIN_TRIES_MAX = 2
EXECUTE_TRIES_MAX = 2  # a trainer that died once is restarted and asked again
EXECUTE_RETRY_S = 2.0  # then others are given the time to execute without us


@dataclass(frozen=True, slots=True)
class Work:
    """What we contribute to the round: at most so many steps and seconds; None if we only serve."""

    steps: int
    codec: str
    stop_after_s: float
    awaited: bool = True  # False: the worker is only starting, and the round does not wait for it


@dataclass(slots=True)
class Happened:
    """What came of one round, for reflection. Times in seconds."""

    round: int
    wall_s: float = 0.0
    trained_s: float | None = None
    spread_s: float | None = None
    offered: bool = False
    own_included: bool | None = None  # None: no decided set was seen here
    left_out: int = 0
    sealed: SealedUpdate | None = None
    sealed_at_s: float | None = None  # on trio's clock
    resolution: Resolution | None = None
    stepped: SteppedState | None = None
    contributors: list[OfferBody] = field(default_factory=list)
    unfinished: set[BlobRoot] = field(default_factory=set)  # updates of which a part may be here


@dataclass(slots=True)
class _Rehearsal:
    """An execution before the decision."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    over: trio.Event = field(default_factory=trio.Event)
    expected: SetPayload | None = None
    stepped: SteppedState | None = None


class SynchronousRound:
    """The walk of one round on one base; a fresh one every round."""

    def __init__(
        self,
        context: RoundContext,
        work: Work | None,
        may_close: MayClose,
    ) -> None:
        self._context = context
        self._work = work
        self._plan = context.plan
        self._gather = Gather(context, may_close)
        # As the round began: who says it later has had others wait for it.
        self._never_train = context.peers.who_never_train(
            {share.author for share in context.plan.shares}
        )
        self.happened = Happened(context.plan.round)
        self._executing = False
        self._executed = trio.Event()
        self._decided_s = trio.current_time()  # when we saw which set it is
        self._contributing = trio.CancelScope()
        self._kept_boundaries = False
        self._rehearsal = _Rehearsal()

    async def run(self) -> Happened:
        """Return once the round is resolved: by result, by abort, or by others without us."""
        context, started_s = self._context, trio.current_time()
        context.agreement.open_round(self._plan.round, self._gather)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._gather.run)
            if self._offered_before():
                self._gather.closing.own_ready()
            elif self._work is not None:
                nursery.start_soon(self._contribute_in_time, self._work)
            elif not context.contributes:
                nursery.start_soon(self._judge)
            if self._work is None or not self._work.awaited:
                self._gather.closing.own_missing()
            if context.merges:
                nursery.start_soon(self._rehearse)
            nursery.start_soon(self._settle)
            self.happened.resolution = await context.agreement.outcomes.resolved(self._plan.round)
            if self._executing and not self._aborted():
                took_s = trio.current_time() - self._decided_s
                with trio.move_on_after(max(EXECUTE_GRACE_S, took_s)):
                    await self._executed.wait()
            nursery.cancel_scope.cancel()
        self._tell_spread()
        await self._keep_boundaries()  # unless that was done before the others ended the round
        self.happened.unfinished = self._gather.collection.unfinished()
        self.happened.wall_s = trio.current_time() - started_s
        return self.happened

    async def execute_resolved(self, resolution: Resolution) -> Happened:
        """Execute a round that is final, because nobody has its checkpoint.

        So it is after every node was killed between the result and its publication. `stepped` is
        None if the contributions or the trainer are out of reach within the time for executions.
        """
        context, set_block = self._context, resolution.set_block
        assert isinstance(set_block.payload, SetPayload)
        self.happened.resolution = resolution
        context.agreement.open_round(self._plan.round, self._gather)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._gather.run)
            with trio.move_on_after(context.rules.rounds.exec_s):
                self.happened.stepped = await self._execute(set_block.payload)
            nursery.cancel_scope.cancel()
        self.happened.unfinished = self._gather.collection.unfinished()
        self._note_decided(set_block, set_block.payload)
        return self.happened

    def _tell_spread(self) -> None:
        sealed = self.happened.sealed
        if sealed is not None and self.happened.offered:
            self._context.events.emit(
                events.UPDATE_SPREAD,
                round=self._plan.round,
                size_bytes=sealed.size_bytes,
                sent_bytes=self._context.peers.sent_bytes(sealed.blob_root),
            )

    def _aborted(self) -> bool:
        resolution = self.happened.resolution
        return resolution is not None and resolution.result is None

    def _offered_before(self) -> bool:
        own = self._context.agreement.own_statement(Kind.OFFER, self._plan.round)
        self.happened.offered = own is not None
        return self.happened.offered

    async def _contribute_in_time(self, work: Work) -> None:
        with self._contributing:
            await self._contribute(work)
        await self._keep_boundaries()

    async def _judge(self) -> None:
        """Whoever never trains has as long for what others dispute as they train."""
        context, train_s = self._context, self._plan.train_us / 1e6
        with self._contributing:
            await context.spot_checks.recompute(train_s)  # of when it did train
            await context.disputes.work_off(train_s)

    async def _contribute(self, work: Work) -> None:
        context, plan = self._context, self._plan
        began_s = trio.current_time()
        await context.spot_checks.recompute(work.stop_after_s)
        await context.disputes.work_off(work.stop_after_s - (trio.current_time() - began_s))
        checked_s = trio.current_time() - began_s
        order = TrainOrder(
            base=context.state,
            seed=plan.seed,
            round=plan.round,
            author=context.me,
            steps_max=work.steps,
            stop_after_s=work.stop_after_s - checked_s,
            codec=work.codec,
            first_step=context.first_step,
            merged_round=context.merged_round,
            segment_steps=plan.segment_steps,
            ahead_max=context.rules.ahead_max(plan, work.steps),
        )
        sealed = await self._train(order)
        if sealed is None or context.agreement.outcomes.is_decided(plan.round):
            return
        self.happened.sealed, self.happened.sealed_at_s = sealed, trio.current_time()
        context.peers.note_own(sealed.blob_root)
        context.events.emit(
            events.UPDATE_SEALED,
            round=plan.round,
            steps=sealed.steps,
            tokens=sealed.tokens,
            loss_nats=sealed.loss_nats,
            size_bytes=sealed.size_bytes,
            seal_s=round(sealed.seal_s, 4),
        )
        contribution = OfferBody(
            round=plan.round,
            author=context.me,
            base_vertex_id=plan.base,
            blob_root=sealed.blob_root,
            size_bytes=sealed.size_bytes,
            codec=sealed.codec,
            steps=sealed.steps,
            tokens=sealed.tokens,
            us_per_step=reported_us_per_step(
                sealed.us_per_step, plan.train_us, context.rules.rounds.inner_steps_max
            ),
            upload_bytes_per_s=context.upload_bytes_per_s,
            base_loss_micronats=context.base_loss_micronats,
            snapshot_roots=sealed.snapshot_roots,
        )
        self.happened.offered = await context.agreement.sign_and_send(
            Kind.OFFER, plan.round, contribution.as_value()
        )
        self._gather.closing.own_ready()

    async def _train(self, order: TrainOrder) -> SealedUpdate | None:
        """None if workers died on us. The second one's update counts if it comes in time."""
        for _ in range(TRAIN_TRIES_MAX):
            started_s = trio.current_time()
            try:
                sealed = await self._context.trainer.train_and_seal(order)
            except TrainerFailed as failure:
                self._context.events.emit(
                    events.TRAINER_REFUSED, round=order.round, why=str(failure)
                )
                self._gather.closing.own_missing()
                continue
            self.happened.trained_s = trio.current_time() - started_s
            return sealed
        return None

    async def _keep_boundaries(self) -> None:
        """What we may be asked for if our contribution is drawn, once the others have our Offer."""
        context, sealed = self._context, self.happened.sealed
        if self._kept_boundaries or sealed is None or not sealed.snapshot_roots:
            return
        if not self.happened.offered:
            return
        roots = sealed.snapshot_roots
        await keep_boundaries(context.trainer, roots, self._plan.round, context.events)
        self._kept_boundaries = True

    async def _settle(self) -> None:
        """Follow the decided set to our Exec; the final block that ends the walk comes later."""
        context, round_number = self._context, self._plan.round
        set_block = await context.agreement.outcomes.decided(round_number)
        assert isinstance(set_block.payload, SetPayload)
        decided = set_block.payload
        self._decided_s = trio.current_time()
        self._contributing.cancel()  # whatever still trains is too late, and in the worker's way
        self._note_decided(set_block, decided)
        if not context.merges:
            return
        try:
            check_bound(decided)
        except RuleUnbounded as failure:
            self._abort(str(failure))
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._abort_when_late)
            self._executing = True
            stepped = await self._rehearsed(decided) or await self._execute(decided)
            while stepped is None:
                # Others may have sent Exec, and then neither result nor abort has a quorum without
                # us: tried again until the round is closed.
                await trio.sleep(EXECUTE_RETRY_S)
                stepped = await self._execute(decided)
            self.happened.stepped = stepped
            self._executed.set()
            vertex = context.vertex_of(set_block, stepped)
            await context.agreement.sign_and_send(
                Kind.EXEC, round_number, [vertex.vertex_id, _result_root_of(stepped)]
            )
            await self._measure(counted(decided))

    async def _measure(self, merged: SetPayload) -> None:
        """What the contributions are worth to each other, while the round is being closed."""
        context, offers = self._context, merged.offers
        try:
            blobs = [await context.store.view_blob("updates", each.blob_root) for each in offers]
            measuring = partial(context.rules.usefulness, self._plan, offers, blobs)
            measures = await context.offload.run(measuring)
        except (StorageFailed, PeerFault):  # damaged since: nothing depends on this
            return
        context.spot_checks.usefulness.note(measures)
        context.health.note_useful(self._plan.round, worths(measures))
        for author, one in measures.items():
            context.events.emit(
                events.UPDATE_MEASURED,
                round=one.round,
                author=author,
                norm=one.norm,
                cosine=one.cosine,
                distance=one.distance,
                agreement=one.agreement,
            )

    def _abort(self, why: str) -> None:
        context, round_number = self._context, self._plan.round
        context.events.emit(events.ABORT_DUE, round=round_number, reason=why)
        context.agreement.abort_due(round_number)

    async def _rehearse(self) -> None:
        """Execute the set that will most likely be decided, so that nobody waits for it then.

        Aggregating is work, deciding is waiting for links and disks: the two go well together.
        Nothing is said of the outcome before the set is final.
        """
        rehearsal = self._rehearsal
        expected = await self._gather.expected()
        try:
            check_bound(expected)
        except RuleUnbounded:
            return  # it will be aborted, not executed
        rehearsal.expected = expected
        with rehearsal.scope:
            rehearsal.stepped = await self._execute(expected, tries_max=1)
        rehearsal.over.set()

    async def _rehearsed(self, decided: SetPayload) -> SteppedState | None:
        """What the rehearsal of this very set came to; None if it was another set, or failed."""
        rehearsal = self._rehearsal
        if rehearsal.expected is None or not _same_execution(rehearsal.expected, decided):
            rehearsal.scope.cancel()
            return None
        await rehearsal.over.wait()
        return rehearsal.stepped

    async def _abort_when_late(self) -> None:
        exec_s = self._context.rules.rounds.exec_s
        await trio.sleep(exec_s)
        self._abort(f"no execution certificate after {exec_s:.1f} s")

    async def _execute(
        self, decided: SetPayload, tries_max: int = EXECUTE_TRIES_MAX
    ) -> SteppedState | None:
        """Aggregate and step; None if our trainer could not."""
        context, merged = self._context, counted(decided)
        try:
            await self._gather.hold_intact(decided.offers)
        except StorageFailed as failure:
            context.events.emit(events.STORAGE_FAILED, detail=str(failure))
            return None
        order = AggregateOrder(
            base=context.state,
            updates=tuple(
                WeightedUpdate(c.author, c.blob_root, c.codec, weight)
                for c, weight in zip(merged.offers, merged.weights, strict=True)
            ),
            rule=decided.rule,
            f_agg=decided.f_agg,
        )
        started_s = trio.current_time()
        for _ in range(tries_max):
            try:
                stepped = await context.trainer.aggregate_and_step(order)
            except TrainerFailed as failure:
                context.events.emit(
                    events.TRAINER_REFUSED, round=self._plan.round, why=str(failure)
                )
                continue
            wall_s = round(trio.current_time() - started_s, 4)
            context.events.emit(events.SET_EXECUTED, round=self._plan.round, wall_s=wall_s)
            return stepped
        return None

    def _note_decided(self, set_block: Block, decided: SetPayload) -> None:
        happened, context = self.happened, self._context
        basis = Basis(self._plan.seed, context.state, context.first_step, context.merged_vertex)
        context.spot_checks.decided(basis, set_block)
        context.disputes.decided(basis, set_block)
        happened.contributors = list(decided.offers)
        offered, authors = self._gather.collection.authors(), {c.author for c in decided.offers}
        here = context.peers.reachable()
        seen = observed(self._plan, decided, offered, here, self._never_train)
        context.health.note_round(self._plan.round, seen)
        happened.own_included = context.me in authors
        happened.left_out = len(offered - authors)
        happened.spread_s = self._gather.closing.spread_s
        context.events.emit(
            events.SET_DECIDED,
            round=self._plan.round,
            contributors=len(authors),
            ours=context.me in authors,
            left_out=happened.left_out,
        )
        for found, is_voided in self._gather.voiding.found_in(decided):
            context.events.emit(
                events.COPY_FOUND,
                round=self._plan.round,
                author=found.copy.author,
                root=found.copy.root,
                origin=found.origin.author,
                origin_root=found.origin.root,
                distance=found.distance,
                voided=is_voided,
            )


def _same_execution(one: SetPayload, other: SetPayload) -> bool:
    """Whether both aggregate the same; evidence, operations and Acks play no part in that."""

    def fields(payload: SetPayload) -> tuple[object, ...]:
        return (payload.round, payload.offers, payload.weights, payload.rule, payload.f_agg)

    return fields(one) == fields(other)


def _result_root_of(stepped: SteppedState) -> Digest:
    state = stepped.state
    return result_root(state.model_root, state.outer_root, stepped.delta_root)
