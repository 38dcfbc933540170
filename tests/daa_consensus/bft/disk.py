"""What survives a crash of a simulated node: guard, log, kept certificates, final chain."""

from dataclasses import dataclass, field

from daa_consensus.bft.chain import follow
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    ResultPayload,
    SetPayload,
)
from daa_consensus.bft.safety import Record
from daa_consensus.bft.state import Restored
from daa_consensus.committee import Committee
from daa_consensus.membership import Membership
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import BlockId


@dataclass(slots=True)
class Disk:
    """What survives a crash. The first committee and the length of epochs are the genesis's."""

    committee: Committee
    epoch_rounds: int
    chain: list[Block]
    closings: dict[int, tuple[Certificate, tuple[Block, ...]]] = field(default_factory=dict)
    voted: dict[BlockId, Block] = field(default_factory=dict)  # before our vote for them
    record: Record = Record(0, 0)
    log: list[tuple[Signed, Block | None]] = field(default_factory=list)
    kept: list[tuple[Certificate, Block | None]] = field(default_factory=list)
    proof: tuple[Certificate, tuple[Block, ...]] | None = None
    executed: int = 0

    def tip_open(self) -> bool:
        newest = next(b for b in reversed(self.chain) if not isinstance(b.payload, EmptyPayload))
        return isinstance(newest.payload, SetPayload)

    def membership(self) -> Membership:
        """Who votes after the newest final block: folded from the genesis on."""
        now = Membership(self.committee)
        for block in self.chain:
            now = follow(now, block, self.epoch_rounds)
        return now

    def keep_vote(self, signed: Signed, block: Block | None, voted: Block | None) -> None:
        """Into the guard and the log, before anything is sent."""
        statement = signed.statement
        slot = (statement.domain.epoch, statement.view)
        record, value = self.record.at(slot), statement.value
        assert slot >= self.record.slot, "the guard would have refused"
        named = BlockId(value) if isinstance(value, bytes) else None
        self.record = Record(
            *slot,
            named if statement.kind == Kind.PROPOSAL else record.proposed,
            named if statement.kind == Kind.NOTARIZE else record.notarized,
            statement.kind == Kind.NULLIFY or record.nullified,
            named if statement.kind == Kind.FINALIZE else record.finalized,
        )
        self.log.append((signed, block))
        if voted is not None:
            self.voted[voted.id] = voted

    def keep_final(
        self, blocks: tuple[Block, ...], certificate: Certificate, trailing: tuple[Block, ...]
    ) -> None:
        """These are final; nothing else need be kept of what is below them."""
        self.chain += blocks
        self.proof = (certificate, trailing)
        for block in blocks:
            closes = isinstance(block.payload, ResultPayload | AbortPayload)
            if closes and block.height % self.epoch_rounds == 0:
                self.closings.setdefault(block.epoch, self.proof)
        tip = blocks[-1]
        self.voted = {i: b for i, b in self.voted.items() if b.epoch >= tip.epoch}
        self.kept = [
            (c, b)
            for c, b in self.kept
            if c.statement.view > tip.view and c.statement.domain.epoch >= tip.epoch
        ]

    def page(self, epoch: int) -> tuple[Certificate, list[Block]]:
        """What ends `epoch` for who stands in it: the certificate, and all blocks up to it."""
        certificate, trailing = self.closings[epoch]
        last = certificate.statement.domain.epoch
        blocks = [b for b in self.chain if epoch <= b.epoch <= last] + list(trailing)
        ids = [b.id for b in blocks]
        return certificate, blocks[: ids.index(BlockId(_bytes(certificate))) + 1]

    def block(self, block_id: BlockId) -> Block | None:
        """A block that is final, or that we voted for."""
        final = (block for block in reversed(self.chain) if block.id == block_id)
        return self.voted.get(block_id) or next(final, None)

    def restored(self) -> Restored:
        last = [
            (signed, block)
            for signed, block in self.log
            if (signed.statement.domain.epoch, signed.statement.view) == self.record.slot
        ]
        return Restored(
            tip=self.chain[-1],
            tip_open=self.tip_open(),
            proof=self.proof,
            kept=tuple(self.kept),
            record=self.record,
            own_messages=tuple(signed for signed, _ in last),
            own_block=next((block for _, block in last if block is not None), None),
            membership=self.membership(),
            executed=self.executed,
        )


def _bytes(certificate: Certificate) -> bytes:
    value = certificate.statement.value
    assert isinstance(value, bytes)
    return value
