"""Carry out what the machine wants done: sign, send, store, ask, judge. No decision is made here.

Questions that take time (choose a set, judge one, fetch its data) run as tasks of their own and
answer with an event; a question about a view ends when the machine leaves that view.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import trio

from daa_consensus.bft.effects import (
    AskDataHeld,
    AskPayload,
    Effect,
    EnteredView,
    FetchBlock,
    FetchCertificates,
    Finalized,
    Judge,
    Keep,
    Offer,
    Resend,
    SignAndSend,
)
from daa_consensus.bft.events import (
    BlockArrived,
    DataHeld,
    Event,
    Judged,
    PayloadChosen,
    ProposalArrived,
    VoteArrived,
)
from daa_consensus.bft.evidence import Evidence, decode_evidence, encode_evidence
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    ResultPayload,
    SetPayload,
    decode_signed,
    encode_block,
    encode_certificate,
    encode_signed,
)
from daa_consensus.bft.state import Simplex
from daa_consensus.committee import Committee, Domain
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.ids import BlockId, NodeId
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.letters import (
    Body,
    Certified,
    Greeting,
    Letter,
    Position,
    Proposed,
    Said,
    SentBlock,
    WantBlock,
    WantCertificates,
    encode_letter,
)
from daa_node.agreement.open_round import OpenRound
from daa_node.agreement.signer import Signer
from daa_node.errors import PeerFault, Refused, StorageFailed
from daa_node.network.mailbox import Mailbox
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.seams import BlobStore

BLOCKS_KEPT = 256  # seen lately, for peers that ask; older ones come with checkpoints
EXEC_CERTIFICATES_KEPT = 16
HOLDERS_ASKED = 2  # for one block at a time; the machine asks again every delta
KEPT = "kept"  # record kind of certificates that a restart needs


@dataclass(frozen=True, slots=True)
class AgreementParts:
    """What the agreement is built from."""

    me: NodeId
    committee: Committee
    domain_of: Callable[[int], Domain]  # by epoch
    epoch_of: Callable[[int], int]  # by round
    delta_ns: int
    signer: Signer
    inbound: Inbound
    mailbox: Mailbox
    store: BlobStore
    stored_block: Callable[[BlockId], Awaitable[Block | None]]  # of published checkpoints
    events: EventLog
    fault: Callable[[NodeId, PeerFault], None]


class EffectsHost:
    """The machine's hands."""

    def __init__(
        self,
        parts: AgreementParts,
        machine: Simplex,
        step_with: Callable[[Event], None],
        post: Callable[[Event], Awaitable[None]],
        position: Callable[[], Position],
    ) -> None:
        self._parts = parts
        self._machine = machine  # asked for what peers want to be shown; stepped by wan_bft alone
        self._step_with = step_with  # before anything else in the inbox
        self._post = post
        self._position = position
        self.tasks: trio.Nursery | None = None
        self.aborts_due: set[int] = set()
        self.exec_certificates: OrderedDict[int, Certificate] = OrderedDict()
        self._rejoins: dict[NodeId, bytes] = {}  # the newest of each validator, encoded
        self.evidence: OrderedDict[bytes, Evidence] = OrderedDict()
        self._round = 0
        self._listener: OpenRound | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self._asking: trio.CancelScope | None = None
        self._judging: dict[int, trio.CancelScope] = {}
        self._blocks: OrderedDict[BlockId, Block] = OrderedDict()
        self._kept_names: dict[str, int] = {}  # record name -> view

    def listen(self, round_number: int, listener: OpenRound) -> None:
        """The round that questions are about from now on."""
        self._round, self._listener = round_number, listener
        self._changed.unpark_all()

    def note_abort_due(self, round_number: int) -> None:
        self.aborts_due = {r for r in self.aborts_due if r >= round_number - 1} | {round_number}
        self._changed.unpark_all()

    def note_exec_certificate(self, certificate: Certificate) -> bool:
        """Hold an execution certificate, verified; True if it is the round's first."""
        round_number = certificate.statement.height
        if round_number in self.exec_certificates:
            return False
        self.exec_certificates[round_number] = certificate
        while len(self.exec_certificates) > EXEC_CERTIFICATES_KEPT:
            self.exec_certificates.popitem(last=False)
        self._changed.unpark_all()
        return True

    def note_rejoin(self, signed: Signed) -> None:
        """A validator asks to vote again after it lost its guard; the next set may say so."""
        self._rejoins[signed.signer] = encode_signed(signed)

    def accuse(self, evidence: Evidence) -> None:
        """Remember an offence for the next set, once."""
        encoded = encode_evidence(evidence)
        if encoded in self.evidence or len(self.evidence) >= len(self._parts.committee.validators):
            return
        self.evidence[encoded] = evidence
        self._parts.events.emit(
            events.EVIDENCE_FOUND, offender=evidence.offender, offence=evidence.offence
        )
        self._parts.fault(evidence.offender, PeerFault("equivocation", evidence.offence))

    async def carry_out(self, effect: Effect) -> None:
        match effect:
            case SignAndSend(statement, block):
                await self._sign_and_send(statement, block)
            case Keep(certificate, block):
                await self._keep(certificate, block)
            case AskPayload():
                self._start_asking(effect)
            case Judge(block):
                self._remember(block)
                self._start(self._judge, block)
            case AskDataHeld(block):
                self._start(self._hold, block)
            case FetchBlock(block_id, holders):
                await self._find_block(block_id, holders)
            case FetchCertificates(peer, epoch, first_view, last_view):
                self.send(peer, WantCertificates(epoch, first_view, last_view))
            case Resend(messages, block):
                self._resend(messages, block)
            case Offer(peer, certificates):
                for certificate, block in certificates:
                    self._offer(peer, certificate, block)
            case EnteredView(epoch, view, why):
                self._leave_views_before(view)
                self._parts.events.emit(events.VIEW_ENTERED, epoch=epoch, view=view, why=why)
            case _:
                raise AssertionError(f"{type(effect).__name__} is carried out by wan_bft")

    async def note_final(self, final: Finalized) -> None:
        """Forget what was kept for views that are settled now."""
        for block in (*final.blocks, *final.trailing):
            self._remember(block)
            self._parts.events.emit(
                events.BLOCK_FINALIZED,
                view=block.view,
                height=block.height,
                block_id=block.id,
                payload=type(block.payload).__name__,
            )
            if isinstance(block.payload, SetPayload):
                await self._note_decided(block, block.payload)
        newest_view = (final.trailing or final.blocks)[-1].view
        for name in [n for n, view in self._kept_names.items() if view <= newest_view]:
            del self._kept_names[name]
            await self._parts.store.delete_record(KEPT, name)
        newest = final.blocks[-1] if final.blocks else final.trailing[-1]
        self._parts.signer.finalized(newest.epoch, newest.view, newest.height)

    async def _note_decided(self, block: Block, decided: SetPayload) -> None:
        for encoded in decided.evidence:
            self.evidence.pop(encoded, None)
        for encoded in decided.operations:
            signed = decode_signed(encoded, self._parts.inbound.limits)
            self._rejoins.pop(signed.signer, None)
            nonce = signed.statement.value
            assert isinstance(nonce, bytes)  # a Rejoin's shape was checked when it was decoded
            if signed.signer == self._parts.me:
                await self._parts.signer.rejoined(nonce, block.epoch, block.view, block.height)

    def restored(self, name: str, certificate: Certificate, block: Block | None) -> None:
        """A kept certificate that a restart brought back."""
        self._kept_names[name] = certificate.statement.view
        if block is not None:
            self._remember(block)

    def send(self, member: NodeId, body: Body) -> None:
        self._parts.mailbox.send(member, encode_letter(Letter(self._position(), body)))

    def broadcast(self, body: Body) -> None:
        self._parts.mailbox.broadcast(encode_letter(Letter(self._position(), body)))

    async def send_block(self, member: NodeId, block_id: BlockId) -> None:
        """Answer a peer's wish for a block, if we have it."""
        block = self._blocks.get(block_id) or await self._parts.stored_block(block_id)
        if block is not None:
            self.send(member, SentBlock(block))

    def send_certificates(self, member: NodeId, wanted: WantCertificates) -> None:
        """Answer a peer's wish for certificates of views, as far as the machine keeps them."""
        for certificate in self._machine.known.certificates(
            wanted.epoch, wanted.first_view, wanted.last_view
        ):
            self._offer(member, certificate, self._block_of(certificate))

    async def _find_block(self, block_id: BlockId, holders: tuple[NodeId, ...]) -> None:
        """A checkpoint may have brought the block already; else some of its holders are asked."""
        block = self._blocks.get(block_id) or await self._parts.stored_block(block_id)
        if block is not None:
            self._step_with(BlockArrived(block))
            return
        for holder in holders[:HOLDERS_ASKED]:
            self.send(holder, WantBlock(block_id))

    async def _sign_and_send(self, statement: Statement, block: Block | None) -> None:
        abort_round = None
        if statement.kind in (Kind.NOTARIZE, Kind.FINALIZE):
            voted = self._blocks.get(BlockId(statement.value))  # type: ignore[arg-type]
            if voted is not None and isinstance(voted.payload, AbortPayload):
                abort_round = voted.payload.round
        try:
            signed = await self._parts.signer.sign(statement, abort_round)
        except Refused as refusal:
            self._parts.events.emit(
                events.VOTE_REFUSED, kind=statement.kind, view=statement.view, why=str(refusal)
            )
            return
        except StorageFailed as failure:
            # Silence is safe; the machine asks again while the vote matters.
            self._parts.events.emit(events.STORAGE_FAILED, detail=str(failure))
            return
        if block is None:
            self.broadcast(Said(signed))
            self._step_with(VoteArrived(signed))
        else:
            self._remember(block)
            self.broadcast(self._proposed(signed, block))
            self._step_with(ProposalArrived(signed, block))

    def _proposed(self, signed: Signed, block: Block) -> Proposed:
        beside = None
        if isinstance(block.payload, ResultPayload):
            beside = self.exec_certificates.get(block.payload.round)
        return Proposed(signed, block, beside)

    async def _keep(self, certificate: Certificate, block: Block | None) -> None:
        if block is not None:
            self._remember(block)
        statement = certificate.statement
        name = f"{statement.domain.epoch}-{statement.view}-{statement.kind}"
        beside = None if block is None else encode_block(block)
        payload = canonical.encode([encode_certificate(certificate), beside])
        await self._parts.store.put_record(KEPT, name, payload)
        self._kept_names[name] = statement.view

    def _resend(self, messages: tuple[Signed, ...], block: Block | None) -> None:
        if not messages:
            self.broadcast(Greeting())
        for signed in messages:
            if signed.statement.kind is Kind.PROPOSAL and block is not None:
                self.broadcast(self._proposed(signed, block))
            else:
                self.broadcast(Said(signed))

    def _offer(self, peer: NodeId, certificate: Certificate, block: Block | None) -> None:
        if block is not None and isinstance(block.payload, ResultPayload):
            execution = self.exec_certificates.get(block.payload.round)
            if execution is not None:
                self.send(peer, Certified(execution, None))
        self.send(peer, Certified(certificate, block))

    def _start_asking(self, ask: AskPayload) -> None:
        if self._asking is not None:
            self._asking.cancel()
        self._asking = scope = trio.CancelScope()
        self._start(self._choose, ask, scope)

    async def _choose(self, ask: AskPayload, scope: trio.CancelScope) -> None:
        with scope:
            chosen = await (await self._listener_of(ask.round)).proposal()
            payload = replace(
                chosen, evidence=tuple(self.evidence), operations=tuple(self._rejoins.values())
            )
            await self._post(PayloadChosen(ask.view, payload))

    async def _judge(self, block: Block) -> None:
        scope = self._judging.setdefault(block.view, trio.CancelScope())
        with scope:
            reason = await self._verdict(block)
            await self._post(Judged(block.id, reason is None, reason or ""))

    async def _verdict(self, block: Block) -> str | None:
        match block.payload:
            case SetPayload() as proposed:
                reason = self._unproven(proposed)
                if reason is not None:
                    return reason
                return await (await self._listener_of(proposed.round)).judge(proposed)
            case ResultPayload(round_number, vertex_id, result_root):
                while round_number not in self.exec_certificates:
                    await self._changed.park()
                said = self.exec_certificates[round_number].statement.value
                return None if said == [vertex_id, result_root] else "not what was executed"
            case AbortPayload(round_number):
                while round_number not in self.aborts_due:
                    await self._changed.park()
                executed = round_number in self.exec_certificates
                return "the round was executed" if executed else None
            case _:
                return None

    def _unproven(self, proposed: SetPayload) -> str | None:
        """Why the set's evidence or operations prove nothing; None if they are all in order."""
        inbound = self._parts.inbound
        try:
            for encoded in proposed.evidence:
                evidence = decode_evidence(encoded, inbound.limits)
                inbound.verify(evidence.first)
                if isinstance(evidence.second, Certificate):
                    inbound.verify_certificate(evidence.second)
                else:
                    inbound.verify(evidence.second)
            for encoded in proposed.operations:
                signed = decode_signed(encoded, inbound.limits)
                if signed.statement.kind is not Kind.REJOIN:
                    return f"{signed.statement.kind} is no membership operation"
                inbound.verify(signed)
        except (BadMessage, PeerFault) as fault:
            return str(fault)
        return None

    async def _hold(self, block: Block) -> None:
        assert isinstance(block.payload, SetPayload)
        listener = await self._listener_of(block.payload.round)
        await listener.hold_all(block.payload.offers)
        await self._post(DataHeld(block.id))

    async def _listener_of(self, round_number: int) -> OpenRound:
        """The round's listener, once it is open here. Waits for ever for a round that is over."""
        while self._listener is None or self._round != round_number:
            await self._changed.park()
        return self._listener

    def _leave_views_before(self, view: int) -> None:
        for old in [v for v in self._judging if v < view]:
            self._judging.pop(old).cancel()

    def _remember(self, block: Block) -> None:
        self._blocks[block.id] = block
        while len(self._blocks) > BLOCKS_KEPT:
            self._blocks.popitem(last=False)

    def _block_of(self, certificate: Certificate) -> Block | None:
        value = certificate.statement.value
        if not isinstance(value, bytes):
            return None
        return self._machine.known.block(BlockId(value)) or self._blocks.get(BlockId(value))

    def _start(self, task: Callable[..., Awaitable[None]], *arguments: object) -> None:
        assert self.tasks is not None, "carry_out runs inside run()"
        self.tasks.start_soon(task, *arguments)
