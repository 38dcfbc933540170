"""Who was here without a break since a round began, and whom it pays to wait for. Pure bookkeeping.

A process that dies loses the steps of its round: a connection that broke and came back may be
another process, and is not waited for before the next round.
"""

from collections.abc import Iterable, Set

from daa_dag.ids import NodeId

# Whoever is connected and silent for longer holds up nobody; who missed a round or two still does.
RECENT_ROUNDS = 4


class Presence:
    """One round's. `newest_sets` are the contributors of certified rounds, the newest last."""

    def __init__(self, reachable: Set[NodeId], newest_sets: Iterable[Set[NodeId]]) -> None:
        self._steady = set(reachable)
        self._contributed = set[NodeId]().union(*list(newest_sets)[-RECENT_ROUNDS:])

    def look(self, reachable: Set[NodeId]) -> None:
        """Who can be reached now; to be told often enough that no break is missed."""
        self._steady &= reachable

    def awaited(self, expected: Set[NodeId]) -> Set[NodeId]:
        """Who contributed lately (anybody expected, before there is a set) and was always here."""
        return (self._contributed or expected) & self._steady
