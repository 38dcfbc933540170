"""One life of one validator, from start to crash: the daemon's own agreement code on a heap.

The machine, the signer, what is kept, the letters and the restart are the daemon's. What the daemon
does with tasks is done with events here: the inbox, the questions that take time, the rounds.

    letter --reception--> events --+
    timers, answers ---------------+--> machine.step --> effects --EffectsHost--> letters, disk
    own signed words --------------+

A round has no training: a decided set is executed after a while, as everybody would execute it.
Changes of the validator set are asked for at the daemon's own desk (`petitions`), and who is behind
follows others by pages of checkpoints (consensus_course).
"""

import random
from collections import deque
from collections.abc import Callable, Container, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import outcome

from daa_consensus.bft.effects import Accuse, AskPayload, Effect, EnteredView, Finalized, Keep
from daa_consensus.bft.events import (
    AbortDue,
    CertificateArrived,
    DataHeld,
    Event,
    ExecSigned,
    Judged,
    PayloadChosen,
    RoundReady,
    Tick,
)
from daa_consensus.bft.messages import Block, ResultPayload, SetPayload
from daa_consensus.bft.state import Simplex
from daa_consensus.errors import BadMessage, NoQuorum
from daa_consensus.membership import Membership
from daa_consensus.operations import Operation
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import BlockId, Digest, NodeId, VertexId, tagged_digest
from daa_node.agreement.carried import loaded, why_unproven
from daa_node.agreement.effects_host import EffectsHost
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.inbox import Inbox
from daa_node.agreement.letters import Asked, Greeting, Position, Said
from daa_node.agreement.outcomes import Outcomes
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.questions import Questions
from daa_node.agreement.reception import Reception
from daa_node.agreement.round_talk import RoundTalk
from daa_node.agreement.showing import Showing
from daa_node.agreement.writer import Writer
from daa_node.errors import PeerFault, Refused, StorageFailed
from simnet.heap.consensus_post import Post

if TYPE_CHECKING:
    from simnet.heap.consensus_publisher import Publisher

EXEC_DELTAS = 2  # a decided set is executed within so many
HEAVY_ONE_IN = 5  # sets, by their names
HEAVY_EXEC_DELTAS = 16  # are executed within so many, by three nodes in four
LATE_ONE_IN = 6  # sets, by their names
LATE_NODES_ONE_IN = 4  # has their data late, where data may be
ABORT_DELTAS = 6  # the deadline of a round's execution, or up to half as much later
WINDOW_DELTAS = 2  # a round's window ends within so many
RESEND_DELTAS = 6  # between repetitions of own Offers, Acks and Execs

T = TypeVar("T")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run to its end a coroutine that has nobody to wait for. Called inside of a trio run.

    The scheduler is left out: where the code offers to let others run, it goes on. That is what
    makes a signature cost microseconds here instead of two trips around trio's loop.
    """
    try:
        offer = work.send(None)
        while True:
            assert not hasattr(offer, "abort_func"), f"{work} waits for somebody"
            offer = work.send(outcome.Value(None))
    except StopIteration as end:
        return cast(T, end.value)


def result_of(block: Block) -> ResultPayload:
    """What every honest node computes from a decided set."""
    vertex_id = VertexId(tagged_digest("vertex", block.id))
    return ResultPayload(block.height, vertex_id, Digest(tagged_digest("result", block.id)))


class Around(Protocol):
    """What a life needs of its host."""

    publisher: "Publisher"
    data_deltas: int  # within which a set's data is here, at the latest

    def now_ns(self) -> int:
        """By the node's own clock."""

    def later(self, delay_ns: int, work: Callable[[], None]) -> None:
        """Do `work` if this life still lasts then."""

    def alarm(self, local_ns: int) -> None:
        """Step with a Tick at that moment of the node's own clock."""

    def finalized(self, effect: Finalized) -> None: ...

    def kept(self, effect: Finalized) -> None: ...

    def knows(self, tip: BlockId, known: Membership) -> None: ...

    def certificate(self, effect: Keep) -> None: ...

    def entered(self, effect: EnteredView) -> None: ...

    def mark(self, name: str) -> None: ...

    def result(self, honest: ResultPayload) -> ResultPayload | None: ...

    def holds_data(self, block: Block) -> bool: ...

    def refused(self, block: Block, reason: str) -> None: ...


class Quiet:
    """A round without offers: nobody listens to its words."""

    def hear(self, signed: Signed) -> None:
        """Offers and Acks come only from who lies."""

    def lacks(self, roots: Any) -> Any:
        return ()

    def show(self, roots: Any) -> Any:
        return (), ()

    def shown(self, offers: Any, acks: Any) -> None:
        """As of Acks."""


