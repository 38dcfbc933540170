"""From a set that is voted on to the next height: execution, result or abort.

Whoever voted merges while the votes are on their way; a quorum of executions makes the result. If
no quorum has executed within the time for it, or the rule's bound fails, the round is aborted.
"""

from functools import partial

from daa_consensus.bft.messages import NO_BLOCK, Block, ResultPayload, SetPayload
from daa_dag.checkpoint import result_root
from daa_dag.ids import ChainId
from daa_node.checkpoints.publish import vertex_of
from daa_node.errors import RuleUnbounded
from daa_node.rounds.synchronous import EXECUTE_GRACE_S
from daa_node.updates.aggregation.rule import rule_named
from simnet.determinism import FINAL, ROUND
from simnet.heap.training_member import Member
from simnet.heap.training_round import OpenRound
from simnet.heap.training_world import TrainingWorld
from simnet.links import MS, NS
from simnet.training.tally import Stage


class Execution:
    """Merging, and what ends a round."""

    def __init__(self, world: TrainingWorld) -> None:
        self._world = world
        self._tip = NO_BLOCK
        self._chain_id = ChainId(bytes(world.newest.vertex_id))

    def try_execute(self, member: Member) -> None:
        """Merge the set that we voted for, or that is decided, once we hold all of it."""
        world, opened, attempt = self._world, self._world.open, member.attempt
        if attempt is None or opened.proposal is None or not member.is_able:
            return
        if not world.reach.is_told(member.node):
            return
        judged = attempt.closed_ns is not None and opened.is_judged_at(world.now_ns)
        if not judged and opened.decided_ns is None:
            return
        if member.work is not None or member.node in opened.executed or opened.over:
            return
        if not world.links.holds[opened.authors, member.node].all():
            return
        done = partial(self._executed, opened, member)
        world.begin(member, Stage.MERGING, world.work_ns, done)

    def decided(self, opened: OpenRound, chosen: SetPayload) -> None:
        """A set is final: it is executed, or the round aborted."""
        world = self._world
        self._note_final("set")
        try:
            rule_named(chosen.rule).check_bound(len(chosen.offers), chosen.f_agg)
        except RuleUnbounded:
            self._abort(opened)
            return
        world.agenda.after(world.rounds.exec_ms * MS, partial(self._late, opened))
        self._try_certify(opened)
        for member in world.members:
            self.try_execute(member)

    def look_again(self) -> None:
        """Others are reached now than before."""
        self._try_certify(self._world.open)
        for member in self._world.members:
            self.try_execute(member)

    def _executed(self, opened: OpenRound, member: Member) -> None:
        opened.executed[member.node] = self._world.now_ns
        if opened.over:  # others were a little quicker
            self._stand_at(opened.parent.height + 1, member)
        else:
            self._try_certify(opened)

    def _try_certify(self, opened: OpenRound) -> None:
        world = self._world
        if opened.decided_ns is None or opened.certified or opened.over:
            return
        if world.weight(list(opened.executed)) < world.votes.committee.quorum:
            return
        opened.certified = True
        world.agenda.after(world.votes.word_ns, partial(self._close_round, opened))

    def _close_round(self, opened: OpenRound) -> None:
        world = self._world
        nullified = world.votes.nullified
        wait_ns = world.votes.block_ns(world.takes_part)
        if world.votes.nullified > nullified:
            world.books.hit("a view was nullified")
        done = partial(self._result, opened)
        world.agenda.after(wait_ns, partial(world.with_quorum, done))

    def _late(self, opened: OpenRound) -> None:
        if opened is self._world.open and not opened.certified:
            self._abort(opened)

    def _abort(self, opened: OpenRound) -> None:
        opened.certified = True  # nothing else may end it
        world, done = self._world, partial(self._aborted, opened)
        wait_ns = world.votes.block_ns(world.takes_part)
        world.agenda.after(wait_ns, partial(world.with_quorum, done))

    def _aborted(self, opened: OpenRound) -> None:
        world = self._world
        self._note_final("abort")
        world.books.aborted += 1
        world.books.hit("a round was aborted")
        for member in self._turn_page(opened):
            world.parts.authors.enter(member, world.votes.hop_ns)

    def _result(self, opened: OpenRound) -> None:
        """The round is final: the next one begins for whoever has executed it."""
        world, decided = self._world, opened.proposal
        assert decided is not None, "what was executed was proposed"
        set_block = Block(
            self._chain_id, 0, world.votes.view, opened.plan.round, self._tip, 0, decided
        )
        stepped = world.payload.merge(decided)
        root = opened.parent.validator_set_root
        world.newest = vertex_of(opened.parent, set_block, stepped, root)
        result = ResultPayload(
            opened.plan.round,
            world.newest.vertex_id,
            result_root(stepped.state.model_root, stepped.state.outer_root, stepped.delta_root),
        )
        block = Block(
            self._chain_id, 0, world.votes.view + 1, opened.plan.round, set_block.id, 0, result
        )
        self._tip = block.id
        self._note_final("result")
        world.loss_nats = world.payload.loss_nats()
        self._keep_books(opened, decided)
        for member in self._turn_page(opened):
            self._go_on(member, opened)

    def _turn_page(self, opened: OpenRound) -> list[Member]:
        """The round is over and the next one open; returns who was in it and goes on."""
        world = self._world
        opened.over = True
        world.newest_round = opened.plan.round
        world.parts.transfers.settle()
        world.open = world.new_round()
        world.parts.transfers.changed()
        inside = [member for member in world.members if member.attempt is not None]
        for member in inside:
            if not member.is_able:  # it finds out when it is resumed
                member.attempt, member.work = None, None
            elif not world.reach.is_told(member.node):
                world.books.hit("a node was left behind")
                member.go_astray()
        for member in world.members:
            if member.is_astray and member.is_able and world.reach.is_told(member.node):
                world.parts.authors.enter(member, world.votes.hop_ns)
        return [member for member in inside if member.attempt is not None]

    def _go_on(self, member: Member, opened: OpenRound) -> None:
        world = self._world
        if member.node in opened.executed:
            self._stand_at(world.newest.height, member)
            return
        work = member.work if member.account.stage is Stage.MERGING else None
        if work is not None and work.until_ns <= world.now_ns + int(EXECUTE_GRACE_S * NS):
            return  # it is about to have executed
        world.parts.transfers.catch_up(member)

    def _stand_at(self, height: int, member: Member) -> None:
        world = self._world
        member.height = height
        world.trace.note(
            world.now_ns,
            ROUND,
            node=member.node,
            height=member.height,
            vertex=world.newest.vertex_id.hex(),
            loss_nats=world.loss_nats,
            contributors=len(world.newest.contributors),
        )
        world.parts.authors.enter(member, world.votes.hop_ns)

    def _keep_books(self, opened: OpenRound, decided: SetPayload) -> None:
        world, books = self._world, self._world.books
        books.sets.append(len(decided.offers))
        books.round_ns.append(world.now_ns - opened.opened_ns)
        books.certified_ns.append(world.now_ns)
        books.tokens_total = world.newest.tokens_total
        if world.loss_nats is not None:
            books.losses.append((world.now_ns / NS, world.loss_nats))
        by_id = {member.node_id: member for member in world.members}
        for offer in decided.offers:
            member = by_id[offer.author]
            member.merged_round = opened.plan.round
            member.account.rounds += 1
            member.account.steps_certified += offer.steps
            member.account.tokens_certified += offer.tokens
            member.account.useful_ns += offer.steps * offer.us_per_step * 1000

    def _note_final(self, payload: str) -> None:
        world = self._world
        if payload == "set":
            world.votes.finalized()
        world.trace.note(
            world.now_ns,
            FINAL,
            node=world.votes.leader(),
            height=world.open.plan.round,
            view=world.votes.view,
            payload=payload,
        )
