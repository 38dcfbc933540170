"""The newest vertices as a drawing needs them: how they hang together, and who measured what.

What an author says of the vertex below, its loss on the same held-out examples, is its own word:
nobody verifies it, and this is no part of what nodes agree on. Bounded, whatever a set holds.
"""

import sys
from array import array
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass
from statistics import median
from typing import Any

from daa_dag.checkpoint import Vertex
from daa_dag.ids import NodeId

VERTICES_KEPT = 64  # a screen shows no more; 16 kB each where a thousand contribute
NODES_TOLD_MAX = 32  # of the losses: rows that a person can tell apart
NAMES_TOLD_MAX = 16  # of those who stand convicted
MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class RecentVertex:
    """`said_micronats` is of the vertex below, author by author; 0 is of who could not measure.

    And of who counts nothing: of such, most may lie.
    """

    vertex_id: str
    height: int
    training_round: int
    parents: tuple[str, ...]
    rule: str
    authors: tuple[str, ...]
    said_micronats: Sequence[int]
    voided: int
    excluded: tuple[str, ...]  # who stands convicted above it

    def as_told(self, convicted_below: Set[str]) -> dict[str, Any]:
        newly = [name for name in self.excluded if name not in convicted_below]
        return {
            "vertex_id": self.vertex_id,
            "height": self.height,
            "training_round": self.training_round,
            "parents": list(self.parents),
            "rule": self.rule,
            "contributions": len(self.authors),
            "voided": self.voided,
            "newly_convicted": newly[:NAMES_TOLD_MAX],
        }


class RecentVertices:
    """One node's, the newest last."""

    def __init__(self) -> None:
        self._kept: deque[RecentVertex] = deque(maxlen=VERTICES_KEPT)

    def clear(self) -> None:
        self._kept.clear()

    def drop_newest(self) -> None:
        """It is told once more."""
        if self._kept:
            self._kept.pop()

    def add(self, vertex: Vertex) -> None:
        self._kept.append(
            RecentVertex(
                vertex_id=vertex.vertex_id.hex(),
                height=vertex.height,
                training_round=vertex.training_round,
                parents=tuple(parent.hex() for parent in vertex.parents),
                rule=vertex.rule,
                authors=tuple(sys.intern(facts.author.hex()) for facts in vertex.contributors),
                said_micronats=array(
                    "q",
                    (
                        each.base_loss_micronats if each.weight else 0
                        for each in vertex.contributors
                    ),
                ),
                voided=sum(1 for each in vertex.contributors if not each.weight),
                excluded=tuple(sys.intern(name.hex()) for name in vertex.excluded),
            )
        )

    def graph_told(self) -> dict[str, Any]:
        """Each vertex with what it stands on, the oldest first."""
        # A set: where a thousand stand convicted, half a second of the daemon's goes by else.
        below = frozenset(self._kept[0].excluded if self._kept else ())
        told = []
        for one in self._kept:
            told.append(one.as_told(below))
            below = frozenset(one.excluded)
        return {"vertices": told}

    def losses_told(self, me: NodeId) -> dict[str, Any]:
        """By height of what was measured: least, median and greatest, and rows of single nodes.

        Of many nodes those are rows that were farthest from the median; this one always is.
        """
        measured = [one for one in self._kept if one.height > 0]
        said = [
            {
                name: loss
                for name, loss in zip(one.authors, one.said_micronats, strict=True)
                if loss > 0
            }
            for one in measured
        ]
        middles = [median(each.values()) if each else None for each in said]
        names = _told_of(said, middles, me.hex())
        return {
            "heights": [one.height - 1 for one in measured],
            "contributors": [len(one.authors) for one in measured],
            "measured": [len(each) for each in said],
            "least_nats": [_nats(min(each.values(), default=None)) for each in said],
            "median_nats": [_nats(middle) for middle in middles],
            "greatest_nats": [_nats(max(each.values(), default=None)) for each in said],
            "nodes": [
                {
                    "node_id": name,
                    "mine": name == me.hex(),
                    "losses_nats": [_nats(each.get(name)) for each in said],
                }
                for name in names
            ],
            "nodes_in_all": len({name for each in said for name in each}),
        }


def _told_of(said: Sequence[dict[str, int]], middles: Sequence[float | None], me: str) -> list[str]:
    """This node first, then by name: a row stays where it was."""
    farthest: dict[str, float] = {}
    for each, middle in zip(said, middles, strict=True):
        for name, loss in each.items():
            away = 0.0 if middle is None else abs(loss - middle)
            if away >= farthest.get(name, 0.0):
                farthest[name] = away
    others = sorted(farthest.keys() - {me}, key=lambda name: (-farthest[name], name))
    mine = [me] if me in farthest else []
    return [*mine, *sorted(others[: NODES_TOLD_MAX - len(mine)])]


def _nats(micronats: float | None) -> float | None:
    return None if micronats is None else round(micronats / MICRO, 6)
