"""The daemon's composition: reality behind every seam, signals, the lock, and then the node.

Only this file knows which adapter stands behind which seam. The first SIGTERM or SIGINT lets the
round finish, a second one stops at once; SIGHUP reads the settings again.
"""

import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path

import trio

from daa_dag.ids import VertexId
from daa_node import collector
from daa_node.adapters.asked_process import base_weights
from daa_node.adapters.bulk_channel import SOCKETS_MAX as BULK_SOCKETS_MAX
from daa_node.adapters.bulk_channel import BulkChannel, NodeOf
from daa_node.adapters.control_socket import CLIENTS_MAX, ControlSocket
from daa_node.adapters.descriptors import FILES_MAX, Shortage, raise_limit
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.disk_journal import open_journal
from daa_node.adapters.event_file import EventFile
from daa_node.adapters.host_names import HostNames
from daa_node.adapters.http_door import DESCRIPTORS_MAX as GATEWAY_DESCRIPTORS_MAX
from daa_node.adapters.key_files import KeyUse
from daa_node.adapters.libp2p_parts import MEMBERS_MAX
from daa_node.adapters.libp2p_transport import Libp2pTransport, sockets_max
from daa_node.adapters.mishaps import Mishaps
from daa_node.adapters.offload import ThreadOffload
from daa_node.adapters.operator_door import DESCRIPTORS_MAX as API_DESCRIPTORS_MAX
from daa_node.adapters.operator_door import PUBLIC_DESCRIPTORS_MAX
from daa_node.adapters.service_manager import ServiceManager
from daa_node.adapters.site_directory import SITE, read_site
from daa_node.adapters.system_clock import SystemClock, SystemEntropy
from daa_node.adapters.system_process import SystemProcess, hand_memory_back
from daa_node.adapters.trainer_process import TrainerProcess
from daa_node.adapters.upnp_router import UpnpRouter
from daa_node.adapters.worker_process import Spawn
from daa_node.checkpoints.weights_file import read_weights
from daa_node.chronicle.traces import Tracer
from daa_node.cli import contribution, doors, identity, local, remote, report
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.identity import LocalNode
from daa_node.cli.keeping import history_of, tracing_of
from daa_node.cli.live_settings import LiveSettings
from daa_node.cli.remarks import finish, remark
from daa_node.cli.starting import check_start, once
from daa_node.cli.trusted import read_trusted
from daa_node.config import NodeConfig
from daa_node.config_file import Override
from daa_node.errors import NodeError, StorageFailed, UserError
from daa_node.gateway.front_desk import WITHOUT_PAGE
from daa_node.genesis import Genesis
from daa_node.identity.session import Local
from daa_node.network.config import NetworkConfig
from daa_node.network.topics import dht_namespace
from daa_node.node import run_node
from daa_node.node_parts import NodeParts, Web
from daa_node.observability import events as names
from daa_node.observability.events import Event, EventLog, as_line
from daa_node.seams import OnFault
from daa_node.tensors import Int32Array
from daa_node.training.boundaries import BOUNDARIES, CLAIMED
from daa_node.training.config import TrainerConfig, TrainingJob
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.examples import Examples
from daa_node.training.torch_there import check_trains
from daa_node.wire.page_files import Site

# What a person who runs the daemon in a terminal wants to see; the rest is in `daa-node logs`.
SHOWN = {
    names.NODE_STARTED,
    names.NODE_STOPPED,
    names.QUORUM_WAIT,
    names.ROUND_FINALIZED,
    names.ROUND_ABORTED,
    names.STORAGE_FAILED,
    names.GATEWAY_OPENED,
    names.GATEWAY_FAILED,
    names.API_OPENED,
    names.API_FAILED,
    names.HISTORY_FAILED,
    names.HISTORY_SET_ASIDE,
    names.PAGE_MISSING,
    names.DESCRIPTORS_SHORT,
    names.QUARANTINED,
    names.FIRST_WEIGHTS_AWAITED,
    names.KEY_ELSEWHERE,
    names.TRAINER_LOST,
    names.TRAINER_REFUSED,
    names.PEER_REFUSED,
    names.CONFIG_RELOADED,
    names.JOB_ENDED,
    names.DATA_BUDGET,
}

# Kinds of the work store that come and go with rounds and checks, in a few sizes: see spare_files.
# Of each, who looks at one while it is deleted finds out, or does not count what it has seen.
RECYCLED = ("states", "updates", BOUNDARIES, CLAIMED)


