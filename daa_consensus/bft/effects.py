"""What a validator's machine wants done, in the order in which it is to be done.

The host carries out a step's effects in order. An effect that fails (a peer gone, a signer that
refuses, a full disk) is simply not done: the machine stays safe, and asks again while it matters.
"""

from dataclasses import dataclass
from typing import TypeAlias

from daa_consensus.bft.evidence import Evidence
from daa_consensus.bft.messages import Block
from daa_consensus.votes import Certificate, Signed, Statement
from daa_dag.ids import BlockId, NodeId


@dataclass(frozen=True, slots=True)
class AskPayload:
    """We lead `view`: choose the set of `round`, to stand on `parent`. Answer: PayloadChosen."""

    view: int
    parent: Block
    round: int


@dataclass(frozen=True, slots=True)
class Judge:
    """Is this set right: eligible offers, weights, the rule's bound, nothing omitted?

    Its place in the chain is checked already. Answer with Judged once the answer is known. Results
    and aborts are not asked about: ExecCertified and AbortDue say all there is to know.
    """

    block: Block


@dataclass(frozen=True, slots=True)
class AskDataHeld:
    """Fetch the contributions of this set; answer with DataHeld when all are stored and good.

    We judged the set right, chose it, or hold its notarization: its offers are not invented.
    """

    block: Block


@dataclass(frozen=True, slots=True)
class FetchBlock:
    """Some of `holders` have this block: answer with BlockArrived. Asked again every delta."""

    block_id: BlockId
    holders: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class FetchCertificates:
    """Ask `peer` for its certificates of these views: answer with CertificateArrived each."""

    peer: NodeId
    epoch: int
    first_view: int
    last_view: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Store durably before any later effect: a view's certificate, for `Restored.kept`.

    Without it a crash of every node at once could lose the only proof that a view was skipped.
    Of use until a Finalized whose newest block has a later epoch, or this view or a later one.
    """

    certificate: Certificate
    block: Block | None


@dataclass(frozen=True, slots=True)
class SignAndSend:
    """Sign through the guarded signer, send to every validator, and step with our own message.

    `block` goes along with a Proposal.
    """

    statement: Statement
    block: Block | None


@dataclass(frozen=True, slots=True)
class TryAgain:
    """A delta has passed in this view: whatever was refused, or has not come, is due again."""


@dataclass(frozen=True, slots=True)
class Resend:
    """Send these own messages to every validator again; none at all still tells our position."""

    messages: tuple[Signed, ...]
    block: Block | None  # of the Proposal among them


@dataclass(frozen=True, slots=True)
class Offer:
    """`peer` is behind: send it these, oldest first, each with its block where we hold one."""

    peer: NodeId
    certificates: tuple[tuple[Certificate, Block | None], ...]


@dataclass(frozen=True, slots=True)
class Finalized:
    """These blocks are final, oldest first; durable before any later effect is carried out.

    `certificate` finalizes the last of `trailing`, or, with none, the last of `blocks`. Trailing
    blocks are empty, lie above an epoch's last block, and are no part of the chain: they only carry
    the proof (docs/consensus.md, "Epochs").
    """

    blocks: tuple[Block, ...]
    certificate: Certificate
    trailing: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class EnteredView:
    epoch: int
    view: int
    why: str


@dataclass(frozen=True, slots=True)
class GaveUp:
    """This node nullifies `view`: what was wrong with it, for the event log."""

    view: int
    reason: str


@dataclass(frozen=True, slots=True)
class Accuse:
    """Two signed messages that no honest node signs both of; goes into a later set."""

    evidence: Evidence


Effect: TypeAlias = (
    AskPayload
    | Judge
    | AskDataHeld
    | FetchBlock
    | FetchCertificates
    | Keep
    | SignAndSend
    | Resend
    | TryAgain
    | Offer
    | Finalized
    | EnteredView
    | GaveUp
    | Accuse
)
