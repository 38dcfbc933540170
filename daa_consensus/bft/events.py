"""What can happen to a validator: the events that its machine is stepped with.

The host has verified every signature (of a certificate, all of them) and decoded every block before
it makes one of these. What a peer says is otherwise believed in nothing.
"""

from dataclasses import dataclass
from typing import TypeAlias

from daa_consensus.bft.messages import Block, SetPayload
from daa_consensus.votes import Certificate, Signed
from daa_dag.ids import BlockId, Digest, NodeId, VertexId


@dataclass(frozen=True, slots=True)
class ProposalArrived:
    """A leader's signed Proposal with the block that it names; our own comes back this way too."""

    signed: Signed
    block: Block


@dataclass(frozen=True, slots=True)
class VoteArrived:
    """A Notarize, Nullify or Finalize; our own come back this way too."""

    signed: Signed


@dataclass(frozen=True, slots=True)
class CertificateArrived:
    """A notarization, nullification or finalization that a peer offered or we asked for."""

    certificate: Certificate
    block: Block | None  # what it certifies, when it came along
    below: tuple[Block, ...] = ()  # its ancestors, oldest first, when checkpoints brought them


@dataclass(frozen=True, slots=True)
class BlockArrived:
    """A block that FetchBlock asked for, and whichever of its ancestors came along."""

    block: Block
    below: tuple[Block, ...] = ()  # newest first


@dataclass(frozen=True, slots=True)
class PeerPosition:
    """Where a peer stands, from the envelope of any of its messages, or its hello."""

    peer: NodeId
    epoch: int
    view: int
    finalized_view: int  # of its newest final block


@dataclass(frozen=True, slots=True)
class Tick:
    """`deadline_ns` has come; a Tick at any other time is harmless."""


@dataclass(frozen=True, slots=True)
class RoundReady:
    """The window of round `round` has ended here: a set for it may be proposed."""

    round: int


@dataclass(frozen=True, slots=True)
class PayloadChosen:
    """The answer to AskPayload; any time before the view ends."""

    view: int
    payload: SetPayload


@dataclass(frozen=True, slots=True)
class Judged:
    """The answer to Judge. `reason` says what is wrong with the block."""

    block_id: BlockId
    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DataHeld:
    """Every contribution of this set is stored here and verified: the answer to AskDataHeld."""

    block_id: BlockId


@dataclass(frozen=True, slots=True)
class ExecSigned:
    """This node is about to sign Exec for `round`; from here on it notarizes no abort of it."""

    round: int


@dataclass(frozen=True, slots=True)
class ExecCertified:
    """The host holds an execution certificate of `round`."""

    round: int
    vertex_id: VertexId
    result_root: Digest


@dataclass(frozen=True, slots=True)
class AbortDue:
    """The deadline for executing the final set of `round` has passed here."""

    round: int


Event: TypeAlias = (
    ProposalArrived
    | VoteArrived
    | CertificateArrived
    | BlockArrived
    | PeerPosition
    | Tick
    | RoundReady
    | PayloadChosen
    | Judged
    | DataHeld
    | ExecSigned
    | ExecCertified
    | AbortDue
)