@dataclass(frozen=True, slots=True)
class Simulated:
    """How a simulation of real processes changes a daemon: in nothing that decides."""

    spawn_worker: Spawn | None = None  # from a parent that has torch imported already
    bulk_dialable: bool = True  # False: bulk sessions go through libp2p's connections
    disguise: Callable[[NodeParts], NodeParts] = lambda parts: parts  # what makes it lie
    site: Path = SITE  # of the page for volunteers


@dataclass(frozen=True, slots=True)
class Joined:
    """How a daemon differs that has just joined: what it tells."""

    tell: Callable[[EventLog], Awaitable[None]]


def run_daemon(
    root: Path,
    config_path: Path | None,
    join: tuple[str, ...],
    with_parent: bool,
    simulated: Simulated | None = None,
    joined: Joined | None = None,
) -> None:
    """Run the node in `root` until its job ends or it is told to stop. Raises UserError.

    `simulated` is what differs in a simulated network of real processes.
    """
    collector.end_imports()
    node = identity.open_node(root, config_path)
    check_trains(node.config.value.trainer)
    if join:
        node = identity.open_node(root, config_path, (_joining(node, join),))
    made = local.read_genesis(node.directory.genesis)
    check_start(made, node.directory, node.config.value)
    if node.keys.node_id not in made.public_keys and joined is None:
        report.note(
            f"this node ({node.keys.node_id.hex()[:16]}) is none of the first validators of "
            f"{made.job.name}. It follows the network, and "
            f"{once(node.config.value, made, node.directory)}"
        )
    anchor = read_trusted(node.directory.trusted).get(made.chain_id)
    make_room(node.config.value, len(made.public_keys))
    hand_memory_back()
    with node.directory.locked():
        node.directory.upgrade()
        aside = node.directory.take_up(made.chain_id.hex())
        if aside is not None:
            report.note(
                f"this node was in another network until now: what it has of that one lies in "
                f"{aside}, and comes back when the genesis of that one does"
            )
        daemon = _Daemon(node, made, config_path, simulated or Simulated(), joined, anchor)
        try:
            reason = trio.run(daemon.run, with_parent)
        except BaseExceptionGroup as group:
            raise _told(_first_cause(group), joined is not None) from None
        finally:
            finish()
    remark(f"stopped: {reason}")
    finish()


def _told(cause: BaseException, joins: bool) -> BaseException:
    """With what to do about it, where `join` does not say that itself."""
    if joins or not isinstance(cause, StorageFailed) or os.strerror(ENOSPC) not in str(cause):
        return cause
    return StorageFailed(
        f"{cause}. Nothing that was certified is lost: make room, and start this node again"
    )


