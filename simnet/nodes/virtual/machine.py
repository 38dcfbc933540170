"""One simulated machine: a disk, a clock, keys, and the real daemon whenever it runs.

A liar's daemon is the same one, disguised (simnet/world/adversaries/disguise.py); it may have
several machines under one key, each a body of its own at the one place on the network.

    off --start--> running --kill--> off          the disk keeps what it had synced
                      |  ^
                      +--+ stop, go on            as SIGSTOP and SIGCONT would

`parts` puts the same node together as daa_node.cli.compose does, with another world behind each
seam. With libp2p the bulk channel is the real one without a socket to dial: its sessions are agreed
as always, and their sealed frames run on the libp2p stream, as of nodes behind a relay.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import trio

from daa_dag.ids import NodeId
from daa_node.adapters.bulk_channel import BulkChannel
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.checkpoints.config import StorageConfig
from daa_node.config import NodeConfig
from daa_node.errors import PeerFault, UserError
from daa_node.gateway.config import GatewayConfig
from daa_node.genesis import Genesis
from daa_node.identity.keys import NodeKeys
from daa_node.identity.session import Local
from daa_node.network.config import PEERS_MAX_MOST, NetworkConfig
from daa_node.network.topics import dht_namespace
from daa_node.node import run_node
from daa_node.node_parts import NodeParts
from daa_node.observability.events import Event, EventLog
from daa_node.seams import BulkTransport, PeerId
from daa_node.training.config import TrainerConfig
from daa_node.training.datasets.examples import Examples
from daa_node.training.model_config import DIGIT_CLASSES
from daa_node.wire.protocols import Versions
from simnet.checks.training_books import Account
from simnet.nodes.virtual.disk import Disk
from simnet.nodes.virtual.disk_mount import Mount
from simnet.nodes.virtual.disk_seams import MemoryJournal, MemoryStore
from simnet.nodes.virtual.freight import Freight, LadenBulk
from simnet.nodes.virtual.inline_trainer import InlineTrainer, Pace, SavedOptimiser, Workbench
from simnet.nodes.virtual.light_bulk import LightBulk
from simnet.nodes.virtual.light_transport import LightTransport
from simnet.nodes.virtual.member_transport import MemberTransport, Retries
from simnet.nodes.virtual.message_lines import Lines, MessageTransport
from simnet.nodes.virtual.network import PORT, Network, SimulatedTransport, host_of
from simnet.nodes.virtual.next_release import of_release
from simnet.nodes.virtual.scheduling import NODE, Processes, now_ns
from simnet.nodes.virtual.third_party import EPOCH_S
from simnet.world.adversaries.disguise import Liar, disguised
from simnet.world.adversaries.lying_trainer import Mislabelled
from simnet.world.determinism import Streams
from simnet.world.links import MILLION, NS
from simnet.world.node_classes import LimitsConfig, with_limits

T = TypeVar("T")
Request = Mapping[str, Any]
Handler = Callable[[Request], Awaitable[Request]]
PEERS_MAX_LEAST = 64


@dataclass(frozen=True, slots=True)
class Site:
    """What all machines of one run share."""

    genesis: Genesis
    workbench: Workbench
    network: Network
    retries: Retries
    processes: Processes
    streams: Streams
    node_of: Mapping[str, int]  # by peer id, and by node id in hex
    on_event: Callable[[int, dict[str, Any]], None]
    on_message: Callable[[int, bytes], None]  # whatever a node writes to another member
    freight: Freight | None  # where what is fetched weighs more than its bytes
    is_light: bool  # daemons do without libp2p
    lines: Lines | None  # where a script says who hears whom
    vertices_restorable: int | None  # of every node's disk; None: all of them
    gateways: frozenset[int]  # nodes to which volunteers come
    newcomers: frozenset[int]  # nodes that enroll as trainers
    speaks: Callable[[int], Versions]  # of a node that is started now


@dataclass(slots=True)
class WallClock:
    """A Clock that can be set wrong, and run wrong from then on."""

    _wrongs: list[tuple[int, float, int]] = field(default_factory=list)  # skew, drift, since when

    def wall_ns(self) -> int:
        now = now_ns()
        wrong_ns = sum(
            skew_ns + int((now - since_ns) * drift_ppm / MILLION)
            for skew_ns, drift_ppm, since_ns in self._wrongs
        )
        return EPOCH_S * NS + now + wrong_ns

    def go_wrong(self, skew_ns: int, drift_ppm: float) -> Callable[[], None]:
        """Be wrong by this as well, until what is returned is called."""
        wrong = (skew_ns, drift_ppm, now_ns())
        self._wrongs.append(wrong)
        return partial(self._wrongs.remove, wrong)


class SeededEntropy:
    """Bytes from the machine's own stream; it goes on where it was after a restart."""

    def __init__(self, streams: Streams) -> None:
        self._chance = streams.random("entropy")

    def bytes(self, size_bytes: int) -> bytes:
        return self._chance.randbytes(size_bytes)


