"""What the agreement of one node is built from."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from daa_consensus.bft.messages import Block
from daa_dag.ids import BlockId, NodeId
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.kept import Kept
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
    kept: Kept
    stored_block: Callable[[BlockId], Awaitable[Block | None]]  # of published checkpoints
    events: EventLog
    fault: Callable[[NodeId, PeerFault], None]
    members_changed: Callable[[], None] = lambda: None