class _Daemon:
    """One run of the daemon: what it is made of, and what signals do to it."""

    def __init__(
        self,
        node: LocalNode,
        made: Genesis,
        config_path: Path | None,
        simulated: Simulated,
        joined: Joined | None,
        anchor: VertexId | None,
    ) -> None:
        """`anchor`: what the chain must hold."""
        self._simulated, self._anchor = simulated, anchor
        self._joined = joined
        self._node = node
        self._made = made
        self._offload = ThreadOffload()
        self._clock = SystemClock()
        self._file = EventFile(
            node.directory.events,
            lambda: self._config.log,
            lambda why: self._events.emit(names.STORAGE_FAILED, detail=why),
        )
        self._events = EventLog(self._clock.wall_ns, self._write)
        self._settings = LiveSettings(
            node.directory, config_path, node.config, self._events, self._offload
        )
        self._shortage = Shortage(
            lambda detail: self._events.emit(names.DESCRIPTORS_SHORT, detail=detail)
        )
        self._control = ControlSocket(node.directory.control, self._events, self._shortage)
        self._transport = Libp2pTransport(
            node.keys.ed25519_seed,
            dht_namespace(made.chain_id),
            _with_visitors(node.config.value),
            shortage=self._shortage,
            acquaintances=made.bootstrap(),
            mishaps=Mishaps(
                lambda where, detail, count: self._events.emit(
                    names.LIBRARY_FAILED, where=where, detail=detail, count=count
                )
            ),
        )
        self._transport.names = HostNames(
            lambda host, why: self._events.emit(names.NAME_UNKNOWN, host=host, why=why)
        )
        self._transport.certificate = certificate = doors.certificate(self._config, node.directory)
        self._bulk: BulkChannel | None = None
        self._door = doors.page_door(self._config, certificate, self._events, self._shortage)
        self._api = doors.operator_api(self._settings, node.directory, self._events, self._shortage)

    @property
    def _config(self) -> NodeConfig:
        """As it is now: SIGHUP may change it, and the operator's API."""
        return self._settings.now

    async def run(self, with_parent: bool) -> str:
        """The reason why it ended."""
        directory, offload = self._node.directory, self._offload
        chain = DiskBlobStore(directory.chain, shortage=self._shortage)
        work = DiskBlobStore(directory.work, RECYCLED, self._shortage)
        for store in (chain, work):
            store.directory.sweep()
        job = training_job(self._made, directory, self._config)
        settings = identity.trainer_settings(self._config, directory)
        trainer = TrainerProcess(
            job, settings, work, directory.trainer, self._events, self._simulated.spawn_worker
        )
        try:
            async with (
                open_journal(directory.agreement, offload, self._shortage) as journal,
                trio.open_nursery() as outside,
            ):
                outside.start_soon(self._obey_signals, outside.cancel_scope)
                await outside.start(ServiceManager(os.environ, os.getpid()).run, self._events)
                if with_parent:
                    outside.start_soon(_end_with_parent, outside.cancel_scope)
                self._start_telling(outside)
                await outside.start(trainer.run)
                honest = NodeParts(
                    config=self._config,
                    genesis=self._made,
                    keys=self._node.keys,
                    key_use=KeyUse(
                        directory.agreement, self._node.keys.node_id, self._made.chain_id
                    ),
                    clock=self._clock,
                    entropy=SystemEntropy(),
                    offload=offload,
                    transport=self._transport,
                    make_bulk=self._make_bulk,
                    chain_store=chain,
                    work_store=work,
                    journal=journal,
                    trainer=trainer,
                    events=self._events,
                    control=self._control,
                    process=SystemProcess(),
                    start_outside=self._start_outside,
                    doorbell=self._transport.doorbell,
                    circuits=self._transport.circuits,
                    carried=self._transport.carried,
                    limit_relay=self._transport.circuits.keep_to,
                    paths=self._transport.paths,
                    punches=self._transport.punches,
                    router=self._make_router(),
                    web=self._make_web(),
                    history=history_of(self._config, directory),
                    api=None if self._api is None else self._api[1],
                    open_examples=examples_for_volunteers(job, directory),
                    read_first_weights=lambda: first_weights(job, directory, settings),
                    network_now=lambda: self._config.network,
                    storage_now=lambda: self._config.storage,
                    anchor=self._anchor,
                )
                reason = await run_node(self._simulated.disguise(honest))
                outside.cancel_scope.cancel()
                return reason
            return "told to stop at once"
        finally:
            self._file.close()

    def _start_telling(self, nursery: trio.Nursery) -> None:
        """How the node stands, to whoever watches."""
        if self._joined is not None:
            nursery.start_soon(self._joined.tell, self._events)
        elif contribution.is_told(self._config.log):
            nursery.start_soon(contribution.tell_standing, self._events, self._config.trainer)
        tracer = Tracer(self._made.chain_id, self._node.keys.node_id)
        tracing = tracing_of(self._config, self._node.directory, tracer)
        if tracing is not None:
            nursery.start_soon(tracing, self._events)

    def _make_bulk(self, node_of: NodeOf, on_fault: OnFault) -> BulkChannel:
        """The node knows who its peers are and scores them; so it says when the channel is made."""
        self._bulk = BulkChannel(
            Local(self._made.chain_id, self._node.keys),
            self._transport,
            SystemEntropy(),
            node_of,
            on_fault,
            self._transport.doorbell.host_of,
            self._transport.bulk_door if self._simulated.bulk_dialable else None,
        )
        self._bulk.on_opened = lambda peer_id, way: self._events.emit(
            names.BULK_OPENED, peer=peer_id, way=way
        )
        return self._bulk

    def _make_router(self) -> UpnpRouter | None:
        network = self._config.network
        if not network.upnp or network.announce:
            return None  # the operator says where others find us
        return UpnpRouter()

    def _make_web(self) -> Web | None:
        if self._door is None:
            return None
        try:
            site = Site(read_site(self._simulated.site))
        except OSError as fault:
            site = Site({})
            self._events.emit(names.PAGE_MISSING, detail=f"cannot read the page: {fault}")
        else:
            if site.version is None:
                self._events.emit(names.PAGE_MISSING, detail=WITHOUT_PAGE.strip())
        return Web(self._door, site)

    async def _start_outside(self, nursery: trio.Nursery) -> None:
        """Open the doors, once the node has set its handlers. Raises UserError if one is taken."""
        await nursery.start(self._control.run)
        await nursery.start(self._transport.run)
        if self._bulk is not None:
            await nursery.start(self._bulk.run)
        if self._door is not None:
            nursery.start_soon(self._door.run)
        if self._api is not None:
            for door in self._api[0]:
                nursery.start_soon(door.run)

    async def _obey_signals(self, at_once: trio.CancelScope) -> None:
        asked = False
        wanted = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with trio.open_signal_receiver(*wanted) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    self._settings.reload()
                elif asked or not await self._control.call("drain"):
                    at_once.cancel()
                else:
                    asked = True
                    remark("draining: stopping when the round is final (again: at once)")

    def _write(self, event: Event) -> None:
        self._file.write_line(as_line(event))
        if event["name"] in SHOWN:
            remark(remote.event_line(event))


