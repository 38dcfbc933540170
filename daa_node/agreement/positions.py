"""Where the others say that they stand, and what of it may be believed: never one of them alone.

A claim counts if a blocking weight of validators claims as much: one of those is honest. So no
third of the stake can send us chasing rounds that do not exist, nor make a round look older than it
is to everybody. Ages are durations, so that no two clocks need agree; each is counted on by our own
from when it was heard, and is too small by the time that its message took.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from daa_consensus.committee import VALIDATORS_MAX, Committee
from daa_dag.ids import NodeId
from daa_node.agreement.messages import Position

# Of this committee and the last, and of as many as may wait to join. A member can bring in ever new
# names that wait; who was heard longest ago gives way.
STANDS_KEPT = 4 * VALIDATORS_MAX

Claim = TypeVar("Claim", int, float)


@dataclass(frozen=True, slots=True)
class HeardPosition:
    """What a member last said of itself, and when, on our monotonic clock."""

    position: Position
    heard_s: float


def believed(claims: Mapping[NodeId, Claim], committee: Committee) -> Claim | None:
    """The greatest claim that a blocking weight reaches; None if too few claim anything."""
    weight = 0
    for node, claim in sorted(claims.items(), key=lambda said: said[1], reverse=True):
        weight += committee.weight({node})
        if weight >= committee.blocking:
            return claim
    return None


class Positions:
    """The newest stand of each member, those heard last behind the others."""

    def __init__(self) -> None:
        self._heard: dict[NodeId, HeardPosition] = {}

    def note(self, member: NodeId, position: Position, now_s: float) -> None:
        self._heard.pop(member, None)
        self._heard[member] = HeardPosition(position, now_s)
        while len(self._heard) > STANDS_KEPT:
            del self._heard[next(iter(self._heard))]

    def position_of(self, member: NodeId) -> Position | None:
        """Where the member last said that it stands."""
        heard = self._heard.get(member)
        return None if heard is None else heard.position

    def heard_since(self, since_s: float) -> set[NodeId]:
        return {node for node, heard in self._heard.items() if heard.heard_s >= since_s}

    def latest(self, count: int) -> list[NodeId]:
        """Those heard last."""
        return sorted(self._heard, key=lambda node: self._heard[node].heard_s)[-count:]

    def resolved_round(self, committee: Committee) -> int:
        """The newest round that is surely final to somebody honest; 0 if nobody said so."""
        claims = {node: heard.position.resolved_round for node, heard in self._heard.items()}
        return believed(claims, committee) or 0

    def round_age_s(self, round_number: int, committee: Committee, now_s: float) -> float:
        """For how long others have been in the round; 0.0 if too few say that they are."""
        claims = {
            node: heard.position.round_age_ms / 1e3 + now_s - heard.heard_s
            for node, heard in self._heard.items()
            if heard.position.round_age_ms and heard.position.resolved_round == round_number - 1
        }
        return believed(claims, committee) or 0.0
