"""Agreement across the WAN: one task steps the Simplex machine and carries out what it asks.

    messages --inbound--> events -+
    timers, answers --------------+--> inbox --> machine.step --> effects --effects_host--> world
    own signed statements --------+

Rounds talk to it in a few verbs: `open_round`, `say`, `round_ready`, `decided`, `abort_due`,
`resolved`. Nothing here decides: the machine does, and `signer` has the last word on signatures.
While the signer is quarantined, a Rejoin is sent to all until a final block carries it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import trio

from daa_consensus.bft.effects import Accuse, Effect, Finalized, TryAgain
from daa_consensus.bft.events import AbortDue, CertificateArrived, ExecSigned, RoundReady
from daa_consensus.bft.messages import Block
from daa_consensus.bft.state import Simplex
from daa_consensus.enrolment import Enrolment
from daa_consensus.errors import BadMessage, NoQuorum
from daa_consensus.operations import Operation
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import Digest, NodeId
from daa_node.agreement.effects_host import EffectsHost
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbox import Inbox
from daa_node.agreement.messages import Asked, AskedOfRoll, Body, Greeting, Position, Stated
from daa_node.agreement.outcomes import Outcomes, last_closed
from daa_node.agreement.parts import AgreementParts, OpenRound
from daa_node.agreement.positions import believed
from daa_node.agreement.questions import Questions
from daa_node.agreement.reception import Reception
from daa_node.agreement.round_talk import RoundTalk
from daa_node.agreement.showing import LATECOMER_ASKS, Showing
from daa_node.agreement.signer import outlook
from daa_node.agreement.writer import Writer
from daa_node.errors import PeerFault, Refused, StorageFailed
from daa_node.observability import events

DISK_RETRY_S = 1.0  # between attempts to sign while the disk refuses
# Of offers, acks and execs; the machine resends votes. More seldom in large networks:
# a hundred that say theirs to a hundred every second say little else. A stream that is opened anew
# brings it all again at once.
OWN_STATEMENTS_RESEND_S = 1.0
RESENDING_A_SECOND_MAX = 10  # members
# And each of them more seldom the longer it is the newest, up to this where it is not as seldom
# anyway: a round may train for hours, and what was not lost once is hardly lost again.
RESENT_AFTER_S_MAX = 8.0


class WanBft:
    """The agreement of one validator (or trainer, or observer) with the others."""

    def __init__(
        self, parts: AgreementParts, machine: Simplex, resolved_round: int, open_set: Block | None
    ) -> None:
        self._parts = parts
        self._machine = machine
        self._inbox = Inbox()
        self.me = parts.me
        self.validators = parts.validators
        self.delta_s = parts.delta_ns / 1e9  # the bound on a message's way, as configured
        self.outcomes = Outcomes(resolved_round, open_set)
        self._talk = RoundTalk(parts.validators, parts.fault)
        self.own_statement = self._talk.own_statement  # in this life or an earlier one
        self.facts = Facts(parts.inbound.limits)
        self._questions = Questions(self.facts, parts.inbound, self._inbox.answer)
        self._writer = Writer(parts, self._position)
        self._host = EffectsHost(
            parts, machine, self.facts, self._questions, self._inbox, self._writer
        )
        self.block = self._host.block  # one that was seen lately, or that lies in a checkpoint
        self._showing = Showing(parts, self._talk, self._questions, self._writer)
        self.missed = self._showing.missed  # a proposed set leaves out what we can show
        self._reception = Reception(
            parts, self.facts, self._talk, self._host, self._showing, self._inbox
        )
        self.convict = self._reception.accuse  # evidence, verified: for the next set to carry
        self._positions = self._reception.positions
        self.position_of = self._positions.position_of
        self.heard_since = self._positions.heard_since
        self.round_began_s = 0.0  # the open one, with whoever began it first
        self._rejoin: Signed | None = None  # sent again and again while we are quarantined

    def rounds_behind(self, heights: Mapping[NodeId, int], height: int) -> int:
        """Rounds that surely honest peers have resolved, and we have not.

        `heights`: how far members say that they are where anybody can hear it, `height`: our own.
        Whoever only looks on gets no messages, and goes by these; so must who has left, and was
        away when it did.
        """
        committee = self.validators.now.committee
        behind = (believed(heights, committee) or 0) - height
        if self.me in self.validators.listeners:
            claimed = self._positions.resolved_round(committee)
            behind = max(behind, claimed - self.outcomes.resolved_round)
        return max(0, behind)

    def round_age_s(self, round_number: int) -> float:
        """For how long surely honest peers have been in the round; 0.0 if they do not say so."""
        committee = self.validators.now.committee
        return self._positions.round_age_s(round_number, committee, trio.current_time())

    async def run(self) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            self._questions.tasks = nursery
            nursery.start_soon(self._parts.mailbox.run, self._reception.receive, self._greet)
            nursery.start_soon(self._inbox.run)
            nursery.start_soon(self._ask_to_rejoin)
            nursery.start_soon(self._resend)
            await self._step_forever()

    def recall(
        self,
        statements: Iterable[Signed],
        executions: Iterable[Certificate],
        blocks: Iterable[Block],
    ) -> None:
        """What a restart found: our own Offers and Execs, to be sent again, and what was kept."""
        self._host.restored(blocks)
        recalled = [self._talk.recall(signed) for signed in statements]  # alone, we are a quorum
        for certificate in (*executions, *(made for made in recalled if made is not None)):
            self._reception.note_exec(certificate)

    def quarantine(self) -> str | None:
        """Why our votes are not to be trusted yet, and what ends that; None if they are."""
        why, now = self._parts.signer.quarantine, self.validators.now
        return outlook(why, now.committee, self.me, self.me in now.trainers)

    async def published(self, newest: Block) -> None:
        """A checkpoint on disk holds `newest` and all below it: nothing else need be kept of them.

        Raises StorageFailed.
        """
        await self._parts.recovery.forget((newest.epoch, newest.view))

    def open_round(self, round_number: int, listener: OpenRound) -> None:
        """From now on the round's statements, sets and questions go to `listener`."""
        self._questions.listen(round_number, listener)
        self.round_began_s = trio.current_time() - self.round_age_s(round_number)
        self._talk.open(round_number, listener)
        if round_number > self.outcomes.resolved_round:  # else only its execution is missing here
            self._showing.entered(round_number, self._positions.latest(LATECOMER_ASKS))

    def round_ready(self, round_number: int) -> None:
        """The round's window ended here: a set may be proposed."""
        self._inbox.step_with(RoundReady(round_number))

    def abort_due(self, round_number: int) -> None:
        """We will not execute the round's set: its abort may be voted for."""
        self._inbox.step_with(AbortDue(round_number))

    def exec_certificate(self, round_number: int) -> Certificate | None:
        return self.facts.exec_certificates.get(round_number)

    async def sign_and_send(self, kind: Kind, round_number: int, value: canonical.Value) -> bool:
        """Sign an Offer, Ack or Exec and send it to all; False if it must not be signed.

        Waits while the disk refuses: the statement is still owed when it has room again.
        """
        epoch = self.validators.epoch_of(round_number)
        offers = kind is Kind.OFFER and self.validators.may_contribute(self.me, epoch)
        if self.me not in self.validators.committee(epoch).stake_of and not offers:
            return False  # we look on, or only train
        domain = self.validators.domain(epoch)
        statement = Statement(domain, kind, 0, round_number, value)
        if kind is Kind.EXEC:
            if not self._machine.known.chain.may_execute(round_number):
                return False  # the round was closed meanwhile
            # The machine must know before the signature exists: it may be voting for an abort.
            self._inbox.step_with(ExecSigned(round_number))
        signed: Signed | None = None
        while signed is None:
            try:
                signed = await self._parts.signer.sign(statement)
            except Refused as refusal:
                self._parts.events.emit(events.VOTE_REFUSED, kind=kind, why=str(refusal))
                return False
            except StorageFailed as failure:
                # The slot is taken by the first attempt: no other statement can follow.
                self._parts.events.emit(events.STORAGE_FAILED, detail=str(failure))
                await trio.sleep(DISK_RETRY_S)
        self._talk.sent(signed)
        self._writer.broadcast(Stated(signed))
        self._reception.hear(signed)
        self._parts.events.emit(events.STATEMENT_SENT, kind=kind, view=0, round=round_number)
        return True

    def ask(self, asked: Operation | Enrolment) -> bool:
        """Put a change of members or of trainers, verified, before everybody if it is news.

        Whether it has found a place.
        """
        if isinstance(asked, Enrolment):
            if self.facts.of_roll.note(asked, self.validators.now, self.me):
                self._writer.broadcast(AskedOfRoll(asked))
            return self.facts.of_roll.holds(asked.request.id)
        operation = asked
        if self.facts.note_operation(operation, self.validators.now, self.me):
            self._writer.broadcast(Asked(operation))
        return operation.request.id in self.facts.operations

    async def caught_up(self, certificate: Certificate, blocks: Sequence[Block]) -> None:
        """A page of checkpoints, verified by the caller, made these blocks final, oldest first.

        Returns once they are so here: what stands on them is judged by the committee they lead to.
        """
        *below, newest = blocks
        await self._inbox.answer(CertificateArrived(certificate, newest, tuple(below)))
        await self.outcomes.resolved(last_closed(blocks))

    async def _step_forever(self) -> None:
        while True:
            sender, event = await self._inbox.next(self._machine.deadline_ns)
            try:
                effects = self._machine.step(_now_ns(), event)
            except (BadMessage, NoQuorum) as fault:
                if sender is None:
                    raise AssertionError("what we say ourselves is well-formed") from fault
                self._parts.fault(sender, PeerFault("bad_message", str(fault)))
                continue
            for effect in effects:
                await self._carry_out(effect)

    async def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Finalized():
                await self._host.note_final(effect)
                for resolution in self.outcomes.note(effect):
                    self._talk.resolved(resolution.round)
                    self._writer.broadcast(Greeting())  # whoever drains waits to hear of it
            case Accuse(evidence):
                self._reception.accuse(evidence)
            case TryAgain():
                await self._host.carry_out(effect)
                self._showing.ask()
            case _:
                await self._host.carry_out(effect)

    def _greet(self, member: NodeId) -> None:
        """A stream to the member was opened anew: tell it where we stand and what we said."""
        self._writer.begin_anew(member)
        self._showing.met(member)
        said = [Stated(signed) for signed in self._talk.own_statements()]
        # the others' requests are theirs to bring
        brought = [Asked(operation) for operation in self.facts.brought_by(self.me)]
        of_roll = [AskedOfRoll(asked) for asked in self.facts.of_roll.brought_by(self.me)]
        for body in [*self._host.last_votes(), *said, *brought, *of_roll] or [Greeting()]:
            self._writer.send(member, body)

    async def _resend(self) -> None:
        """Our newest statements, each ever more seldom."""
        waits: dict[Digest | None, tuple[int, int]] = {}  # turns until the next time, and between
        while True:
            each_s = _resend_s(len(self.validators.now.committee.validators))
            await trio.sleep(each_s)
            said: list[tuple[Digest | None, Body]] = [
                (signed.id, Stated(signed)) for signed in self._talk.own_statements()
            ]
            before, waits = waits, {}
            for name, body in said or [(None, Greeting())]:
                left, pause = before.get(name, (1, 1))
                if left > 1:
                    waits[name] = left - 1, pause
                    continue
                pause = min(2 * pause, max(1, int(RESENT_AFTER_S_MAX / each_s)))
                waits[name] = pause, pause
                self._writer.broadcast(body)

    async def _ask_to_rejoin(self) -> None:
        """As often in large networks as in small ones: few are in quarantine at a time."""
        signer = self._parts.signer
        told = self.quarantine()
        if told is not None:
            self._parts.events.emit(events.QUARANTINED, why=told)
        while signer.quarantine is not None:
            now = self.validators.now
            if self.me in now.committee.stake_of or self.me in now.trainers:
                if self._rejoin is None:
                    statement = signer.rejoin_statement(self._machine.known.domain)
                    self._rejoin = await signer.sign(statement)
                self._writer.broadcast(Stated(self._rejoin))
            await trio.sleep(OWN_STATEMENTS_RESEND_S)

    def _position(self) -> Position:
        at = self._machine.known.position
        resolved, age_ms = self.outcomes.resolved_round, 0
        if self._talk.round == resolved + 1:
            age_ms = max(1, int((trio.current_time() - self.round_began_s) * 1e3))
        return Position(at.epoch, at.view, at.finalized_view, resolved, age_ms)