def make_room(config: NodeConfig, founders: int) -> None:
    """Descriptors for a network of its founders, and for all that may join if the system lets us.

    Raises UserError if it does not let us have the first.
    """
    raise_limit(descriptors_max(config, founders), descriptors_max(config, MEMBERS_MAX))


def descriptors_max(config: NodeConfig, members: int) -> int:
    """Of sockets and files, all that this node may hold at once: 992 of 4 members as it comes."""
    visitors = GATEWAY_DESCRIPTORS_MAX if config.gateway.enabled else 0
    visitors += API_DESCRIPTORS_MAX if config.api.listen is not None else 0
    visitors += PUBLIC_DESCRIPTORS_MAX if config.api.public_listen is not None else 0
    peers = sockets_max(_with_visitors(config), members)
    sockets = peers + BULK_SOCKETS_MAX + CLIENTS_MAX + visitors
    return sockets + FILES_MAX


def _with_visitors(config: NodeConfig) -> NetworkConfig:
    """Connections for volunteers, too: they take no peer's place."""
    network, gateway = config.network, config.gateway
    visitors = gateway.volunteers_max if gateway.enabled else 0
    return network.model_copy(update={"peers_max": network.peers_max + visitors})


def _joining(node: LocalNode, join: tuple[str, ...]) -> Override:
    known = [*node.config.value.network.bootstrap, *join]
    return Override(("network", "bootstrap"), json.dumps(known), "flag --join")


def training_job(made: Genesis, directory: DataDirectory, config: NodeConfig) -> TrainingJob:
    """The worker's part of the job, with this host's files. Raises UserError."""
    job, root = made.job, directory.root.resolve()
    unused = job.data.unused(config.data)
    if unused:
        raise UserError(
            f"config.yaml: {', '.join(f'data.{name}' for name in unused)}: this network's data, of "
            f"kind {job.data.kind}, have no such file, and it would not be read; take that out"
        )
    if config.model.base is not None and job.model.base is None:
        raise UserError(
            "config.yaml: model.base: this network's model has no base, and that folder would not "
            "be read; take that out"
        )
    return TrainingJob(
        model=job.model.placed(config.model, root),
        data=job.data.placed(config.data, root),
        own=config.data.own.below(root),
        inner=job.inner,
        evaluation=job.evaluation,
        updates=job.updates,
        seed=job.seed,
    )


def first_weights(
    job: TrainingJob, directory: DataDirectory, settings: TrainerConfig
) -> Int32Array | None:
    """Grid weights from a file of the operator's, or the base's own. Raises UserError.

    A base is read with torch: who never trains has the weights from members.
    """
    if directory.weights.exists():
        return read_weights(directory.weights, job.model.tensors())
    reads_base = job.model.begins_at_base and settings.contribute
    return base_weights(job, settings) if reads_base else None


def examples_for_volunteers(
    job: TrainingJob, directory: DataDirectory
) -> Callable[[], Examples] | None:
    """None where they would see what this host alone has, or where it takes others' code."""
    if job.data.kind in ("local", "dataset"):
        return None
    return lambda: open_examples(job.data, job.model, directory.trainer / "cache")


async def _end_with_parent(at_once: trio.CancelScope) -> None:
    async with trio.lowlevel.FdStream(os.dup(0)) as inherited:
        while await inherited.receive_some(64):
            pass
    at_once.cancel()


def _first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a person can act on, if that is all that the group holds; else the group."""
    causes = list(_leaves(group))
    interrupts = [cause for cause in causes if isinstance(cause, KeyboardInterrupt)]
    if interrupts:
        return interrupts[0]
    if not all(isinstance(cause, NodeError) for cause in causes):
        return group  # ours to mend: with its traceback
    return next((cause for cause in causes if isinstance(cause, UserError)), causes[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
