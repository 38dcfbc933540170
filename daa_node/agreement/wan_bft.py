"""Agreement across the WAN: one task steps the Simplex machine and carries out what it asks.

    letters --inbound--> events --+
    timers, answers --------------+--> inbox --> machine.step --> effects --effects_host--> world
    own signed words -------------+

Rounds talk to it in a few verbs: `open_round`, `say`, `round_ready`, `decided`, `abort_due`,
`resolved`. Nothing here decides: the machine does, and `signer` has the last word on signatures.
"""

from collections import deque
from collections.abc import Iterable

import trio

from daa_consensus.bft.effects import Accuse, Effect, Finalized
from daa_consensus.bft.events import (
    AbortDue,
    CertificateArrived,
    Event,
    ExecSigned,
    RoundReady,
    Tick,
)
from daa_consensus.bft.messages import Block
from daa_consensus.bft.state import Simplex
from daa_consensus.errors import BadMessage, NoQuorum
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag import canonical
from daa_dag.ids import NodeId
from daa_node.agreement.effects_host import EffectsHost
from daa_node.agreement.facts import Facts
from daa_node.agreement.letters import (
    Greeting,
    Position,
    Said,
)
from daa_node.agreement.open_round import OpenRound
from daa_node.agreement.outcomes import Outcomes
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.questions import Questions
from daa_node.agreement.reception import Reception
from daa_node.agreement.round_talk import RoundTalk
from daa_node.errors import PeerFault, Refused, StorageFailed
from daa_node.observability import events

INBOX_EVENTS_MAX = 256  # about two views of a hundred members; then letters wait in the sockets
OWN_WORDS_RESEND_S = 1.0  # of offers, acks and execs; votes are resent by the machine's own timer

Delivery = tuple[NodeId | None, Event]  # who brought it; None: our own tasks


