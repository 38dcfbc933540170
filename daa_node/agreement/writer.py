"""Messages go out: with where we stand, read first as their readers will, into members' outboxes.

A wish is sixty bytes, and what grants it a block, certificates or statements. Honest members wish
for what they lack and ask again after a delta, so that a pace of bytes keeps nobody waiting who
reads what comes: one largest message a delta, each member of its own, or a hundred small ones.
"""

from collections.abc import Callable

from daa_dag.ids import NodeId
from daa_node.agreement.messages import Body, Message, Position, encode_message, message_bytes_max
from daa_node.agreement.parts import AgreementParts
from daa_node.errors import PeerFault
from daa_node.network.pace import Paces

WISH_COST_BYTES = 1024  # of a wish that finds nothing: a look at the disk


class Writer:
    """Writes this node's messages; `position` says where it stands."""

    def __init__(self, parts: AgreementParts, position: Callable[[], Position]) -> None:
        self._mailbox = parts.mailbox
        self._inbound = parts.inbound
        self._position = position
        limits = parts.validators.limits
        self._wishes = Paces(parts.delta_ns / 1e9, lambda: message_bytes_max(limits))

    def begin_anew(self, member: NodeId) -> None:
        """What waits for the member to be connected is out of date: it is told all that matters."""
        self._mailbox.forget(member)

    def send(self, member: NodeId, body: Body) -> None:
        self._mailbox.send(member, self._message(body))

    def broadcast(self, body: Body) -> None:
        self._mailbox.broadcast(self._message(body))

    def offer(self, member: NodeId, body: Body) -> None:
        """What the member lacks, as its position shows; an answer that it need not ask for."""
        self._mailbox.answer(member, self._message(body))

    def grants(self, member: NodeId) -> bool:
        """Whether its wish may be answered now; counts the look at what it asks for."""
        pace = self._wishes.of(member)
        if pace.debt_s:
            return False
        pace.spend(WISH_COST_BYTES)
        return True

    def answer(self, member: NodeId, body: Body) -> None:
        """What the member wished for, on its account; if it reads nothing, it must ask again."""
        message = self._message(body)
        if self._mailbox.answer(member, message):
            self._wishes.of(member).spend(len(message))

    def _message(self, body: Body) -> bytes:
        """The message's bytes, which its reader takes for this very message."""
        message = Message(self._position(), body)
        payload = encode_message(message)
        try:
            read = self._inbound.decoded(payload)
        except PeerFault as fault:
            raise AssertionError(f"a message of ours that others refuse: {fault}") from None
        assert read == message, "a message of ours that others read as another one"
        return payload
