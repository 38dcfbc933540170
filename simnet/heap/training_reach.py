"""Who reaches whom in a training world: partitions and holds, as classes of nodes that are alike.

Two nodes are of one class if all cuts in force treat them alike. A cut takes both directions, also
if it is called one-way: a stream needs answers. What is cut off or held waits, and goes on when the
cut heals; after BREAK_S its connection breaks, and then others see that a node is gone.

A node decides while it reaches a quorum; one that is linked with a node that decides is told what
is decided. Two sets of nodes that decide always have nodes in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daa_consensus.committee import Committee
from simnet.links import NS

BREAK_S = 30  # as the simulated sockets of whole daemons have it

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cut:
    """Nodes that share a part still reach each other; every node is in one at least."""

    parts: tuple[frozenset[int], ...]
    since_ns: int


@dataclass(frozen=True, slots=True)
class Classes:
    """Nodes by what cuts do to them."""

    of: tuple[int, ...]  # the class of each node
    linked: Bools  # [class, class]

    @property
    def count(self) -> int:
        return len(self.linked)


def classes_of(cuts: Sequence[Cut], count: int) -> Classes:
    """The classes of `count` nodes, numbered as they come."""
    inside = np.array([[n in part for cut in cuts for part in cut.parts] for n in range(count)])
    numbers: dict[bytes, int] = {}
    of = tuple(numbers.setdefault(inside[node].tobytes(), len(numbers)) for node in range(count))
    first = [of.index(number) for number in range(len(numbers))]
    linked = np.ones((len(first), len(first)), np.bool_)
    start = 0
    for cut in cuts:
        shares = inside[first, start : start + len(cut.parts)].astype(np.float32)
        linked &= shares @ shares.T > 0
        start += len(cut.parts)
    return Classes(of, linked)


class Reach:
    """Of all nodes at one moment. The owner says who is up and which cuts are in force."""

    def __init__(self, stakes: Sequence[int], committee: Committee) -> None:
        self._stakes = stakes
        self._quorum = committee.quorum
        self._up = np.ones(len(stakes), np.bool_)
        self.classes = classes_of((), len(stakes))
        self._seen = self.classes  # by cuts that have been noticed
        self._weights: list[int] = []  # that each class reaches
        self._told: list[bool] = []
        self._reckon()

    def set_up(self, node: int, is_up: bool) -> None:
        self._up[node] = is_up
        self._reckon()

    def set_cuts(self, cuts: Sequence[Cut], now_ns: int) -> None:
        """Replaces those before."""
        count = len(self._stakes)
        self.classes = classes_of(cuts, count)
        old = [cut for cut in cuts if now_ns - cut.since_ns >= BREAK_S * NS]
        self._seen = classes_of(old, count)
        self._reckon()

    @property
    def is_whole(self) -> bool:
        """No cut is noticed by anybody: whoever is up is seen by all."""
        return self._seen.count == 1

    @property
    def is_simple(self) -> bool:
        """All are linked with all, and enough are up: everybody decides."""
        return self.classes.count == 1 and self._told[0]

    @property
    def has_quorum(self) -> bool:
        """Whether anything can be decided."""
        return max(self._weights) >= self._quorum

    def weight(self, node: int) -> int:
        """Of those who are up and linked with `node`, itself included."""
        return self._weights[self.classes.of[node]]

    def decides(self, node: int) -> bool:
        return self.weight(node) >= self._quorum

    def is_told(self, node: int) -> bool:
        return self._told[self.classes.of[node]]

    def linked(self, one: int, other: int) -> bool:
        return bool(self.classes.linked[self.classes.of[one], self.classes.of[other]])

    def view(self, node: int) -> int:
        """Nodes of one view see the same nodes; see `sees`."""
        return self._seen.of[node]

    def sees(self, view: int, other: int) -> bool:
        """Whether that view still has connections with `other`, if that is up."""
        return bool(self._seen.linked[view, self._seen.of[other]])

    def widest_view(self) -> int:
        """That of the nodes that reach most; the first of them."""
        return self._seen.of[self.classes.of.index(self._weights.index(max(self._weights)))]

    def _reckon(self) -> None:
        classes = self.classes
        up_weights = [0] * classes.count
        for node in np.flatnonzero(self._up).tolist():
            up_weights[classes.of[node]] += self._stakes[node]
        self._weights = [
            sum(up_weights[other] for other in np.flatnonzero(classes.linked[one])) if here else 0
            for one, here in enumerate(up_weights)
        ]
        deciding = np.array([weight >= self._quorum for weight in self._weights])
        self._told = [bool((classes.linked[one] & deciding).any()) for one in range(classes.count)]
