"""What the history holds, as values: rounds, who was left out of them, decisions, hosts in sum.

What is certified comes from a vertex and its set; what one node alone has seen says so here. None
stands for what nobody knows any more: a round before the history was kept has no time of day.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daa_dag.ids import NodeId, VertexId


@dataclass(frozen=True, slots=True)
class Contributed:
    """One member of a certified set, by the set's own words."""

    node_id: NodeId
    tokens: int
    steps: int
    size_bytes: int | None  # of its update; None: the block of the set is not here
    counts: bool  # False: void, it was not merged

    def as_told(self) -> dict[str, Any]:
        return {
            "node_id": self.node_id.hex(),
            "tokens": self.tokens,
            "steps": self.steps,
            "bytes": self.size_bytes,
            "void": not self.counts,
        }


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A contribution that did not count, as this node has seen it; `why` is one of WHYS."""

    round: int
    node_id: NodeId
    why: str


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One certified round. What is local: its end, its loss, the time and the bytes it took."""

    height: int
    round: int
    vertex_id: VertexId
    signers: int  # of its certificate, as far as it is here
    contributors: tuple[Contributed, ...]
    ended_s: float | None = None  # unix seconds
    loss_nats: float | None = None  # held-out, of this vertex
    base_loss_nats: float | None = None  # what the set says of the vertex below
    wall_s: float | None = None  # None: it was followed, not walked
    sent_bytes: int | None = None
    left_out: tuple[LeftOut, ...] = ()

    @property
    def tokens(self) -> int:
        """That count."""
        return sum(each.tokens for each in self.contributors if each.counts)

    def as_told(self) -> dict[str, Any]:
        """With the names that `daa-node rounds --json` has for a round in memory, and more."""
        return {
            "height": self.height,
            "training_round": self.round,
            "vertex_id": self.vertex_id.hex(),
            "loss_nats": self.loss_nats,
            "certified_by": self.signers,
            "contributors": [each.node_id.hex() for each in self.contributors],
            "voided": [each.node_id.hex() for each in self.contributors if not each.counts],
            "bytes_sent": self.sent_bytes,
            "wall_s": self.wall_s,
            "ended_at": self.ended_s,
            "tokens": self.tokens,
            "contributions": [each.as_told() for each in self.contributors],
            "left_out": [{"node_id": one.node_id.hex(), "why": one.why} for one in self.left_out],
        }


@dataclass(frozen=True, slots=True)
class Aborted:
    """A round in which nothing changed."""

    round: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Decided:
    """What this node decided, or learned that it acts on, and why."""

    at_s: float
    decision: str
    reason: str
    number: int = 0  # given by the history; it grows

    def as_told(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "at": self.at_s,
            "decision": self.decision,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Span:
    """All rounds that ended in one hour, or in one day; `from_s` 0: nobody knows when."""

    seconds: int
    from_s: int
    rounds: int
    aborted: int
    tokens: int
    contributions: int
    void: int
    wall_s: float
    sent_bytes: int
    loss_nats: float | None  # of its last round

    def as_told(self) -> dict[str, Any]:
        return {
            "from": self.from_s,
            "seconds": self.seconds,
            "rounds": self.rounds,
            "aborted": self.aborted,
            "tokens": self.tokens,
            "contributions": self.contributions,
            "void": self.void,
            "wall_s": self.wall_s,
            "bytes_sent": self.sent_bytes,
            "loss_nats": self.loss_nats,
        }


@dataclass(frozen=True, slots=True)
class HostSum:
    """All that one host has contributed; `node_id` None: hosts so long gone that they are one."""

    node_id: NodeId | None
    rounds: int  # that merged its contribution
    void: int  # that certified and did not merge it
    tokens: int
    steps: int
    size_bytes: int  # of updates whose size is known
    first_height: int | None  # None: it was only ever left out
    last_height: int | None
    first_s: float | None
    last_s: float | None
    left_out: Mapping[str, int]  # why -> how often, as this node has seen it


@dataclass(frozen=True, slots=True)
class Sums:
    """Who contributed what, of how much; the hosts with the most tokens first."""

    rounds: int
    tokens: int
    hosts: tuple[HostSum, ...]

    def share(self, host: HostSum) -> float:
        """Of all tokens that counted."""
        return host.tokens / self.tokens if self.tokens else 0.0

    def as_told(self, me: NodeId | None) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "tokens": self.tokens,
            "contributions": [
                {
                    "node_id": None if host.node_id is None else host.node_id.hex(),
                    "mine": me is not None and host.node_id == me,
                    "rounds": host.rounds,
                    "void": host.void,
                    "tokens": host.tokens,
                    "steps": host.steps,
                    "bytes": host.size_bytes,
                    "share": round(self.share(host), 6),
                    "first_height": host.first_height,
                    "last_height": host.last_height,
                    "first_at": host.first_s,
                    "last_at": host.last_s,
                    "left_out": dict(host.left_out),
                }
                for host in self.hosts
            ],
        }


@dataclass(frozen=True, slots=True)
class Batch:
    """What is written at once: all of it or nothing."""

    rounds: tuple[RoundRow, ...] = ()
    left_out: tuple[LeftOut, ...] = ()  # of rounds that were aborted
    aborted: tuple[Aborted, ...] = ()
    decisions: tuple[Decided, ...] = ()
    events_until_s: float = 0.0  # what the event log says of later is not in it

    @property
    def is_empty(self) -> bool:
        return not (self.rounds or self.left_out or self.aborted or self.decisions)
