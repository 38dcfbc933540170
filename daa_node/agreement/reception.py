"""Messages come in: opened, verified, and handed to the machine, the round's talk, or the facts."""

import trio

from daa_consensus.bft.events import (
    BlockArrived,
    CertificateArrived,
    Event,
    ExecCertified,
    PeerPosition,
    ProposalArrived,
    VoteArrived,
)
from daa_consensus.bft.evidence import Evidence, conflict, contradiction
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import Digest, NodeId, VertexId
from daa_node.agreement.effects_host import EffectsHost
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbox import Inbox
from daa_node.agreement.messages import (
    Asked,
    AskedOfRoll,
    Body,
    Certified,
    Greeting,
    Missed,
    Proposed,
    SentBlock,
    Shown,
    Stated,
    WantBlock,
    WantCertificates,
    WantStatements,
)
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.positions import Positions
from daa_node.agreement.round_talk import RoundTalk
from daa_node.agreement.showing import Showing
from daa_node.errors import PeerFault
from daa_node.observability import events

_VOTES = (Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE)
_ROUND_STATEMENTS = (Kind.OFFER, Kind.ACK, Kind.EXEC)
_WISHES = (WantBlock, WantCertificates, WantStatements)


class Reception:
    """Takes messages from the mailbox. What a peer says wrongly is a PeerFault, raised."""

    def __init__(
        self,
        parts: AgreementParts,
        facts: Facts,
        talk: RoundTalk,
        host: EffectsHost,
        showing: Showing,
        inbox: Inbox,
    ) -> None:
        self._parts = parts
        self._facts = facts
        self._talk = talk
        self._host = host
        self._showing = showing
        self._inbox = inbox
        self.positions = Positions()

    async def receive(self, sender: NodeId, payload: bytes) -> None:
        """One message of a member. Raises PeerFault."""
        message = self._parts.inbound.open(payload)
        position = message.position
        self.positions.note(sender, position, trio.current_time())
        event = await self._take(sender, message.body)
        told = PeerPosition(sender, position.epoch, position.view, position.finalized_view)
        happened: list[Event] = [] if event is None else [event]
        if self._host.is_news(told):
            happened.append(told)
        if happened:
            await self._inbox.deliver(sender, *happened)

    async def _take(self, sender: NodeId, body: Body) -> Event | None:
        """What the message says, done, or else the event that the machine is to be stepped with."""
        if isinstance(body, _WISHES) and not self._host.writer.grants(sender):
            return None  # it asks again
        match body:
            case Stated(signed) if signed.statement.kind in _VOTES:
                return VoteArrived(signed)
            case Stated(signed) if signed.statement.kind in _ROUND_STATEMENTS:
                self._check_epoch(signed)
                self.hear(signed)
            case Stated(signed) if signed.statement.kind is Kind.REJOIN:
                if signed.signer != sender:
                    # Else an old one, said by another, could hide the one that matters.
                    raise PeerFault("malformed", "a rejoin is sent by who wants to rejoin")
                self._facts.note_rejoin(signed, self._parts.validators.now)
            case Stated(signed):
                raise PeerFault("malformed", f"a bare {signed.statement.kind}")
            case Proposed(signed, block, certificate):
                if certificate is not None:
                    self.note_exec(certificate)
                return ProposalArrived(signed, block)
            case Certified(certificate, _) if certificate.statement.kind is Kind.EXEC:
                self.note_exec(certificate)
            case Certified(certificate, beside):
                return CertificateArrived(certificate, beside)
            case SentBlock(block, below):
                return BlockArrived(block, below)
            case WantBlock(block_id):
                await self._host.send_block(sender, block_id)
            case WantCertificates():
                self._host.send_certificates(sender, body)
            case WantStatements():
                self._showing.answer(sender, body)
            case Shown(acks=acks):
                for signed in acks:
                    self._check_epoch(signed)
                self._showing.take(body)
            case Missed():
                self._showing.claimed(sender, body)
            case Asked(operation):  # whoever writes it writes it to everybody: not passed on
                self._facts.note_operation(operation, self._parts.validators.now, sender)
            case AskedOfRoll(enrolment):
                self._facts.of_roll.note(enrolment, self._parts.validators.now, sender)
            case Greeting():
                pass
        return None

    def _check_epoch(self, signed: Signed) -> None:
        """Else one slot could be signed twice, under two epochs, and prove nothing."""
        said = signed.statement
        if said.domain.epoch != self._parts.validators.epoch_of(said.height):
            raise PeerFault("malformed", f"{said.kind} in epoch {said.domain.epoch}")

    def hear(self, signed: Signed) -> None:
        """An Offer, Ack or Exec, verified; our own come this way too."""
        before = self._talk.first_heard(signed)
        if before is not None and signed.statement.kind is not Kind.ACK:
            self.accuse(conflict(before, signed))
        certificate = self._talk.hear(signed)
        if certificate is not None:
            self.note_exec(certificate)
        elif signed.statement.kind is Kind.EXEC:
            held = self._facts.exec_certificates.get(signed.statement.height)
            self.accuse(None if held is None else contradiction(signed, held))

    def accuse(self, evidence: Evidence | None) -> None:
        """Remember and score an offence, once."""
        now = self._parts.validators.now
        if evidence is not None and self._facts.note_evidence(evidence, now):
            offender, offence = evidence.offender, evidence.offence
            self._parts.events.emit(events.EVIDENCE_FOUND, offender=offender, offence=offence)
            reason = "equivocation" if len(evidence.parts) > 1 else "false_work"
            self._parts.fault(offender, PeerFault(reason, offence))

    def note_exec(self, certificate: Certificate) -> None:
        """Take an execution certificate, verified, and tell the machine if it is news."""
        if certificate.statement.kind is not Kind.EXEC:
            raise PeerFault("malformed", f"{certificate.statement.kind} certifies no execution")
        if self._facts.note_exec(certificate):
            match certificate.statement.value:
                case [bytes(vertex_id), bytes(result_root)]:
                    round_number = certificate.statement.height
                    self._parts.events.emit(
                        events.EXEC_CERTIFIED,
                        round=round_number,
                        vertex_id=vertex_id,
                        signers=len(certificate.signatures),
                    )
                    self._inbox.step_with(
                        ExecCertified(round_number, VertexId(vertex_id), Digest(result_root))
                    )
                case _:
                    raise AssertionError("the decoder lets no other Exec through")