class Inline:
    """Offload without a thread: a virtual clock does not wait for threads."""

    async def run(self, work: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return work()


@dataclass(slots=True)
class UsedKeys:
    """A KeyUse that outlives the machine's disk: keys are kept elsewhere."""

    begun: bool = False

    def begin(self) -> None:
        self.begun = True


@dataclass(slots=True)
class Desk:
    """The Control seam: what an operator may ask, by command."""

    handlers: Mapping[str, Handler] = field(default_factory=dict)

    def set_handlers(self, handlers: Mapping[str, Handler]) -> None:
        self.handlers = handlers


class OneOfMany:
    """The Process seam; all nodes live in one process, which tells nothing of each."""

    pid = 0

    def anon_rss_bytes(self) -> int:
        return 0


class Machine:
    """Node `number` of a run. Its verbs are called by the world, never by the node itself."""

    def __init__(
        self,
        site: Site,
        number: int,
        keys: NodeKeys,
        disk: Disk,
        pace: Pace,
        account: Account,
        liar: Liar | None = None,
    ) -> None:
        self.number = number
        self.liar = liar
        self.body = 0 if liar is None else liar.body
        self.keys = keys
        self.clock = WallClock()
        self.desk = Desk()
        self.disk = disk
        self.bootstrap: tuple[str, ...] = ()  # what the operator knows beside the genesis
        self.limits: LimitsConfig | None = None  # of its bulk; may change while it runs
        # What it keeps; a script may have one keep less, or more.
        self.storage = StorageConfig(vertices_restorable=site.vertices_restorable)
        self.trains = True  # from its next start on; False: it never does, and says so
        self.is_on = False  # whether the machine has power; its daemon may be between two lives
        self.power_ons = 0
        self.ended: str | None = None  # why the daemon stopped of itself
        self._site = site
        self.pace = pace
        self.account = account
        self._entropy = SeededEntropy(_streams_of(site.streams, number, self.body))
        self._used = UsedKeys()
        self._optimiser = SavedOptimiser()
        self.workbench = site.workbench  # what its trainer computes on
        if liar is not None and liar.trains_mislabelled:
            self.workbench = _mislabelled(site.workbench)
        elif liar is not None and liar.cheat is not None:
            self.workbench = Workbench(site.workbench.job, site.workbench.examples, liar.cheat)
        self._scope = trio.CancelScope()
        self._gone = trio.Event()
        self._gone.set()

    @staticmethod
    def disk_for(streams: Streams, number: int, body: int = 0) -> Disk:
        """An empty disk for machine `number`, failing as the seed will have it."""
        return Disk(_streams_of(streams, number, body).random("disk"))

    @property
    def node_id(self) -> NodeId:
        return self.keys.node_id

    @property
    def address(self) -> str:
        """Where it can be dialled."""
        return f"/ip4/{host_of(self.number, self.body)}/tcp/{PORT}/p2p/{self.keys.peer_id}"

    async def ask(self, command: str, **words: Any) -> Request:
        """What the running daemon answers an operator."""
        return await self.desk.handlers[command](words)

    async def run(self) -> None:
        """Start the daemon, and return when it has stopped or was killed.

        What it dies of otherwise is raised as it is: that is not for the machine to judge.
        """
        life = self.power_ons
        await self._gone.wait()  # one that was killed a moment ago
        if not self.is_on or life != self.power_ons:
            return
        NODE.set(self.number)
        self._gone, self._scope = trio.Event(), trio.CancelScope()
        self.desk.handlers = {}
        self.ended = None
        try:
            with self._scope:
                self.ended = await run_node(self._parts())
        except* Exception:
            if self.is_on and life == self.power_ons:
                raise
            # a killed process may stumble over its cut streams while it ends
        finally:
            self._gone.set()

    def kill(self) -> None:
        """The power goes, in the middle of whatever the node does."""
        self.is_on = False
        self.power_ons += 1
        self.desk.handlers = {}
        self._site.network.cut(self.number)
        if self._site.freight is not None:
            self._site.freight.cut(self.number)
        self.disk.crash()
        self._scope.cancel()
        self._site.processes.go_on(self.number)  # or what is held would never end

    def wipe(self) -> None:
        """All but the keys is lost."""
        assert not self.is_on
        self.disk.wipe()
        self._optimiser = SavedOptimiser()

    def _parts(self) -> NodeParts:
        site, mount, life = self._site, Mount(self.disk), self.power_ons
        freight = site.freight
        arrival = None if freight is None else partial(freight.arrived, self.number)
        work = MemoryStore(mount, "work", arrival)
        config = NodeConfig(
            enroll=self.number in site.newcomers,
            trainer=TrainerConfig(contribute=self.trains),
            network=self._network(),
            storage=self.storage,
            gateway=GatewayConfig(enabled=self.number in site.gateways),
        )
        outside = self._outside(config.network)
        place = (self.number, self.body)
        messages = None if site.lines is None else MessageTransport(outside, site.lines, place)
        transport = MemberTransport(
            messages or outside, site.retries, self.number, self._on_message
        )
        channels: list[BulkChannel] = []

        def make_bulk(
            node_of: Callable[[PeerId], NodeId | None],
            on_fault: Callable[[PeerId, PeerFault], None],
        ) -> BulkTransport:
            if isinstance(outside, LightTransport):
                return self._laden(LightBulk(transport, node_of, on_fault))
            local, seen = Local(site.genesis.chain_id, self.keys), outside.doorbell.host_of
            channel = BulkChannel(local, transport, self._entropy, node_of, on_fault, seen, None)
            channels.append(channel)
            return self._laden(channel)

        async def start_outside(nursery: trio.Nursery) -> None:
            await nursery.start(outside.run)
            if messages is not None:
                await nursery.start(messages.run)
            for channel in channels:
                await nursery.start(channel.run)

        parts = NodeParts(
            config=config,
            genesis=site.genesis,
            keys=self.keys,
            key_use=self._used,
            clock=self.clock,
            entropy=self._entropy,
            offload=Inline(),
            transport=transport,
            carried=outside.carried,
            make_bulk=make_bulk,
            chain_store=MemoryStore(mount, "chain"),
            work_store=work,
            journal=MemoryJournal(mount),
            trainer=InlineTrainer(
                *(self.workbench, work, self.pace, self._optimiser, self.account)
            ),
            events=EventLog(self.clock.wall_ns, lambda event: self._on_event(event, life)),
            control=self.desk,
            process=OneOfMany(),
            start_outside=start_outside,
            open_examples=self._open_examples,
            network_now=lambda: with_limits(config.network, self.limits),
            slowness=1.0 if freight is None else freight.slowness or 1.0,
            weigh_frame=len if freight is None else freight.weigh_frame,
            speaks=site.speaks(self.number),
        )
        return of_release(parts) if self.liar is None else disguised(parts, self.liar)

    def _open_examples(self) -> Examples:
        """For pieces of training that volunteers get."""
        examples = self.workbench.examples
        if examples is None:
            raise UserError("a model that holds nothing has no data")
        return examples

    def _laden(self, bulk: BulkTransport) -> BulkTransport:
        site = self._site
        if site.freight is None:
            return bulk
        return LadenBulk(bulk, site.freight, self.number, lambda node: site.node_of[node.hex()])

    def _network(self) -> NetworkConfig:
        return NetworkConfig(
            listen=(f"/ip4/{host_of(self.number, self.body)}/tcp/{PORT}",),
            websocket=False,
            bootstrap=self.bootstrap,
            peers_max=min(PEERS_MAX_MOST, max(PEERS_MAX_LEAST, len(self._site.node_of))),
        )

    def _outside(self, config: NetworkConfig) -> Libp2pTransport | LightTransport:
        site = self._site
        if site.is_light:
            host = host_of(self.number, self.body)
            return LightTransport(site.network, self.number, host, self.keys.peer_id)
        return Libp2pTransport(
            self.keys.ed25519_seed,
            dht_namespace(site.genesis.chain_id),
            config,
            lambda _nursery: [SimulatedTransport(site.network, self.number)],
        )

    def _on_event(self, event: Event, life: int) -> None:
        if self.is_on and life == self.power_ons:
            self._site.on_event(self.number, event)

    def _on_message(self, message: bytes) -> None:
        if self.is_on:
            self._site.on_message(self.number, message)


def _mislabelled(workbench: Workbench) -> Workbench:
    """The same with wrong labels on what is trained on."""
    examples = workbench.examples
    assert examples is not None, "nobody lies about a model that holds nothing"
    return Workbench(workbench.job, Mislabelled(examples, DIGIT_CLASSES))


def _streams_of(streams: Streams, number: int, body: int) -> Streams:
    return streams.below(f"machine {number}" if not body else f"machine {number} body {body}")
