"""Sign what the machine votes for, once all that the vote relies on is durable.

    Keep --> kept --\
                     +--> vote's block kept --> signed --> said
    SignAndSend ----/

The machine takes for signed what it asked to sign, and asks once. So what the disk refuses to log,
or the signer to sign while it is quarantined, is tried again once a delta, as long as its view
matters; and nothing is signed while anything that it may rely on is not kept: certificates, and
what has become final.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from daa_consensus.bft.effects import Finalized, Keep, SignAndSend
from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload
from daa_consensus.bft.own_statements import check_block
from daa_consensus.bft.state import Simplex
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import BlockId
from daa_node.agreement.facts import Facts
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.signer import MALFORMED, QUARANTINED
from daa_node.errors import Refused, StorageFailed
from daa_node.observability import events

KEY_ELSEWHERE = (
    "another process asked, with this node's keys, to be let vote: two that vote are convicted. "
    "Stop one of them at once; where both are wanted, make a node of its own with `daa-node init`. "
    "If only this one runs, and its `agreement` directory was put back just now, all is well"
)


class Vouching:
    """One machine's votes. What the disk refuses is told as an event and owed, never raised."""

    def __init__(
        self,
        parts: AgreementParts,
        machine: Simplex,
        facts: Facts,
        at_hand: Callable[[BlockId], Block | None],
        said: Callable[[Signed, Block | None], None],
    ) -> None:
        """`at_hand` finds a block; `said` takes each signed vote, with a Proposal's block."""
        self._parts = parts
        self._machine = machine  # asked where it stands; stepped by wan_bft alone
        self._facts = facts
        self._at_hand = at_hand
        self._said = said
        self._unsigned: list[SignAndSend] = []
        self._unkept: list[Keep] = []  # of views above the newest final block
        self._unkept_finals: list[Finalized] = []  # of the newest height

    async def keep(self, effect: Keep) -> None:
        """Store a certificate durably, now or before anything else is signed."""
        self._unkept.append(effect)
        await self._trying(self._keep_all())

    async def sign(self, effect: SignAndSend) -> None:
        await self._sign(effect, again=False)

    async def sign_again(self) -> None:
        """What could not be signed before, of this view or, a Finalize, of the one before."""
        known = self._machine.known
        again, self._unsigned = self._unsigned, []
        for effect in again:
            epoch, view = effect.statement.domain.epoch, effect.statement.view
            if epoch == known.domain.epoch and view >= known.view - 1:
                await self._sign(effect, again=True)

    async def note_final(self, final: Finalized, rejoins: Sequence[tuple[Block, Signed]]) -> None:
        """Forget votes that are over, keep what is final, and end a quarantine.

        `rejoins` are those that the final sets carry, each with its set's block.
        """
        newest = final.blocks[-1]
        self._parts.signer.finalized(newest.epoch, newest.view, newest.height)
        owed = [each for each in self._unkept_finals if each.blocks[-1].height == newest.height]
        self._unkept_finals = [*owed, final]
        self._unkept = [k for k in self._unkept if _slot_of(k) > (newest.epoch, newest.view)]
        await self._trying(self._keep_all())
        for block, signed in rejoins:
            if signed.signer == self._parts.me:
                await self._trying(self._rejoin(block, signed))

    async def _trying(self, deed: Coroutine[Any, Any, None]) -> None:
        try:
            await deed
        except StorageFailed as failure:
            self._parts.events.emit(events.STORAGE_FAILED, detail=str(failure))

    async def _keep_all(self) -> None:
        """Raises StorageFailed."""
        while self._unkept_finals:
            await self._keep_final(self._unkept_finals[0])
            del self._unkept_finals[0]
        while self._unkept:
            await self._parts.recovery.keep(self._unkept[0].certificate, self._unkept[0].block)
            del self._unkept[0]

    async def _keep_final(self, final: Finalized) -> None:
        # A set is only offered for on top of what a quorum has published: older rounds are safe.
        newest = final.blocks[-1]
        open_round = [b for b in final.blocks if b.height == newest.height]
        await self._parts.recovery.keep_blocks((*open_round, *final.trailing))
        await self._parts.recovery.keep(final.certificate, (final.trailing or final.blocks)[-1])

    async def _rejoin(self, block: Block, signed: Signed) -> None:
        nonce = signed.statement.value
        assert isinstance(nonce, bytes)  # a Rejoin's shape was checked when decoded
        if await self._parts.signer.rejoined(nonce, block.epoch, block.view, block.height):
            self._parts.events.emit(events.REJOINED, view=block.view, round=block.height)
        elif self._parts.signer.is_used_elsewhere(nonce, block.epoch, block.view):
            self._parts.events.emit(events.KEY_ELSEWHERE, why=KEY_ELSEWHERE)

    async def _sign(self, effect: SignAndSend, again: bool) -> None:
        try:
            if effect.block is not None:
                self._check_readable(effect.block)
            await self._keep_all()
            abort_round = await self._keep_voted(effect.statement, effect.block)
            signed = await self._parts.signer.sign(effect.statement, abort_round)
        except (Refused, StorageFailed) as failure:  # silence is safe
            if isinstance(failure, StorageFailed) or failure.reason == QUARANTINED:
                self._unsigned.append(effect)
            if not again:
                self._tell(effect.statement, failure)
        else:
            self._said(signed, effect.block)

    def _check_readable(self, block: Block) -> None:
        """A Proposal binds us to a block that others must be able to take."""
        try:
            check_block(block, self._parts.validators.limits)
        except BadMessage as fault:
            raise Refused(MALFORMED, f"block of view {block.view}: {fault}") from None

    def _tell(self, statement: Statement, failure: Refused | StorageFailed) -> None:
        if isinstance(failure, StorageFailed):
            self._parts.events.emit(events.STORAGE_FAILED, detail=str(failure))
        else:
            self._parts.events.emit(
                events.VOTE_REFUSED, kind=statement.kind, view=statement.view, why=str(failure)
            )

    async def _keep_voted(self, statement: Statement, proposed: Block | None) -> int | None:
        """Make durable what the vote is for; the round that a Notarize helps to abort, if it does.

        Raises Refused for a block that is not at hand: nobody vouches for what it cannot show.
        """
        if statement.kind is Kind.NULLIFY:
            return None
        assert isinstance(statement.value, bytes)
        voted = proposed or self._at_hand(BlockId(statement.value))
        if voted is None:
            raise Refused("unknown-block", f"{statement.value.hex()} is not at hand")
        await self._parts.recovery.keep_blocks([voted])
        match voted.payload:
            case ResultPayload(round=round_number):
                execution = self._facts.exec_certificates.get(round_number)
                if execution is not None:
                    await self._parts.recovery.keep(execution, voted)
                return None
            case AbortPayload(round=round_number):
                # Who executed refuses to notarize an abort; notarized, it must become final.
                return round_number if statement.kind is Kind.NOTARIZE else None
            case _:
                return None


def _slot_of(effect: Keep) -> tuple[int, int]:
    statement = effect.certificate.statement
    return statement.domain.epoch, statement.view