def _resend_s(members: int) -> float:
    return OWN_STATEMENTS_RESEND_S * max(1.0, members / RESENDING_A_SECOND_MAX)


def _now_ns() -> int:
    # Rounded: cut off, the time of a deadline could lie a nanosecond before it, for ever where the
    # clock is virtual.
    return round(trio.current_time() * 1e9)


DRAIN_S_MAX = 20.0  # for the round under way; a second signal does not wait
# Without a quorum it will not end, unless whoever is missing only dials again.
ALONE_S_MAX = 2.0
# peers in the same round get there sooner: a fresh statement is said twice by then
LINGER_S_MAX = 3.0
LOOK_S = 0.05


async def until_hopeless(quorum_reachable: Callable[[], bool]) -> None:
    """Return when a drained node need no longer wait for the round under way to end."""
    alone_s = 0.0
    with trio.move_on_after(DRAIN_S_MAX):
        while alone_s < ALONE_S_MAX:
            await trio.sleep(LOOK_S)
            alone_s = 0.0 if quorum_reachable() else alone_s + LOOK_S


async def see_others_through(agreement: WanBft, reachable: Callable[[], set[NodeId]]) -> None:
    """Stay until the others have what we have: our last votes may be what they lack."""
    with trio.move_on_after(LINGER_S_MAX):
        while True:
            positions = [agreement.position_of(node) for node in reachable()]
            resolved_round = agreement.outcomes.resolved_round
            if all(p is None or p.resolved_round >= resolved_round for p in positions):
                return
            await trio.sleep(LOOK_S)
