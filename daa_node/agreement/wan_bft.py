"""Agreement across the WAN: one task steps the Simplex machine and carries out what it asks.

    letters --inbound--> events --+
    timers, answers --------------+--> inbox --> machine.step --> effects --effects_host--> world
    own signed words -------------+

Rounds talk to it in a few verbs: `open_round`, `say`, `round_ready`, `decided`, `abort_due`,
`resolved`. Nothing here decides: the machine does, and `signer` has the last word on signatures.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import trio

from daa_consensus.bft.effects import Accuse, Effect, Finalized
from daa_consensus.bft.events import (
    AbortDue,
    BlockArrived,
    CertificateArrived,
    Event,
    ExecCertified,
    ExecSigned,
    PeerPosition,
    ProposalArrived,
    RoundReady,
    Tick,
    VoteArrived,
)
from daa_consensus.bft.evidence import conflict, contradiction
from daa_consensus.bft.messages import Block
from daa_consensus.bft.state import Simplex
from daa_consensus.committee import Committee
from daa_consensus.errors import BadMessage, NoQuorum
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import Digest, NodeId, VertexId
from daa_node.agreement.effects_host import AgreementParts, EffectsHost
from daa_node.agreement.letters import (
    Certified,
    Greeting,
    Position,
    Proposed,
    Said,
    SentBlock,
    WantBlock,
    WantCertificates,
)
from daa_node.agreement.open_round import OpenRound
from daa_node.agreement.outcomes import Outcomes, Resolution
from daa_node.agreement.round_talk import RoundTalk
from daa_node.errors import PeerFault, Refused, StorageFailed
from daa_node.observability import events

INBOX_EVENTS_MAX = 256  # about two views of a hundred members; then letters wait in the sockets
OWN_WORDS_RESEND_S = 1.0  # of offers, acks and execs; votes are resent by the machine's own timer

_VOTES = (Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE)
_ROUND_WORDS = (Kind.OFFER, Kind.ACK, Kind.EXEC)


Delivery = tuple[NodeId | None, Event]  # who brought it; None: our own tasks


@dataclass(slots=True)
class PeerStand:
    """What a member last said of itself."""

    position: Position
    heard_s: float


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
        self._outcomes = Outcomes(resolved_round, open_set)
        self._talk = RoundTalk(parts.committee, parts.fault)
        self._host = EffectsHost(parts, machine, self._step_with, self._answer, self._position)
        self._waiting: trio.CancelScope | None = None
        self.stands: dict[NodeId, PeerStand] = {}

    @property
    def committee(self) -> Committee:
        return self._parts.committee

    @property
    def delta_s(self) -> float:
        """The upper bound on one letter's way that the network was configured with."""
        return self._parts.delta_ns / 1e9

    @property
    def resolved_round(self) -> int:
        return self._outcomes.resolved_round

    def rounds_behind(self) -> int:
        """Resolved rounds that surely honest peers have and we do not.

        Only what a blocking weight of validators claims counts: one liar cannot send us chasing.
        """
        committee = self._parts.committee
        claims = sorted((s.position.resolved_round for s in self.stands.values()), reverse=True)
        for claim in claims:
            claimants = {n for n, s in self.stands.items() if s.position.resolved_round >= claim}
            if committee.weight(claimants) >= committee.blocking:
                return max(0, claim - self.resolved_round)
        return 0

    async def run(self) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            self._host.tasks = nursery
            nursery.start_soon(self._parts.mailbox.run, self._receive, self._greet)
            nursery.start_soon(self._resend)
            await self._step_forever()

    def remember_kept(self, kept: Iterable[tuple[str, Certificate, Block | None]]) -> None:
        """Certificates that a restart found: deleted once they are settled, like any other."""
        for name, certificate, block in kept:
            self._host.restored(name, certificate, block)

    def open_round(self, round_number: int, listener: OpenRound) -> None:
        """From now on the round's words, sets and questions go to `listener`."""
        self._host.listen(round_number, listener)
        self._talk.open(round_number, listener)

    def round_ready(self, round_number: int) -> None:
        """The round's window ended here: a set may be proposed."""
        self._step_with(RoundReady(round_number))

    def abort_due(self, round_number: int) -> None:
        """We will not execute the round's set: its abort may be voted for."""
        self._host.note_abort_due(round_number)
        self._step_with(AbortDue(round_number))

    async def decided(self, round_number: int) -> Block:
        return await self._outcomes.decided(round_number)

    async def resolved(self, round_number: int) -> Resolution:
        return await self._outcomes.resolved(round_number)

    def resolution(self, round_number: int) -> Resolution | None:
        return self._outcomes.resolution(round_number)

    @property
    def tip(self) -> Block:
        """The newest final block of the chain, trailing ones excepted."""
        return self._machine.known.chain.tip

    def exec_certificate(self, round_number: int) -> Certificate | None:
        return self._host.exec_certificates.get(round_number)

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
        self._hear_round_word(signed)
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
                assert sender is not None, fault  # what we say ourselves is well-formed
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

    def _step_with(self, event: Event) -> None:
        """Step with this before anything else in the inbox."""
        self._own.append(event)
        if self._waiting is not None:
            self._waiting.cancel()  # what the wait had in hand is not lost, and a Tick is harmless

    async def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Finalized():
                await self._host.note_final(effect)
                for resolution in self._outcomes.note(effect):
                    self._talk.resolved(resolution.round)
            case Accuse(evidence):
                self._host.accuse(evidence)
            case _:
                await self._host.carry_out(effect)

    async def _receive(self, sender: NodeId, payload: bytes) -> None:
        letter = self._parts.inbound.open(payload)
        position = letter.position
        self.stands[sender] = PeerStand(position, trio.current_time())
        match letter.body:
            case Said(signed) if signed.statement.kind in _VOTES:
                await self._post.send((sender, VoteArrived(signed)))
            case Said(signed) if signed.statement.kind in _ROUND_WORDS:
                self._hear_round_word(signed)
            case Said(signed) if signed.statement.kind is Kind.REJOIN:
                self._host.note_rejoin(signed)
            case Said(signed):
                raise PeerFault("malformed", f"a bare {signed.statement.kind}")
            case Proposed(signed, block, certificate):
                if certificate is not None:
                    self._note_exec(certificate)
                await self._post.send((sender, ProposalArrived(signed, block)))
            case Certified(certificate, block):
                if certificate.statement.kind is Kind.EXEC:
                    self._note_exec(certificate)
                else:
                    await self._post.send((sender, CertificateArrived(certificate, block)))
            case SentBlock(block):
                await self._post.send((sender, BlockArrived(block)))
            case WantBlock(block_id):
                await self._host.send_block(sender, block_id)
            case WantCertificates() as wanted:
                self._host.send_certificates(sender, wanted)
            case Greeting():
                pass
        stand = PeerPosition(sender, position.epoch, position.view, position.finalized_view)
        await self._post.send((sender, stand))

    def _hear_round_word(self, signed: Signed) -> None:
        before = self._talk.first_heard(signed)
        if before is not None and signed.statement.kind is not Kind.ACK:
            evidence = conflict(before, signed)
            if evidence is not None:
                self._host.accuse(evidence)
        certificate = self._talk.hear(signed)
        if certificate is not None:
            self._note_exec(certificate)
        elif signed.statement.kind is Kind.EXEC:
            held = self.exec_certificate(signed.statement.height)
            evidence = None if held is None else contradiction(signed, held)
            if evidence is not None:
                self._host.accuse(evidence)

    def _note_exec(self, certificate: Certificate) -> None:
        round_number = certificate.statement.height
        if self._host.note_exec_certificate(certificate):
            vertex_id, result_root = certificate.statement.value  # type: ignore[misc,str-unpack]
            self._step_with(ExecCertified(round_number, VertexId(vertex_id), Digest(result_root)))  # type: ignore[arg-type]

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
        return Position(
            stand.epoch, stand.view, stand.finalized_view, self._outcomes.resolved_round
        )


def _now_ns() -> int:
    return int(trio.current_time() * 1e9)
