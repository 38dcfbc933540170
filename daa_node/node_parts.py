"""What one node is made of: its seams, its settings, and whom it answers to.

`daa_node.cli.compose` makes the real one, simnet one in a world of its own; `node` puts either
together.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import trio

from daa_dag.ids import NodeId, VertexId
from daa_node.api.handlers import Process
from daa_node.api.settings_routes import Settings
from daa_node.api.tokens import Tokens
from daa_node.checkpoints.config import StorageConfig
from daa_node.chronicle.baseline import Baseline
from daa_node.chronicle.store import HistoryParts
from daa_node.config import NodeConfig
from daa_node.errors import PeerFault
from daa_node.genesis import Genesis
from daa_node.identity.keys import NodeKeys
from daa_node.network.carried import Carried
from daa_node.network.config import NetworkConfig
from daa_node.network.hole_punching import Punches
from daa_node.network.link_limits import LinkLimits
from daa_node.network.paths import Paths
from daa_node.network.port_mapping import HomeRouter
from daa_node.network.untaken import Piece
from daa_node.observability.events import EventLog
from daa_node.rounds.first_weights import ReadFile
from daa_node.seams import (
    BlobStore,
    BulkTransport,
    Circuits,
    Clock,
    Doorbell,
    Entropy,
    Journal,
    Offload,
    PeerId,
    Trainer,
    Transport,
)
from daa_node.training.datasets.examples import Examples
from daa_node.wire.http_messages import AskingDesk, Desk
from daa_node.wire.page_files import Site
from daa_node.wire.protocols import OURS, Versions


class Control(Protocol):
    """Where the operator's commands come in."""

    def set_handlers(
        self, handlers: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]]
    ) -> None: ...


class WebDoor(Protocol):
    """Where browsers come in."""

    def set_desk(self, desk: Desk) -> None: ...

    def standing(self) -> Mapping[str, Any]:
        """What `status` tells of it."""


@dataclass(frozen=True, slots=True)
class Web:
    """A gateway's way to browsers: what they load, and where they ask for it."""

    door: WebDoor
    site: Site


class OperatorDoor(Protocol):
    """Where an operator's programs come in over HTTP."""

    def set_asking_desk(self, desk: AskingDesk) -> None: ...

    def standing(self) -> Mapping[str, Any]:
        """`url`, `listens` or `failure`, and how many `connections` it has."""


@dataclass(frozen=True, slots=True)
class OperatorApi:
    """Its door, who may ask what there, where is kept what was, and the page that asks."""

    door: OperatorDoor
    tokens: Tokens
    write_audit: Callable[[str], None]  # one line
    settings: Settings
    dashboard: Site
    read_baseline: Callable[[], Baseline] | None = None  # of another run; blocks; UserError
    public: OperatorDoor | None = None  # where anybody is told how the network stands


class KeyUse(Protocol):
    """Whether our keys may have signed before: they have unless something shows that not."""

    @property
    def begun(self) -> bool: ...

    def begin(self) -> None: ...


class LivingTrainer(Trainer, Protocol):
    """A Trainer that says whether it is there, and who it is."""

    @property
    def pid(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What a node is made of; see daa_node.cli.compose for reality."""

    config: NodeConfig
    genesis: Genesis
    keys: NodeKeys
    key_use: KeyUse
    clock: Clock
    entropy: Entropy
    offload: Offload
    transport: Transport
    make_bulk: Callable[
        [Callable[[PeerId], NodeId | None], Callable[[PeerId, PeerFault], None]], BulkTransport
    ]
    chain_store: BlobStore
    work_store: BlobStore
    journal: Journal
    trainer: LivingTrainer
    events: EventLog
    control: Control
    process: Process
    start_outside: Callable[[trio.Nursery], Awaitable[None]]
    # none of these: a world where everybody can be dialled
    doorbell: Doorbell | None = None
    circuits: Circuits | None = None
    paths: Paths | None = None
    punches: Punches | None = None
    router: HomeRouter | None = None
    web: Web | None = None  # no gateway, or a world without browsers
    api: OperatorApi | None = None  # it is off
    history: HistoryParts | None = None  # it is off, or a world without a disk
    # the job's data, for pieces of it that volunteers get; blocks, and may raise UserError
    open_examples: Callable[[], Examples] | None = None
    read_first_weights: ReadFile = lambda: None  # see rounds.first_weights
    network_now: Callable[[], NetworkConfig] | None = None  # its settings change while it runs
    storage_now: Callable[[], StorageConfig] | None = None  # so does its bound
    anchor: VertexId | None = None  # of the one past that the operator trusts
    speaks: Versions = OURS  # in a simulation it may be those of the next release
    slowness: float = 1.0  # so many times longer a chunk takes, where each stands for many
    carried: Carried = field(default_factory=Carried)  # by the transport's streams
    limit_relay: Callable[[LinkLimits], None] = lambda _limits: None  # what it relays for others
    weigh_frame: Callable[[Piece], int] = len  # bytes that a frame of the bulk channel stands for
