"""Carry out what the machine wants done: sign, send, store, ask. No decision is made here."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from daa_consensus.bft.effects import (
    AskDataHeld,
    AskPayload,
    Effect,
    EnteredView,
    FetchBlock,
    FetchCertificates,
    Finalized,
    GaveUp,
    Judge,
    Keep,
    Offer,
    Resend,
    SignAndSend,
    TryAgain,
)
from daa_consensus.bft.events import (
    BlockArrived,
    PeerPosition,
    ProposalArrived,
    VoteArrived,
)
from daa_consensus.bft.messages import Block, EmptyPayload, ResultPayload, SetPayload
from daa_consensus.bft.state import Simplex
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import BlockId, NodeId
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbox import Inbox
from daa_node.agreement.messages import (
    RUN_BLOCKS_MAX,
    Body,
    Certified,
    Greeting,
    Proposed,
    SentBlock,
    Stated,
    WantBlock,
    WantCertificates,
)
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.questions import Questions
from daa_node.agreement.vouching import Vouching
from daa_node.agreement.writer import Writer
from daa_node.errors import StorageFailed
from daa_node.observability import events

BLOCKS_KEPT = 256  # seen lately, in memory; what is voted for or final is kept on disk as well
HOLDERS_ASKED = 2  # for one block at a time; the machine asks again every delta


class EffectsHost:
    """The machine's hands."""

    def __init__(
        self,
        parts: AgreementParts,
        machine: Simplex,
        facts: Facts,
        questions: Questions,
        inbox: Inbox,
        writer: Writer,
    ) -> None:
        self._parts = parts
        self._machine = machine  # asked for what peers want to be shown; stepped by wan_bft alone
        self._facts = facts
        self._questions = questions
        self._inbox = inbox
        self.writer = writer
        self._blocks: OrderedDict[BlockId, Block] = OrderedDict()
        self._vouching = Vouching(parts, machine, facts, self._at_hand, self._said)

    async def carry_out(self, effect: Effect) -> None:
        match effect:
            case SignAndSend():
                await self._vouching.sign(effect)
            case Keep(_, block):
                self._remember(block)
                await self._vouching.keep(effect)
            case AskPayload():
                self._questions.choose(effect)
            case Judge(block):
                self._remember(block)
                self._questions.judge(block)
            case AskDataHeld(block):
                self._questions.hold(block)
            case FetchBlock(block_id, holders):
                await self._find_block(block_id, holders)
            case FetchCertificates(peer, epoch, first_view, last_view):
                self.writer.send(peer, WantCertificates(epoch, first_view, last_view))
            case TryAgain():
                await self._vouching.sign_again()
            case Resend():
                for body in self._votes(effect) or [Greeting()]:
                    self.writer.broadcast(body)
            case Offer(peer, certificates):
                for certificate, block in certificates:
                    for body in self._shown(certificate, block):
                        self.writer.offer(peer, body)
            case EnteredView(epoch, view, why):
                self._questions.leave_view()
                self._parts.events.emit(events.VIEW_ENTERED, epoch=epoch, view=view, why=why)
            case GaveUp(view, reason):
                self._parts.events.emit(events.VIEW_GIVEN_UP, view=view, reason=reason)
            case _:
                raise AssertionError(f"{type(effect).__name__} is carried out by wan_bft")

    async def note_final(self, final: Finalized) -> None:
        """Tell of new final blocks, and keep them until a checkpoint was published with them."""
        if self._parts.validators.follow(final.blocks):
            validators = self._parts.validators
            self._facts.follow(validators.now, validators.domain)
            self._parts.members_changed()
        rejoins: list[tuple[Block, Signed]] = []
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
                rejoins += [(block, signed) for signed in self._facts.settle(block.payload)]
        await self._vouching.note_final(final, rejoins)

    def restored(self, blocks: Iterable[Block]) -> None:
        """Blocks that a restart brought back."""
        for block in blocks:
            self._remember(block)

    def is_news(self, told: PeerPosition) -> bool:
        """Whether the machine need be stepped with it: most messages come from one and the same."""
        known = self._machine.known
        return known.catch_up.is_news(told, known.position)

    async def send_block(self, member: NodeId, block_id: BlockId) -> None:
        """Answer a peer's wish for a block, if we have it."""
        block = await self.block(block_id)
        if block is not None:
            self.writer.answer(member, SentBlock(block, self._run_below(block)))

    def send_certificates(self, member: NodeId, wanted: WantCertificates) -> None:
        """Answer a peer's wish for certificates of views, as far as the machine keeps them."""
        for certificate in self._machine.known.certificates(
            wanted.epoch, wanted.first_view, wanted.last_view
        ):
            value = certificate.statement.value
            block = self._at_hand(BlockId(value)) if isinstance(value, bytes) else None
            for body in self._shown(certificate, block):
                self.writer.answer(member, body)

    async def _find_block(self, block_id: BlockId, holders: tuple[NodeId, ...]) -> None:
        """A checkpoint may have brought the block already; else some of its holders are asked."""
        try:
            block = await self.block(block_id)
        except StorageFailed as failure:  # ours is damaged: others have it
            self._parts.events.emit(events.STORAGE_FAILED, detail=str(failure))
            block = None
        if block is not None:
            self._inbox.step_with(BlockArrived(block))
            return
        for holder in holders[:HOLDERS_ASKED]:
            self.writer.send(holder, WantBlock(block_id))

    def _run_below(self, block: Block) -> tuple[Block, ...]:
        """Empty blocks right below: in a bad hour thousands, and whoever lacks one lacks many."""
        run: list[Block] = []
        while len(run) < RUN_BLOCKS_MAX:
            parent = self._at_hand((run[-1] if run else block).parent_id)
            if parent is None or not isinstance(parent.payload, EmptyPayload):
                break
            run.append(parent)
        return tuple(run)

    def _said(self, signed: Signed, block: Block | None) -> None:
        """A vote is signed: send it, and step the machine with it."""
        if block is None:
            self.writer.broadcast(Stated(signed))
            self._inbox.step_with(VoteArrived(signed))
        else:
            self._remember(block)
            self.writer.broadcast(self._proposed(signed, block))
            self._inbox.step_with(ProposalArrived(signed, block))
        said = signed.statement
        self._parts.events.emit(
            events.STATEMENT_SENT, kind=said.kind, view=said.view, round=said.height
        )

    def _proposed(self, signed: Signed, block: Block) -> Proposed:
        beside = None
        if isinstance(block.payload, ResultPayload):
            beside = self._facts.exec_certificates.get(block.payload.round)
        return Proposed(signed, block, beside)

    def last_votes(self) -> list[Body]:
        """What we said last of views: a member with whom a stream is opened anew may lack it."""
        return self._votes(self._machine.last_votes())

    def _votes(self, said: Resend) -> list[Body]:
        return [
            self._proposed(signed, said.block)
            if signed.statement.kind is Kind.PROPOSAL and said.block is not None
            else Stated(signed)
            for signed in said.messages
        ]

    def _shown(self, certificate: Certificate, block: Block | None) -> Iterator[Body]:
        """A certificate for somebody behind, after the execution that its block stands on."""
        if block is not None and isinstance(block.payload, ResultPayload):
            execution = self._facts.exec_certificates.get(block.payload.round)
            if execution is not None:
                yield Certified(execution, None)
        yield Certified(certificate, block)

    def _remember(self, block: Block | None) -> None:
        if block is None:
            return
        self._blocks[block.id] = block
        while len(self._blocks) > BLOCKS_KEPT:
            self._blocks.popitem(last=False)

    def _at_hand(self, block_id: BlockId) -> Block | None:
        return self._machine.known.block(block_id) or self._blocks.get(block_id)

    async def block(self, block_id: BlockId) -> Block | None:
        """A block that was seen lately, that is kept, or that lies in a checkpoint."""
        found = self._at_hand(block_id) or await self._parts.recovery.block(block_id)
        return found or await self._parts.stored_block(block_id)
