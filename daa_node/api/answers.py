"""What answers in JSON hold, for the description of the API. Nobody makes an answer of these.

A client may rely on each key here, and more of them may come. `dict[str, Any]`: what is in there is
for people who read it. Times are seconds, ids are hex.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """What they have in common."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    schema_version: int = Field(description="it grows when a key changes its meaning, or goes")


class Reached(BaseModel):
    """How many of these nodes this one reaches, itself included."""

    reachable: int
    total: int


class Quorum(Reached):
    """Validators, and what agreement takes."""

    quorum: int
    stake: int


class Kept(BaseModel):
    """What the node has on disk."""

    chain_bytes: int
    work_bytes: int
    bytes_max: int | None
    level: str


class ProtocolInUse(BaseModel):
    """Which version of the protocol all use, and from which round on the next one."""

    in_use: int
    next_from_round: int | None
    speaks_next: bool


class Decision(BaseModel):
    """Of the loop."""

    decision: str
    reason: str


class Status(Answer):
    """`daa-node status --json`."""

    node_id: str
    peer_id: str
    chain_id: str
    pid: int
    trainer_pid: int | None
    addresses: list[str]
    reachability: dict[str, Any]
    gateway: dict[str, Any] | None
    api: dict[str, Any] | None
    calibration: dict[str, Any] | None
    part: str
    phase: str
    paused: bool
    retired: bool = Field(description="by its own word, until it enrolls again")
    never_trains: bool
    protocol: ProtocolInUse
    round: int
    height: int
    vertex_id: str
    model_root: str
    loss_nats: float | None
    alarm: str | None
    storage: Kept
    copies: dict[str, Any]
    damaged: list[str]
    repaired: list[str]
    validators: Quorum
    trainers: Reached
    waiting: str | None
    decisions: list[Decision]
    bytes_sent: int
    bytes_received: int
    link: dict[str, Any] | None
    done: bool
    ended_because: str | None
    anon_rss_bytes: int


class Peer(BaseModel):
    """One that this node knows."""

    node_id: str | None
    peer_id: str
    connected: bool
    address: str | None
    relayed: bool
    punched: bool
    dialled: bool | None = Field(description="whether this node has opened a connection with it")
    websocket: bool | None
    reach: str | None = Field(description="direct, relayed or unreachable, as it tells of itself")
    way: str | None = Field(description="direct, punched or relayed; of one that is gone: reach")
    why: str | None = Field(description="why it is relayed, or unreachable")
    role: str | None
    part: str | None
    never_trains: bool
    score: float
    faults: dict[str, int]
    view: int | None
    height: int | None
    rtt_ms: float | None
    speaks: list[int] | None = Field(description="the least and the most version of the protocol")
    clock_off_s: float | None
    checks: dict[str, Any] | None
    calibration: dict[str, Any] | None
    usefulness: list[dict[str, Any]]
    health: dict[str, Any] | None
    shunned_until_round: int | None
    sees_us: dict[str, Any] | None
    last_seen_s: float


class Peers(Answer):
    """`daa-node peers --json`."""

    peers: list[Peer]


class Round(BaseModel):
    """One in memory."""

    height: int
    training_round: int
    vertex_id: str
    loss_nats: float | None
    certified_by: list[str]
    contributors: list[str]
    voided: list[str]
    bytes_sent: int
    wall_s: float


class Rounds(Answer):
    """`daa-node rounds --json`."""

    rounds: list[Round]


class Voter(BaseModel):
    """A validator of this epoch."""

    node_id: str
    stake: int
    peer_id: str | None


class ValidatorSet(Answer):
    """`daa-node validators --json`."""

    epoch: int
    epoch_rounds: int
    quorum: int
    stake: int
    validators: list[Voter]
    waiting: list[dict[str, Any]] = Field(description="requests that are in the chain")
    asked: list[dict[str, Any]] = Field(description="requests that are not there yet")
    dropped: list[dict[str, Any]]


class Drained(Answer):
    """It stops."""

    draining: bool


class Paused(Answer):
    """Whether it trains."""

    paused: bool


class Approved(Answer):
    """Which request."""

    id: str


class OneSetting(BaseModel):
    """Of the running daemon."""

    key: str
    value: Any
    origin: str
    reloads: bool = Field(description="whether a running daemon takes over another value")


class SettingsTold(Answer):
    """All of them."""

    file: str
    digest: str
    settings: list[OneSetting]


class Difference(BaseModel):
    """Of one setting."""

    key: str
    before: Any
    after: Any


class SettingsChanged(Answer):
    """What a change comes to, and whether it was made."""

    confirmed: bool
    digest: str
    diff: list[Difference]
    needs_restart: list[str]


class Contribution(BaseModel):
    """To one round."""

    node_id: str
    tokens: int
    steps: int
    bytes: int | None
    void: bool


class PastRound(BaseModel):
    """One of the history; what nobody has seen is null."""

    height: int
    training_round: int
    vertex_id: str
    loss_nats: float | None
    certified_by: int
    contributors: list[str]
    voided: list[str]
    bytes_sent: int | None
    wall_s: float | None
    ended_at: float | None
    tokens: int
    contributions: list[Contribution]
    left_out: list[dict[str, str]]


class PastRounds(Answer):
    """A page of them, the lowest first."""

    rounds: list[PastRound]
    next_after: int


class PastDecision(BaseModel):
    """One of the loop's."""

    number: int
    at: float
    decision: str
    reason: str


class PastDecisions(Answer):
    """A page of them, the oldest first."""

    decisions: list[PastDecision]
    next_after: int


class PastSpan(BaseModel):
    """An hour or a day."""

    begins: int = Field(alias="from", description="unix seconds; 0: nobody knows")
    seconds: int
    rounds: int
    aborted: int
    tokens: int
    contributions: int
    void: int
    wall_s: float
    bytes_sent: int
    loss_nats: float | None


class PastSpans(Answer):
    """What is no more told round by round."""

    spans: list[PastSpan]


class HostSum(BaseModel):
    """All that one host has contributed; `node_id` null: those so long gone that they are one."""

    node_id: str | None
    mine: bool
    rounds: int
    void: int
    tokens: int
    steps: int
    bytes: int
    share: float
    first_height: int | None
    last_height: int | None
    first_at: float | None
    last_at: float | None
    left_out: dict[str, int]


class Contributions(Answer):
    """`daa-node contributions --json`."""

    node_id: str
    rounds: int
    tokens: int
    contributions: list[HostSum]