@dataclass(slots=True)
class Answers:
    """The machine's questions, answered after a while; stands in for agreement/questions.py."""

    around: Around
    facts: Facts
    inbound: Inbound
    delta_ns: int
    chance: random.Random
    tell: Callable[[Event], None]
    unjudged: dict[BlockId, Block]
    views_left: int = 0

    def choose(self, ask: AskPayload) -> None:
        """A set without offers, with what the facts want to be in the next one."""

        def answer() -> None:
            flavour = self.chance.randrange(3)  # so that twins propose two blocks
            chosen = SetPayload(ask.round, (), (), "mean", flavour, (), (), ())
            payload = loaded(chosen, self.facts, self.inbound)
            self.tell(PayloadChosen(ask.view, payload))

        self._soon(answer)

    def judge(self, block: Block) -> None:
        payload, asked_in = block.payload, self.views_left
        assert isinstance(payload, SetPayload)

        def answer() -> None:
            other = None if payload.rule == "mean" else "another rule"
            reason = other or why_unproven(payload, self.inbound)
            # Once the view is over the set may be final here, and carry nothing new any more.
            if reason is not None and asked_in == self.views_left:
                self.around.refused(block, reason)
            self.tell(Judged(block.id, reason is None, reason or ""))

        self._soon(answer)

    def hold(self, block: Block) -> None:
        if self.around.holds_data(block):
            deltas = self.around.data_deltas
            if deltas > 1 and (
                block.id[-2] % LATE_ONE_IN or self.chance.randrange(LATE_NODES_ONE_IN)
            ):
                deltas = 1
            within_ns = deltas * self.delta_ns
            self.around.later(
                self.chance.randrange(1, within_ns), lambda: self.tell(DataHeld(block.id))
            )

    def leave_view(self) -> None:
        """An answer about a view that is over changes nothing."""
        self.views_left += 1

    def _soon(self, answer: Callable[[], None]) -> None:
        self.around.later(self.chance.randrange(self.delta_ns // 4), answer)


class Life:
    """From start to crash. Every public method runs to its end at once."""

    def __init__(
        self,
        parts: AgreementParts,
        machine: Simplex,
        resolved_round: int,
        open_set: Block | None,
        around: Around,
        chance: random.Random,
    ) -> None:
        self._parts = parts
        self.machine = machine
        self._around = around
        self._post = cast(Post, parts.mailbox)
        self._chance = chance
        self._first: deque[Event] = deque()
        self._posted: deque[tuple[NodeId, Event]] = deque()
        self._draining = False
        self.outcomes = Outcomes(resolved_round, open_set)
        self._talk = RoundTalk(parts.validators, parts.fault)
        self.facts = Facts(parts.inbound.limits)
        answers = Answers(around, self.facts, parts.inbound, parts.delta_ns, chance, self.tell, {})
        questions, inbox = cast(Questions, answers), cast(Inbox, self)
        self._writer = Writer(parts, self.position)
        self.step_with = self._first.append
        self.host = EffectsHost(parts, machine, self.facts, questions, inbox, self._writer)
        showing = Showing(parts, self._talk, questions, self._writer)
        self._reception = Reception(parts, self.facts, self._talk, self.host, showing, inbox)
        self._rejoin: Signed | None = None

    @property
    def signer_quarantine(self) -> str | None:
        return self._parts.signer.quarantine

    def position(self) -> Position:
        stand = self.machine.known.position
        resolved = self.outcomes.resolved_round
        return Position(stand.epoch, stand.view, stand.finalized_view, resolved, 0)

    def rounds_behind(self) -> int:
        """As WanBft: resolved rounds that surely honest members have and we do not."""
        claimed = self._reception.stands.resolved_round(self._parts.validators.now.committee)
        return max(0, claimed - self.outcomes.resolved_round)

    def heard_since(self, since_s: float) -> set[NodeId]:
        return self._reception.stands.heard_since(since_s)

    def begin(self, words: list[Signed], executions: list[Any], blocks: list[Block]) -> None:
        """Recall what a restart found, and go."""
        self.host.restored(blocks)
        for signed in words:
            self._talk.recall(signed)
        self._talk.open(self.outcomes.resolved_round + 1, cast(Any, Quiet()))
        for certificate in executions:
            self._reception.note_exec(certificate)
        self.tell(Tick())
        self._plan_round()
        self._say_again()

    def receive(self, sender: NodeId, payload: bytes) -> None:
        """A letter of another node."""
        if not self._post.reads(sender):
            return
        try:
            at_once(self._reception.receive(sender, payload))
        except PeerFault as fault:
            self._parts.fault(sender, fault)
        self._drain()

    def tell(self, event: Event) -> None:
        """Something happened here."""
        self._first.append(event)
        self._drain()

    def greet(self, member: NodeId) -> None:
        """A stream to the member was opened anew."""
        self._writer.send(member, Greeting())
        for signed in self._talk.own_words():
            self._writer.send(member, Said(signed))
        for operation in self.facts.brought_by(self._parts.me):
            self._writer.send(member, Asked(operation))

    def greet_members(self, names: Container[NodeId]) -> None:
        for member in self._post.members:
            if member in names:
                self.greet(member)

    def ask(self, operation: Operation) -> bool:
        """As WanBft."""
        if self.facts.note_operation(operation, self._parts.validators.now, self._parts.me):
            self._writer.broadcast(Asked(operation))
        return operation.request.id in self.facts.operations

    async def deliver(self, sender: NodeId, *events: Event) -> None:
        self._posted.extend((sender, event) for event in events)

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        while self._first or self._posted:
            if self._first:
                self._step(None, self._first.popleft())
            else:
                self._step(*self._posted.popleft())
        self._draining = False
        deadline_ns = self.machine.deadline_ns
        if deadline_ns is not None:
            self._around.alarm(deadline_ns)

    def _step(self, sender: NodeId | None, event: Event) -> None:
        try:
            effects = self.machine.step(self._around.now_ns(), event)
        except (BadMessage, NoQuorum) as fault:
            if sender is None:
                raise AssertionError("what we say ourselves is well-formed") from fault
            self._parts.fault(sender, PeerFault("bad_message", str(fault)))
            return
        if isinstance(event, CertificateArrived) and effects:
            self._around.mark("certificate fetched by who was behind")
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Finalized():
                self._around.finalized(effect)
                at_once(self.host.note_final(effect))
                self._around.kept(effect)
                known = self.machine.known
                self._around.knows(effect.blocks[-1].id, self._parts.validators.now)
                self._around.knows(known.chain.tip.id, known.membership)
                for resolution in self.outcomes.note(effect):
                    self._talk.resolved(resolution.round)
                    self._writer.broadcast(Greeting())
                    if resolution.blocks:
                        self._around.publisher.publish(resolution)
                self._plan_round()
            case Accuse(evidence):
                self._around.mark("evidence found")
                if evidence.first.statement.kind is Kind.PROPOSAL:
                    self._around.mark("leader twin seen")
                self._reception.accuse(evidence)
            case Keep():
                self._around.certificate(effect)
                at_once(self.host.carry_out(effect))
            case EnteredView():
                self._around.entered(effect)
                at_once(self.host.carry_out(effect))
            case _:
                at_once(self.host.carry_out(effect))

    # Rounds

    def _plan_round(self) -> None:
        """Execute an open round, or wait for the window of the next one."""
        chain, delta_ns, chance = self.machine.known.chain, self._parts.delta_ns, self._chance
        round_ = chain.tip.height
        if not chain.tip_open:
            if self._talk.round <= round_:
                self._talk.open(round_ + 1, cast(Any, Quiet()))
            ready_ns = chance.randrange(WINDOW_DELTAS * delta_ns)
            self._around.later(ready_ns, lambda: self.tell(RoundReady(round_ + 1)))
            return
        due_ns = ABORT_DELTAS * delta_ns + chance.randrange(ABORT_DELTAS * delta_ns // 2)
        self._around.later(due_ns, lambda: self.tell(AbortDue(round_)))
        if self._parts.me not in self.machine.known.committee.stake_of:
            return  # who only looks on signs nothing
        heavy = chain.tip.id[-1] % HEAVY_ONE_IN == 0 and chance.randrange(4)
        exec_ns = chance.randrange((HEAVY_EXEC_DELTAS if heavy else EXEC_DELTAS) * delta_ns)
        self._around.later(exec_ns, lambda: self._execute(round_))

    def _execute(self, round_: int) -> None:
        """Sign Exec and say it, as WanBft.say does; again later if the disk refuses."""
        if not self.machine.known.chain.may_execute(round_):
            return
        block = at_once(self.outcomes.decided(round_))
        result = self._around.result(result_of(block))
        if result is None:
            return
        self.tell(ExecSigned(round_))
        validators = self._parts.validators
        domain = validators.domain(validators.epoch_of(round_))
        value = [result.vertex_id, result.result_root]
        try:
            statement = Statement(domain, Kind.EXEC, 0, round_, value)
            signed = at_once(self._parts.signer.sign(statement))
        except Refused:
            return
        except StorageFailed:
            self._around.mark("exec refused by disk")
            again_ns = RESEND_DELTAS * self._parts.delta_ns
            self._around.later(again_ns, lambda: self._execute(round_))
            return
        self._talk.said(signed)
        self._writer.broadcast(Said(signed))
        self._reception.hear(signed)
        self._drain()

    def _say_again(self) -> None:
        members = self._parts.validators.now.committee.stake_of
        if self.signer_quarantine is not None and self._parts.me in members:
            if self._rejoin is None:
                statement = self._parts.signer.rejoin_statement(self.machine.known.domain)
                self._rejoin = at_once(self._parts.signer.sign(statement))
            self._writer.broadcast(Said(self._rejoin))
        words = self._talk.own_words()
        for signed in words:
            self._writer.broadcast(Said(signed))
        if not words:
            self._writer.broadcast(Greeting())
        self._around.later(RESEND_DELTAS * self._parts.delta_ns, self._say_again)
