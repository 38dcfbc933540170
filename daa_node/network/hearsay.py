"""What a fetch hears of others that fetch the same: from whoever spreads the blob, or themselves.

Whoever spreads it tells what others have. Where nobody does any more, as the only one that had it
whole is gone, and where nothing comes for a while, all that are known are asked themselves, again
and again: what they have together may still be all of it.
"""

from daa_dag.fetch import Event, PeerGained, PeerJoined
from daa_dag.ids import NodeId
from daa_dag.spread import indices_of

LOOK_EVERY_S = 0.5  # a few bytes, and a bit a chunk


class Hearsay:
    """Of one fetch. Times are seconds of any clock."""

    def __init__(self, slowness: float = 1.0) -> None:
        """`slowness`: how many times longer than usual a chunk takes."""
        self._slowness = slowness
        self._looked_s = float("-inf")
        self._were_told = False  # by one that is lost
        self.tellers: set[NodeId] = set()  # that spread the blob, as far as we can talk to them
        # Masks: what those have that may have it whole by now. They say whether it is so first.
        self.named: dict[NodeId, int] = {}
        self._known: dict[NodeId, int] = {}  # masks: what of each the machine has heard of

    def gains(self, node_id: NodeId, mask: int, is_relay: bool) -> list[Event]:
        """What of this is news: the same again and again costs us no more than its bytes.

        A relay that has left joins again, and has what it is said to have then.
        """
        known = self._known.get(node_id)
        fresh = mask & ~(known or 0)
        self._known[node_id] = (known or 0) | mask
        if known is not None and not fresh:
            return []
        gained = PeerGained(node_id, frozenset(indices_of(fresh)))
        return [PeerJoined(node_id, frozenset()), gained] if is_relay else [gained]

    def heard_of(self, lost: NodeId, declined: set[NodeId]) -> list[tuple[NodeId, int]]:
        """Whom to ask in place of one that is lost, and what they are said to have.

        That one, if it was named and says now that it has not all. Where nobody tells any more,
        whoever has declined as well: it may fetch the blob, and nobody may have said so.
        """
        told = self.named.pop(lost, 0)
        self._known.pop(lost, None)
        self._were_told |= lost in self.tellers
        self.tellers.discard(lost)
        if self._were_told and not self.tellers:
            return [(node, told if node == lost else 0) for node in sorted(declined)]
        return [(lost, told)] if told and lost in declined else []

    @property
    def is_alone(self) -> bool:
        """Whether at most one spreads the blob."""
        return len(self.tellers) < 2

    def name(self, node_id: NodeId, mask: int) -> None:
        self.named[node_id] = self.named.get(node_id, 0) | mask

    def is_look_due(self, now_s: float, quiet_s: float) -> bool:
        """Whether to ask the others themselves; `quiet_s`: since when no chunk has come."""
        is_told = bool(self.tellers) and quiet_s < 2 * LOOK_EVERY_S * self._slowness
        if is_told or now_s - self._looked_s < LOOK_EVERY_S * self._slowness:
            return False
        self._looked_s = now_s
        return True
