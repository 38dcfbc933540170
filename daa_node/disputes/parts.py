"""What a node's part in disputes is made of."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from daa_consensus.bft.evidence import Evidence
from daa_consensus.committee import Domain
from daa_consensus.votes import Signed, Statement
from daa_dag.ids import BlobRoot, NodeId
from daa_node.disputes.decided_sets import Drawn
from daa_node.disputes.exhibits import Fetch
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators
from daa_node.observability.events import EventLog
from daa_node.seams import BlobStore, PeerId, StateRef, Trainer
from daa_node.spot_checks.checks import CheckRules


@dataclass(frozen=True, slots=True)
class Reach:
    """How one node speaks to the others."""

    members: Callable[[], set[NodeId]]  # connected, without ourselves
    node_of: Callable[[PeerId], NodeId | None]
    # (node, request's name, body, bytes of the answer at most) -> answer; raises NodeError
    ask: Callable[[NodeId, str, bytes, int], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Voice:
    """By what one node speaks, and what it believes."""

    validators: Validators
    verify: Callable[[Signed], None]  # raises PeerFault
    sign: Callable[[Statement], Awaitable[Signed]]  # raises NodeError
    convict: Callable[[Evidence], None]

    def verify_about(self, signed: Signed, round_number: int) -> None:
        """Return if its signer said it about that round's contributions. Raises PeerFault.

        All is said in the epoch of the round: else it could be said twice. Accusers ask this as
        judges do, or an author could have one bring what the others take for a lie.
        """
        said, epoch = signed.statement, self.validators.epoch_of(round_number)
        if (said.height, said.domain.epoch) != (round_number, epoch):
            raise PeerFault("malformed", f"{said.kind} in epoch {said.domain.epoch}")
        self.verify(signed)

    def is_convicted(self, *nodes: NodeId) -> bool:
        """Whether one of them stands convicted: another verdict would change nothing."""
        return not {*nodes}.isdisjoint(self.validators.now.convicted)

    def domain(self, round_number: int) -> Domain:
        """In which everything about the round's contributions is said."""
        return self.validators.domain(self.validators.epoch_of(round_number))


@dataclass(frozen=True, slots=True)
class DisputeParts:
    """`named_fault`: why names alone prove a contribution wrong.

    `see_base`: look at a round's base, so that this can be told also when it is not here any more.
    `last_boundary`: where the author's newest merged contribution before left off; None if it has
    none. Each raises NodeError.
    `tolerance_of` an author's work: what our device and its own may be apart.
    """

    me: NodeId
    rules: CheckRules
    trainer: Trainer
    store: BlobStore
    fetch: Fetch
    named_fault: Callable[[Drawn], Awaitable[str | None]]
    last_boundary: Callable[[Drawn], Awaitable[BlobRoot | None]]
    see_base: Callable[[StateRef], Awaitable[object]]
    tolerance_of: Callable[[NodeId], float]
    reach: Reach
    voice: Voice
    events: EventLog
