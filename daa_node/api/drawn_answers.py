"""What answers of the dashboard's drawings hold, for the description of the API; see answers.py.

Columns of one drawing are lists of one length. Losses are nats, round trips milliseconds; null is
what nobody has measured.
"""

from pydantic import BaseModel, Field

from daa_node.api.answers import Answer

Column = list[float | None]


class Checkpoint(BaseModel):
    """One certified vertex."""

    vertex_id: str
    height: int
    training_round: int
    parents: list[str]
    rule: str
    contributions: int
    voided: int
    newly_convicted: list[str]


class Checkpoints(Answer):
    """The newest, the lowest first."""

    vertices: list[Checkpoint]


class LossesOfNode(BaseModel):
    """One contributor's word, by height."""

    node_id: str
    mine: bool
    losses_nats: Column


class Losses(Answer):
    """By height of what was measured."""

    heights: list[int]
    contributors: list[int]
    measured: list[int]
    least_nats: Column
    median_nats: Column
    greatest_nats: Column
    nodes: list[LossesOfNode]
    nodes_in_all: int


class RoundTripsOfPeer(BaseModel):
    """The oldest minute first."""

    node_id: str | None
    peer_id: str
    connected: bool
    rtts_ms: Column


class HourOfRoundTrips(Answer):
    """Of the newest hour, as this node measured."""

    minutes: int
    peers: list[RoundTripsOfPeer]
    peers_in_all: int


class RoundOfOtherRun(BaseModel):
    """`at_s`: how long all rounds took up to its end."""

    height: int
    at_s: float
    wall_s: float
    loss_nats: float | None


class OtherRun(BaseModel):
    """A run that the operator compares with."""

    name: str
    useful_share: float | None
    rounds: list[RoundOfOtherRun]


class Beside(Answer):
    """That run, or why there is none."""

    baseline: OtherRun | None
    why_not: str | None


class AdviceRow(BaseModel):
    """What it means, and what to do; empty: nothing."""

    means: str
    to_do: str = Field(alias="do")


class AdviceTable(Answer):
    """By the names of events, and the reasons of refusals."""

    events: dict[str, AdviceRow]
    refusals: dict[str, AdviceRow]
    volunteers: dict[str, AdviceRow]
