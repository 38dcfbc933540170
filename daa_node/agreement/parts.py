"""What the agreement of one node is built from, and what it asks of the open round."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from daa_consensus.bft.messages import Block, OfferBody, SetPayload
from daa_consensus.votes import Signed
from daa_dag.ids import BlockId, ContributionRoot, NodeId
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.recovery import RecoveryStore
from daa_node.agreement.signer import Signer
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators
from daa_node.network.mailbox import Mailbox
from daa_node.observability.events import EventLog


@dataclass(frozen=True, slots=True)
class AgreementParts:
    """The validators, the way to its members, the signer, and where things are kept and told."""

    me: NodeId
    validators: Validators
    delta_ns: int
    signer: Signer
    inbound: Inbound
    mailbox: Mailbox
    recovery: RecoveryStore
    stored_block: Callable[[BlockId], Awaitable[Block | None]]  # of published checkpoints
    events: EventLog
    fault: Callable[[NodeId, PeerFault], None]
    members_changed: Callable[[], None] = lambda: None


class OpenRound(Protocol):
    """Hears a round's statements, proposes and judges sets, and holds a decided one's data."""

    def hear(self, signed: Signed) -> None:
        """An Offer or Ack of this round, verified. Raises PeerFault."""

    async def proposal(self) -> SetPayload:
        """The set to propose, once the round's window has ended."""

    async def judge(self, proposed: SetPayload) -> str | None:
        """None if the set may be notarized, else why not; waits until that is known."""

    def lacks(self, roots: Sequence[ContributionRoot]) -> Sequence[ContributionRoot]:
        """Those of them that are not known here to have an Ack quorum."""

    def show(
        self, roots: Sequence[ContributionRoot]
    ) -> tuple[tuple[OfferBody, ...], tuple[Signed, ...]]:
        """Those of them that one message can prove eligible, with the Acks that prove it."""

    def shown(self, offers: Sequence[OfferBody], acks: Sequence[Signed]) -> None:
        """What a member proves eligible, the Acks verified, is so here. Raises PeerFault."""

    async def hold_all(self, offers: tuple[OfferBody, ...]) -> None:
        """Return once every contribution is stored here and checked."""
