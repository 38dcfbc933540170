"""What a fetch hears of others that fetch the same: from whoever spreads the blob, or themselves.

Whoever spreads it tells what others have. Where nobody does any more, as the only one that had it
whole is gone, and where nothing comes for a while, all that are known are asked themselves, again
and again: what they have together may still be all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from daa_dag.fetch import Event, PeerGained, PeerJoined, PeerLacks
from daa_dag.ids import NodeId
from daa_dag.spread import indices_of

LOOK_EVERY_S = 0.5  # a few bytes, and a bit a chunk
# Chunks that a relay lacked and a teller said it has, if it lacked more than it had: then that one
# is believed no more of it.
WRONG_MAX = 8
EVERYTHING = -1  # a mask: nothing that they say is news


@dataclass(slots=True)
class _Score:
    """Of what one says of another."""

    right: int = 0
    wrong: int = 0

    def note(self, was_right: bool) -> None:
        self.right += was_right
        self.wrong += not was_right

    @property
    def is_wrong(self) -> bool:
        return self.wrong >= WRONG_MAX and self.wrong > self.right


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
        # Masks: what of each is no news any more, by who says it. Who lies names others before they
        # have a thing, and that must be news once they do.
        self._known: dict[NodeId, dict[NodeId | None, int]] = {}
        self._scores: dict[NodeId, dict[NodeId | None, _Score]] = {}  # as _known

    def gains(
        self, node_id: NodeId, mask: int, is_relay: bool, teller: NodeId | None
    ) -> list[Event]:
        """What of this is news: the same again and again costs us no more than its bytes.

        `teller`: who says so, which may be itself; None: some did. A relay that has left joins
        again, and has what it is said to have then.
        """
        tellers = self._known.get(node_id)
        is_new, tellers = tellers is None, self._known.setdefault(node_id, {})
        fresh = mask & ~tellers.get(teller, 0)
        tellers[teller] = tellers.get(teller, 0) | mask
        if not (fresh or is_new):
            return []
        gained = PeerGained(node_id, frozenset(indices_of(fresh)))
        return [PeerJoined(node_id, frozenset()), gained] if is_relay else [gained]

    def weigh(
        self, relay: NodeId, indices: Sequence[int], payloads: Sequence[memoryview | None]
    ) -> list[Event]:
        """What each said that it has, by what it answered: what then nobody says any more."""
        tellers, scores = self._known.get(relay, {}), self._scores.setdefault(relay, {})
        for index, payload in zip(indices, payloads, strict=True):
            for teller, mask in tellers.items():
                if mask >> index & 1:
                    scores.setdefault(teller, _Score()).note(payload is not None)
        unsaid = 0
        for teller, mask in tellers.items():
            if mask != EVERYTHING and scores.get(teller, _Score()).is_wrong:
                unsaid |= mask
                # What it says of itself, when it is asked again, may be right by then.
                tellers[teller] = 0 if teller == relay else EVERYTHING
                scores[teller] = _Score()
        if not unsaid:
            return []
        said = reduce(or_, (mask for mask in tellers.values() if mask != EVERYTHING), 0)
        return [PeerLacks(relay, frozenset(indices_of(unsaid & ~said)))]

    def heard_of(self, lost: NodeId, declined: set[NodeId]) -> list[tuple[NodeId, int]]:
        """Whom to ask in place of one that is lost, and what they are said to have.

        That one, if it was named and says now that it has not all. Where nobody tells any more,
        whoever has declined as well: it may fetch the blob, and nobody may have said so.
        """
        told = self.named.pop(lost, 0)
        self._known.pop(lost, None)
        self._scores.pop(lost, None)
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
