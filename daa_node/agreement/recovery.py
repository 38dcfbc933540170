"""What a restart needs until the chain on disk has it: certificates, voted blocks, final ones.

After every node of a network was killed at once, nothing is known but what their disks hold. So a
certificate is kept before the vote that relies on it, a block before the vote for it, and what
became final until a checkpoint was published with it. Slots are (epoch, view).

A restart replays and signs nothing: the machine starts from the published chain, what Keep stored,
and what we signed, and each node's own last votes are what the others learn from again.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from daa_consensus.bft.ballots import VIEWS_BEHIND_MAX
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    GenesisPayload,
    ResultPayload,
    SetPayload,
    decode_block,
    decode_certificate,
    encode_block,
    encode_certificate,
)
from daa_consensus.bft.safety import Record
from daa_consensus.bft.state import Restored
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import BlockId
from daa_node.errors import StorageFailed
from daa_node.seams import BlobStore

CERTIFICATES = "kept"  # record kind; named by slot and kind, beside the block where it is known
BLOCKS = "kept-blocks"  # record kind; named by slot and id

Slot = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    """`slot` is that of the block for an execution certificate, else the certificate's own."""

    slot: Slot
    certificate: Certificate
    block: Block | None


class RecoveryStore:
    """The kept records of one node. Raises StorageFailed when the disk refuses or is damaged."""

    def __init__(self, store: BlobStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._names: dict[tuple[str, str], Slot] = {}  # (record kind, name) -> slot
        self._places: dict[BlockId, tuple[str, str]] = {}  # where a block lies: kind and name

    async def load(self) -> tuple[list[StoredCertificate], list[Block]]:
        """Everything that is kept, by slot."""
        certificates, blocks = [], []
        for name in await self._store.record_names(CERTIFICATES):
            found = await self._certificate(name)
            certificates.append(found)
            self._note(CERTIFICATES, name, found.slot, found.block)
        for name in await self._store.record_names(BLOCKS):
            block = await self._block(name)
            blocks.append(block)
            self._note(BLOCKS, name, _slot_of(block), block)
        return sorted(certificates, key=lambda kept: kept.slot), sorted(blocks, key=_slot_of)

    async def keep(self, certificate: Certificate, block: Block | None) -> None:
        """Durable once this returns. `block` is what an execution certificate is kept for."""
        statement = certificate.statement
        slot = (statement.domain.epoch, statement.view)
        if statement.kind is Kind.EXEC:
            assert block is not None, "an execution has no view of its own"
            slot = _slot_of(block)
        name = f"{slot[0]}-{slot[1]}-{statement.kind}"
        if (CERTIFICATES, name) in self._names:
            return
        beside = None if block is None else encode_block(block)
        payload = canonical.encode([*slot, encode_certificate(certificate), beside])
        await self._store.put_record(CERTIFICATES, name, payload)
        self._note(CERTIFICATES, name, slot, block)
        if statement.kind is Kind.NOTARIZE:
            await self._let_go_below(slot)

    async def keep_blocks(self, blocks: Iterable[Block]) -> None:
        """Durable once this returns."""
        for block in blocks:
            name = _name_of(block)
            if (BLOCKS, name) not in self._names:  # every vote for a block asks for it again
                await self._store.put_record(BLOCKS, name, encode_block(block))
                self._note(BLOCKS, name, _slot_of(block), block)

    async def block(self, block_id: BlockId) -> Block | None:
        """A block that is kept, alone or beside a certificate."""
        place = self._places.get(block_id)
        if place is None:
            return None
        kind, name = place
        return await self._block(name) if kind == BLOCKS else (await self._certificate(name)).block

    async def forget(self, slot: Slot) -> None:
        """A checkpoint holds whatever was final at this slot: drop all up to it."""
        gone = [key for key, at in self._names.items() if at <= slot]
        for kind, name in gone:
            del self._names[kind, name]
        self._places = {b: place for b, place in self._places.items() if place in self._names}
        for kind, name in gone:
            await self._store.delete_record(kind, name)

    async def _let_go_below(self, notarized: Slot) -> None:
        """Drop certificates well below a notarized block, which nobody can need (see ballots).

        There may be thousands, with a signature of everybody each. The blocks stay.
        """
        epoch, view = notarized
        for kind, name in [
            (kind, name)
            for (kind, name), at in self._names.items()
            if kind == CERTIFICATES and at[0] == epoch and at[1] < view - VIEWS_BEHIND_MAX
        ]:
            try:
                found = await self._certificate(name)
            except StorageFailed:
                continue  # damaged: the next start says so
            if found.certificate.statement.kind not in (Kind.NOTARIZE, Kind.NULLIFY):
                continue
            if found.block is not None:
                await self.keep_blocks([found.block])
                self._places[found.block.id] = (BLOCKS, _name_of(found.block))
            del self._names[kind, name]
            await self._store.delete_record(kind, name)

    def _note(self, kind: str, name: str, slot: Slot, block: Block | None) -> None:
        self._names[kind, name] = slot
        if block is not None:
            self._places[block.id] = (kind, name)

    async def _certificate(self, name: str) -> StoredCertificate:
        payload, limits = await self._payload(CERTIFICATES, name), self._limits
        try:
            epoch, view, encoded, beside = canonical.decode(payload, _bytes_max(limits))
            if not isinstance(epoch, int) or not isinstance(view, int):
                raise TypeError("a slot is two integers")
            block = None if beside is None else decode_block(beside, limits)
            return StoredCertificate((epoch, view), decode_certificate(encoded, limits), block)
        except (NotCanonical, BadMessage, TypeError, ValueError) as fault:
            raise StorageFailed(f"{CERTIFICATES}/{name} is damaged: {fault}") from fault

    async def _block(self, name: str) -> Block:
        payload = await self._payload(BLOCKS, name)
        try:
            return decode_block(payload, self._limits)
        except BadMessage as fault:
            raise StorageFailed(f"{BLOCKS}/{name} is damaged: {fault}") from fault

    async def _payload(self, kind: str, name: str) -> bytes:
        payload = await self._store.get_record(kind, name)
        if payload is None:
            raise StorageFailed(f"{kind}/{name} went away")
        return payload


def _name_of(block: Block) -> str:
    return f"{block.epoch}-{block.view}-{block.id.hex()}"


def _slot_of(block: Block) -> Slot:
    return (block.epoch, block.view)


def _bytes_max(limits: Limits) -> int:
    return 64 + limits.certificate_bytes_max + limits.block_bytes_max


async def restored(
    path_down: AsyncGenerator[Block, None],
    certificate: Certificate | None,
    epoch_rounds: int,
    kept: Sequence[StoredCertificate],
    blocks: Iterable[Block],
    statements: Sequence[Signed],
) -> tuple[Restored, Block | None]:
    """What to build the machine from, and the set block of a round that is decided and open.

    `path_down` leads from the newest published final block towards genesis, and is closed here;
    `certificate` finalizes its first block, None at genesis. `kept` and `blocks` are what
    RecoveryStore has, `statements` the signer's.
    """
    tip, trailing, open_set = await _find_tip(path_down, epoch_rounds)
    votes = [w for w in statements if w.statement.view > 0]
    newest = max(((w.statement.domain.epoch, w.statement.view) for w in votes), default=(0, 0))
    own = [w for w in votes if (w.statement.domain.epoch, w.statement.view) == newest]
    executed = [w.statement.height for w in statements if w.statement.kind is Kind.EXEC]
    proposals = [w.statement.value for w in own if w.statement.kind is Kind.PROPOSAL]
    own_block = next((block for block in blocks if block.id in proposals), None)
    state = Restored(
        tip=tip,
        tip_open=open_set is not None,
        proof=None if certificate is None else (certificate, trailing),
        kept=tuple(
            (item.certificate, item.block)
            for item in kept
            if item.certificate.statement.kind is not Kind.EXEC
        ),
        record=_record_of(newest, own),
        own_messages=tuple(own),
        own_block=own_block,
        executed=max(executed, default=0),
    )
    return state, open_set


async def _find_tip(
    path_down: AsyncGenerator[Block, None], epoch_rounds: int
) -> tuple[Block, tuple[Block, ...], Block | None]:
    """The tip, blocks above it that only carry an epoch's proof, and an open round's set."""
    empties: list[Block] = []  # newest first
    async with aclosing(path_down):
        async for block in path_down:
            match block.payload:
                case EmptyPayload():
                    empties.append(block)
                case SetPayload():
                    return (empties[0] if empties else block), (), block
                case ResultPayload() | AbortPayload() if block.height % epoch_rounds == 0 and all(
                    e.epoch == block.epoch for e in empties
                ):
                    return block, tuple(reversed(empties)), None
                case ResultPayload() | AbortPayload() | GenesisPayload():
                    return (empties[0] if empties else block), (), None
    raise StorageFailed("the header chain does not reach its genesis block")


def _record_of(slot: tuple[int, int], own: list[Signed]) -> Record:
    said = {signed.statement.kind: signed.statement.value for signed in own}

    def block_id(kind: Kind) -> BlockId | None:
        value = said.get(kind)
        return BlockId(value) if isinstance(value, bytes) else None

    return Record(
        epoch=slot[0],
        view=slot[1],
        proposed=block_id(Kind.PROPOSAL),
        notarized=block_id(Kind.NOTARIZE),
        nullified=Kind.NULLIFY in said,
        finalized=block_id(Kind.FINALIZE),
    )
