"""What the machine starts from: the published chain, what Keep stored, and what we signed.

Replaying signs nothing. After every node of a network was killed at once, the kept certificates and
each node's own last votes are what the others learn from again.
"""

from collections.abc import AsyncIterator, Iterable, Sequence

from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    GenesisPayload,
    ResultPayload,
    SetPayload,
)
from daa_consensus.bft.safety import Record
from daa_consensus.bft.state import Restored
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import BlockId
from daa_node.agreement.kept import KeptCertificate
from daa_node.errors import StorageFailed


async def restored(
    path_down: AsyncIterator[Block],
    certificate: Certificate | None,
    epoch_rounds: int,
    kept: Sequence[KeptCertificate],
    blocks: Iterable[Block],
    words: Sequence[Signed],
) -> tuple[Restored, Block | None]:
    """What to build the machine from, and the set block of a round that is decided and open.

    `path_down` leads from the newest published final block towards genesis; `certificate` finalizes
    its first block, None at genesis. `kept` and `blocks` are what Kept has, `words` the signer's.
    """
    tip, trailing, open_set = await _find_tip(path_down, epoch_rounds)
    votes = [w for w in words if w.statement.view > 0]
    newest = max(((w.statement.domain.epoch, w.statement.view) for w in votes), default=(0, 0))
    own = [w for w in votes if (w.statement.domain.epoch, w.statement.view) == newest]
    executed = [w.statement.height for w in words if w.statement.kind is Kind.EXEC]
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
    path_down: AsyncIterator[Block], epoch_rounds: int
) -> tuple[Block, tuple[Block, ...], Block | None]:
    """The tip, blocks above it that only carry an epoch's proof, and an open round's set."""
    empties: list[Block] = []  # newest first
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
    said = {word.statement.kind: word.statement.value for word in own}

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