class WanBft:
    """The agreement of one validator (or observer) with the others."""

    def __init__(
        self, parts: AgreementParts, machine: Simplex, resolved_round: int, open_set: Block | None
    ) -> None:
        self._parts = parts
        self._machine = machine
        self._post, self._inbox = trio.open_memory_channel[Delivery](INBOX_EVENTS_MAX)
        # Our own words and answers that are known at once; stepped before anything else.
        self._own: deque[Event] = deque()
        self.committee = parts.committee
        self.delta_s = parts.delta_ns / 1e9  # the bound on a letter's way, as configured
        self.outcomes = Outcomes(resolved_round, open_set)
        self._talk = RoundTalk(parts.committee, parts.fault)
        self._facts = Facts(parts.inbound.limits)
        self._questions = Questions(self._facts, parts.inbound, self._answer)
        self._host = EffectsHost(
            parts, machine, self._facts, self._questions, self._step_with, self._position
        )
        self._reception = Reception(
            parts, self._facts, self._talk, self._host, self._step_with, self._deliver
        )
        self._waiting: trio.CancelScope | None = None

    def position_of(self, member: NodeId) -> Position | None:
        """Where the member last said that it stands."""
        stand = self._reception.stands.get(member)
        return None if stand is None else stand.position

    def rounds_behind(self) -> int:
        """Resolved rounds that surely honest peers have and we do not.

        Only what a blocking weight of validators claims counts: one liar cannot send us chasing.
        """
        committee = self._parts.committee
        claimed = {n: s.position.resolved_round for n, s in self._reception.stands.items()}
        for claim in sorted(claimed.values(), reverse=True):
            claimants = {node for node, round_number in claimed.items() if round_number >= claim}
            if committee.weight(claimants) >= committee.blocking:
                return max(0, claim - self.outcomes.resolved_round)
        return 0

    async def run(self) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            self._questions.tasks = nursery
            nursery.start_soon(self._parts.mailbox.run, self._reception.receive, self._greet)
            nursery.start_soon(self._resend)
            await self._step_forever()

    def remember_kept(self, kept: Iterable[tuple[str, Certificate, Block | None]]) -> None:
        """Certificates that a restart found: deleted once they are settled, like any other."""
        for name, certificate, block in kept:
            self._host.restored(name, certificate, block)

    def open_round(self, round_number: int, listener: OpenRound) -> None:
        """From now on the round's words, sets and questions go to `listener`."""
        self._questions.listen(round_number, listener)
        self._talk.open(round_number, listener)

    def round_ready(self, round_number: int) -> None:
        """The round's window ended here: a set may be proposed."""
        self._step_with(RoundReady(round_number))

    def abort_due(self, round_number: int) -> None:
        """We will not execute the round's set: its abort may be voted for."""
        self._facts.note_abort_due(round_number)
        self._step_with(AbortDue(round_number))

    def exec_certificate(self, round_number: int) -> Certificate | None:
        return self._facts.exec_certificates.get(round_number)

    async def say(self, kind: Kind, round_number: int, value: canonical.Value) -> bool:
        """Sign an Offer, Ack or Exec and send it to all; False if the signer refused."""
        domain = self._parts.domain_of(self._parts.epoch_of(round_number))
        statement = Statement(domain, kind, 0, round_number, value)
        if kind is Kind.EXEC:
            # The machine must know before the signature exists: it may be voting for an abort.
            self._step_with(ExecSigned(round_number))
        try:
            signed = await self._parts.signer.sign(statement)
        except Refused as refusal:
            self._parts.events.emit(events.VOTE_REFUSED, kind=kind, why=str(refusal))
            return False
        except StorageFailed as failure:
            self._parts.events.emit(events.STORAGE_FAILED, detail=str(failure))
            return False
        self._talk.said(signed)
        self._host.broadcast(Said(signed))
        self._reception.hear(signed)
        return True

    async def caught_up(self, certificate: Certificate, newest: Block) -> None:
        """A checkpoint, verified by the caller, brought the finalization of `newest` along."""
        await self._post.send((None, CertificateArrived(certificate, newest)))

    async def _step_forever(self) -> None:
        while True:
            sender, event = await self._next()
            try:
                effects = self._machine.step(_now_ns(), event)
            except (BadMessage, NoQuorum) as fault:
                if sender is None:
                    raise AssertionError("what we say ourselves is well-formed") from fault
                self._parts.fault(sender, PeerFault("bad_message", str(fault)))
                continue
            try:
                for effect in effects:
                    await self._carry_out(effect)
            except StorageFailed as failure:
                # What could not be kept must not be voted for: the rest of the step is not done.
                self._parts.events.emit(events.STORAGE_FAILED, detail=str(failure))

    async def _next(self) -> Delivery:
        if self._own:
            return None, self._own.popleft()
        deadline_ns = self._machine.deadline_ns
        deadline_s = float("inf") if deadline_ns is None else deadline_ns / 1e9
        with trio.move_on_at(deadline_s) as self._waiting:
            return await self._inbox.receive()
        return None, Tick()

    async def _answer(self, event: Event) -> None:
        await self._post.send((None, event))

    async def _deliver(self, sender: NodeId, event: Event) -> None:
        await self._post.send((sender, event))

    def _step_with(self, event: Event) -> None:
        """Step with this before anything else in the inbox."""
        self._own.append(event)
        if self._waiting is not None:
            self._waiting.cancel()  # what the wait had in hand is not lost, and a Tick is harmless

    async def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Finalized():
                await self._host.note_final(effect)
                for resolution in self.outcomes.note(effect):
                    self._talk.resolved(resolution.round)
            case Accuse(evidence):
                self._reception.accuse(evidence)
            case _:
                await self._host.carry_out(effect)

    def _greet(self, member: NodeId) -> None:
        """A stream to the member was opened anew: tell it where we stand and what we said."""
        self._host.send(member, Greeting())
        for signed in self._talk.own_words():
            self._host.send(member, Said(signed))

    async def _resend(self) -> None:
        while True:
            await trio.sleep(OWN_WORDS_RESEND_S)
            for signed in self._talk.own_words():
                self._host.broadcast(Said(signed))
            if not self._talk.own_words():
                self._host.broadcast(Greeting())

    def _position(self) -> Position:
        stand = self._machine.known.position
        return Position(stand.epoch, stand.view, stand.finalized_view, self.outcomes.resolved_round)


def _now_ns() -> int:
    return int(trio.current_time() * 1e9)
