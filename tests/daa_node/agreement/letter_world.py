"""Members of one network in one process: real keys, signers, mailboxes and machines.

The wire, the disks and the trainer are in memory, so that a virtual clock sees every wait. A member
can be cut off, killed and started again over what its disks hold; letters can be lost or slowed. A
`Puppet` holds a member's keys and says whatever a test wants.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import trio

from daa_consensus.bft.messages import Block, Limits, OfferBody, genesis_block
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.state import Simplex
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, BlockId, ChainId, NodeId, VertexId, tagged_digest
from daa_node.agreement import restart
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.kept import Kept
from daa_node.agreement.letters import (
    Body,
    Letter,
    Position,
    decode_letter,
    encode_letter,
    letter_bytes_max,
)
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.checkpoints.publish import genesis_vertex, vertex_of
from daa_node.errors import NodeError, PeerFault, StorageFailed, TrainerFailed, Unavailable
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.network.mailbox import Mailbox
from daa_node.observability.events import EventLog
from daa_node.rounds.collect import Collection
from daa_node.rounds.config import RoundsConfig
from daa_node.rounds.context import RoundContext, RoundRules
from daa_node.rounds.plan import Plan, make_plan
from daa_node.rounds.synchronous import Happened, SynchronousRound, Work
from daa_node.seams import (
    AggregateOrder,
    BlobStore,
    ByteStream,
    PeerId,
    SealedUpdate,
    StateRef,
    SteppedState,
    StreamHandler,
    Trainer,
    TrainOrder,
    Transport,
)
from daa_node.wire import protocols
from daa_node.wire.framing import read_message_or_end, write_message

CHAIN = ChainId(b"\x01" * 32)
FIRST_STATE = StateRef(BlobRoot(b"\x02" * 32), BlobRoot(b"\x03" * 32))
DELTA_S = 0.2
WINDOW_S = 4.0
EXEC_S = 3.0
TRAIN_S = 0.5
STEPS, TOKENS_PER_STEP = 4, 16
UPDATE_BYTES = 40
ROUNDS = RoundsConfig(inner_steps_max=2 * STEPS, window_ms=int(WINDOW_S * 1e3), exec_ms=3_000)


class Wire:
    """Who hears whom. Everything is by node; a letter is lost by what `lose` says of it."""

    def __init__(self) -> None:
        self.down: set[NodeId] = set()
        self.delay_s: dict[NodeId, float] = {}  # of all that the node sends
        self.lose: Callable[[NodeId, NodeId, Letter], bool] = lambda *_: False
        self.transports: dict[PeerId, MemoryTransport] = {}
        self.node_of: dict[PeerId, NodeId] = {}
        self.limits = Limits(0, 0)

    def reaches(self, sender: NodeId, receiver: NodeId) -> bool:
        return not {sender, receiver} & self.down


class MemoryStream:
    """One way, in order; what `Wire.lose` takes away is never seen."""

    def __init__(self, wire: Wire, sender: NodeId, receiver: NodeId, peer_id: PeerId) -> None:
        self._wire, self._sender, self._receiver = wire, sender, receiver
        self.peer_id = peer_id  # of the other end, as whoever holds the stream sees it
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._more = trio.lowlevel.ParkingLot()
        self.closed = False

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self.closed or not self._wire.reaches(self._sender, self._receiver):
            raise trio.BrokenResourceError
        try:
            letter = decode_letter(bytes(payload[4:]), self._wire.limits)
        except PeerFault:
            letter = None
        if letter is not None and self._wire.lose(self._sender, self._receiver, letter):
            return
        due_s = trio.current_time() + self._wire.delay_s.get(self._sender, 0.0)
        self._under_way.append((due_s, bytes(payload)))
        self._more.unpark_all()

    async def receive_some(self, size_bytes_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._under_way:
            if self.closed:
                return b""
            await self._more.park()
        await trio.sleep_until(self._under_way[0][0])
        due_s, payload = self._under_way.popleft()
        if len(payload) > size_bytes_max:
            self._under_way.appendleft((due_s, payload[size_bytes_max:]))
        return payload[:size_bytes_max]

    async def aclose(self) -> None:
        self.closed = True
        self._more.unpark_all()


class MemoryTransport:
    """As much of a Transport as a mailbox uses; handlers' mistakes end their stream, as in life."""

    def __init__(self, wire: Wire, keys: NodeKeys, nursery: trio.Nursery) -> None:
        self._wire, self._keys, self._nursery = wire, keys, nursery
        self.peer_id = keys.peer_id
        self.handlers: dict[str, StreamHandler] = {}
        wire.transports[keys.peer_id] = self
        wire.node_of[keys.peer_id] = keys.node_id

    def set_handler(self, protocol: str, handler: StreamHandler) -> None:
        self.handlers[protocol] = handler

    def connected(self) -> list[PeerId]:
        wire, me = self._wire, self._keys.node_id
        return [p for p, n in wire.node_of.items() if p != self.peer_id and wire.reaches(me, n)]

    async def open_stream(self, peer_id: PeerId, protocol: str) -> ByteStream:
        await trio.lowlevel.checkpoint()
        them, receiver = self._wire.transports[peer_id], self._wire.node_of[peer_id]
        me = self._keys.node_id
        if not self._wire.reaches(me, receiver) or protocol not in them.handlers:
            raise Unavailable("not connected")
        stream = MemoryStream(self._wire, me, receiver, self.peer_id)
        them._nursery.start_soon(them._serve, stream, them.handlers[protocol])
        return stream

    async def _serve(self, stream: MemoryStream, handler: StreamHandler) -> None:
        try:
            await handler(stream)
        except (NodeError, trio.BrokenResourceError, trio.TooSlowError):
            pass
        finally:
            stream.closed = True


class Disk:
    """What survives a member: its journal, guard, records and blobs. Full when told so."""

    def __init__(self) -> None:
        self.full = False
        self.log: list[bytes] = []
        self.guard: bytes | None = None
        self.records: dict[tuple[str, str], bytes] = {}
        self.blobs: dict[BlobRoot, bytes] = {}

    def _check(self) -> None:
        if self.full:
            raise StorageFailed("no space left on device")

    async def load(self) -> list[bytes]:
        return list(self.log)

    async def append(self, record: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._check()
        self.log.append(record)

    async def rewrite(self, records: list[bytes]) -> None:
        self._check()
        self.log = list(records)

    async def read_guard(self) -> bytes | None:
        return self.guard

    async def write_guard(self, payload: bytes) -> None:
        self._check()
        self.guard = payload

    async def put_record(self, kind: str, name: str, payload: bytes, durable: bool = True) -> None:
        await trio.lowlevel.checkpoint()
        self._check()
        self.records[kind, name] = payload

    async def get_record(self, kind: str, name: str) -> bytes | None:
        return self.records.get((kind, name))

    async def record_names(self, kind: str) -> list[str]:
        return [name for held, name in self.records if held == kind]

    async def delete_record(self, kind: str, name: str) -> None:
        self.records.pop((kind, name), None)

    async def blob_manifest(self, kind: str, root: BlobRoot) -> object | None:
        return self if root in self.blobs else None

    async def view_blob(self, kind: str, root: BlobRoot) -> memoryview:
        return memoryview(self.blobs[root])


class FakeTrainer:
    """Updates are names; a step is the digest of what goes into it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.fails = 0  # so many aggregations to come

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        await trio.sleep(TRAIN_S)
        blob = tagged_digest("update", [order.author, order.round]) + bytes(UPDATE_BYTES - 32)
        root = root_of(blob)
        self._disk.blobs[root] = blob
        tokens = order.steps_max * TOKENS_PER_STEP
        return SealedUpdate(root, len(blob), "int8", order.steps_max, tokens, 1_000, 2.0, (), 0.0)

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        await trio.sleep(0.05)
        if self.fails:
            self.fails -= 1
            raise TrainerFailed("killed by a test")
        assert all(update.blob_root in self._disk.blobs for update in order.updates)
        roots = [[update.author, update.blob_root] for update in order.updates]
        model = tagged_digest("model", [order.base.model_root, *roots])
        outer = tagged_digest("outer", [model])
        return SteppedState(
            StateRef(BlobRoot(model), BlobRoot(outer)), BlobRoot(tagged_digest("delta", [model]))
        )


def root_of(blob: bytes) -> BlobRoot:
    return BlobRoot(tagged_digest("blob", blob))


class Inline:
    async def run(self, work: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return work()


@dataclass(slots=True)
class Life:
    """One run of a member, from start to kill."""

    agreement: WanBft
    signer: Signer
    machine: Simplex
    events: EventLog
    scope: trio.CancelScope


@dataclass(slots=True)
class Member:
    keys: NodeKeys
    disk: Disk = field(default_factory=Disk)
    life: Life | None = None
    vertices: list[Vertex] = field(default_factory=list)
    states: list[StateRef] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    trainer: FakeTrainer = field(init=False)

    def __post_init__(self) -> None:
        self.trainer = FakeTrainer(self.disk)

    @property
    def me(self) -> NodeId:
        return self.keys.node_id

    @property
    def agreement(self) -> WanBft:
        assert self.life is not None
        return self.life.agreement

    @property
    def resolved(self) -> int:
        return self.agreement.outcomes.resolved_round

    def told(self, name: str) -> list[dict[str, Any]]:
        assert self.life is not None
        return [event for event in self.life.events.tail() if event["name"] == name]


class World:
    """All members; `open` starts those that are asked for."""

    def __init__(self, nursery: trio.Nursery, count: int, epoch_rounds: int) -> None:
        self._nursery = nursery
        self.epoch_rounds = epoch_rounds
        keys = [NodeKeys.from_seed(b"member %d" % index) for index in range(count)]
        self.keys = sorted(keys, key=lambda k: k.node_id)
        self.members = [Member(k) for k in self.keys]
        self.committee = Committee(tuple(Validator(k.node_id, 1) for k in self.keys))
        self.limits = Limits(count, count)
        self.wire = Wire()
        self.wire.limits = self.limits
        self.first_vertex = genesis_vertex(FIRST_STATE, self.committee.root)
        self.genesis = genesis_block(CHAIN, self.first_vertex.vertex_id)
        self.faults: list[tuple[NodeId, NodeId, str]] = []  # who blames whom for what
        self.final: dict[int, BlockId] = {}  # by height: what any member was told is final

    def domain(self, epoch: int = 0) -> Domain:
        return Domain(CHAIN, epoch, self.committee.root)

    def leader(self, view: int, epoch: int = 0) -> int:
        """The index of the view's leader."""
        leader = self.committee.leader(self.domain(epoch), view)
        return [k.node_id for k in self.keys].index(leader)

    async def start(self, member: Member, walks: bool = True) -> None:
        """A daemon's life, until `kill`; it walks rounds over what its disk holds."""
        life = await self._boot(member)
        member.life = life

        async def live() -> None:
            with life.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(life.agreement.run)
                    if walks:
                        nursery.start_soon(self._walk, member, life)

        self._nursery.start_soon(live)

    def kill(self, member: Member) -> None:
        assert member.life is not None
        member.life.scope.cancel()
        self.wire.transports[member.keys.peer_id].handlers.clear()

    async def _boot(self, member: Member) -> Life:
        events = EventLog(lambda: 0)
        signer = Signer(member.keys, CHAIN, member.disk, _Chance())
        await signer.load()
        kept = Kept(cast(BlobStore, member.disk), self.limits)
        certificates, blocks = await kept.load()
        words = signer.restored().words
        state, open_set = await restart.restored(
            self._path_down(), None, self.epoch_rounds, certificates, blocks, words
        )
        delta_ns = int(DELTA_S * 1e9)
        machine = Simplex(
            CHAIN, self.committee, member.me, Timing(delta_ns), self.epoch_rounds, state
        )
        transport = MemoryTransport(self.wire, member.keys, self._nursery)
        public_keys = {k.node_id: k.ml_dsa_public_key for k in self.keys}
        peers = {k.node_id: k.peer_id for k in self.keys}

        def fault(node_id: NodeId, fault: PeerFault) -> None:
            self.faults.append((member.me, node_id, fault.reason))

        mailbox = Mailbox(
            cast(Transport, transport),
            peers.get,
            {peer: node for node, peer in peers.items()}.get,
            [k.node_id for k in self.keys if k.node_id != member.me],
            letter_bytes_max(self.limits),
            fault,
        )
        parts = AgreementParts(
            me=member.me,
            committee=self.committee,
            domain_of=self.domain,
            epoch_of=lambda round_number: (round_number - 1) // self.epoch_rounds,
            delta_ns=delta_ns,
            signer=signer,
            inbound=Inbound(self.committee, self.domain, public_keys, self.limits),
            mailbox=mailbox,
            kept=kept,
            stored_block=self._stored_block,
            events=events,
            fault=fault,
        )
        agreement = WanBft(parts, machine, 0, open_set)
        agreement.recall(
            [word for word in words if word.statement.kind in (Kind.OFFER, Kind.EXEC)],
            [k.certificate for k in certificates if k.certificate.statement.kind is Kind.EXEC],
            [*blocks, *(item.block for item in certificates if item.block is not None)],
        )
        return Life(agreement, signer, machine, events, trio.CancelScope())

    async def _path_down(self) -> AsyncIterator[Block]:
        yield self.genesis

    async def _stored_block(self, block_id: BlockId) -> Block | None:
        return self.genesis if block_id == self.genesis.id else None

    async def _walk(self, member: Member, life: Life) -> None:
        """Rounds from the first one on: those that are over are executed from what was decided."""
        member.vertices, member.states = [self.first_vertex], [FIRST_STATE]
        member.happened = []
        round_number = 0
        while True:
            plan = self.plan(member.vertices[-1], round_number)
            context = self._context(member, life, plan)
            round_number += 1
            work = Work(STEPS, "int8", TRAIN_S)
            walk = SynchronousRound(context, work, _may_close(len(self.members)))
            over = life.agreement.outcomes.resolution(round_number)
            happened = await (walk.run() if over is None else walk.execute_resolved(over))
            member.happened.append(happened)
            resolution = happened.resolution
            assert resolution is not None
            if resolution.result is None:
                continue
            while happened.stepped is None:
                again = SynchronousRound(context, None, _may_close(len(self.members)))
                happened = await again.execute_resolved(resolution)
            vertex = context.vertex_of(resolution.set_block, happened.stepped)
            assert vertex.vertex_id == resolution.result.vertex_id
            member.vertices.append(vertex)
            member.states.append(happened.stepped.state)

    def plan(self, parent: Vertex, newest_round: int) -> Plan:
        ids = [k.node_id for k in self.keys]
        return make_plan(parent, ids, ROUNDS, TOKENS_PER_STEP, newest_round)

    def _context(self, member: Member, life: Life, plan: Plan) -> RoundContext:
        parent = member.vertices[-1]

        async def fetch(offer: OfferBody, nodes: list[NodeId]) -> None:
            await trio.sleep(0.02)
            for other in self.members:
                held = other.disk.blobs.get(offer.blob_root)
                if other.me in nodes and held and self.wire.reaches(other.me, member.me):
                    member.disk.blobs[offer.blob_root] = held
                    return
            raise Unavailable("nobody has it")

        def check(blob: memoryview, codec: str) -> None:
            if len(blob) != UPDATE_BYTES:
                raise PeerFault("bad_update", f"{len(blob)} bytes")

        return RoundContext(
            me=member.me,
            committee=self.committee,
            plan=plan,
            state=member.states[-1],
            rules=RoundRules(
                rule="trimmed_mean",
                f_agg=0,
                codec="int8",
                codec_sizes={"int8": UPDATE_BYTES},
                check_update=check,
                window_s=WINDOW_S,
                exec_s=EXEC_S,
            ),
            agreement=life.agreement,
            trainer=cast(Trainer, member.trainer),
            store=cast(BlobStore, member.disk),
            offload=Inline(),
            events=life.events,
            fetch_update=fetch,
            fault=lambda node, fault: self.faults.append((member.me, node, fault.reason)),
            vertex_of=lambda block, stepped: vertex_of(parent, block, stepped, self.limits),
            first_step=0,
            merged_round=-1,
            upload_bytes_per_s=0,
            base_loss_micronats=0,
        )

    def blamed(self, member: Member) -> list[str]:
        return [reason for _, node, reason in self.faults if node == member.me]


class Puppet:
    """A member's keys without a member: says and sends what a test wants, and hears everything."""

    def __init__(self, world: World, index: int) -> None:
        self._world = world
        self.keys = world.keys[index]
        self.disk = world.members[index].disk  # what it serves to whoever fetches
        self.me = self.keys.node_id
        self._transport = MemoryTransport(world.wire, self.keys, world._nursery)
        self._transport.set_handler(protocols.VOTES, self._hear)
        self._streams: dict[NodeId, ByteStream] = {}
        self.heard: list[tuple[NodeId, Letter]] = []
        self.position = Position(0, 1, 0, 0)

    async def _hear(self, stream: ByteStream) -> None:
        sender = self._world.wire.node_of[stream.peer_id]
        while (payload := await read_message_or_end(stream, 2**24)) is not None:
            self.heard.append((sender, decode_letter(payload, self._world.limits)))

    def sign(
        self, kind: Kind, value: Any, height: int = 0, view: int = 0, epoch: int = 0
    ) -> Signed:
        statement = Statement(self._world.domain(epoch), kind, view, height, value)
        return envelope.sign(statement, self.keys)

    async def send(self, members: Sequence[Member], body: Body) -> None:
        payload = encode_letter(Letter(self.position, body))
        for member in members:
            try:
                stream = self._streams.get(member.me)
                if stream is None:
                    stream = await self._transport.open_stream(member.keys.peer_id, protocols.VOTES)
                    self._streams[member.me] = stream
                await write_message(stream, payload)
            except (trio.BrokenResourceError, Unavailable):
                self._streams.pop(member.me, None)

    def offer(self, round_number: int, base: VertexId, name: bytes = b"update") -> OfferBody:
        """A right one, of a blob that we serve."""
        blob = tagged_digest("puppet", [self.me, name]) + bytes(UPDATE_BYTES - 32)
        self.disk.blobs[root_of(blob)] = blob
        return OfferBody(
            round=round_number,
            author=self.me,
            base_vertex_id=base,
            blob_root=root_of(blob),
            size_bytes=UPDATE_BYTES,
            codec="int8",
            steps=1,
            tokens=TOKENS_PER_STEP,
            us_per_step=1_000,
            upload_bytes_per_s=0,
            base_loss_micronats=0,
            snapshot_roots=(),
        )


class _Chance:
    """Nonces that differ from one start to the next."""

    drawn = 0

    def bytes(self, size_bytes: int) -> bytes:
        _Chance.drawn += 1
        return _Chance.drawn.to_bytes(size_bytes)


def _may_close(count: int) -> Callable[[Collection, float, float | None], str | None]:
    def may_close(collection: Collection, elapsed_s: float, _: float | None) -> str | None:
        if len(collection.eligible()) == count:
            return "all are there"
        return "the window is over" if elapsed_s >= WINDOW_S else None

    return may_close


@asynccontextmanager
async def open_world(count: int = 4, epoch_rounds: int = 100) -> AsyncIterator[World]:
    """Ends everything at the end, and raises what went wrong in any member."""
    async with trio.open_nursery() as nursery:
        yield World(nursery, count, epoch_rounds)
        nursery.cancel_scope.cancel()


async def until(happened: Callable[[], bool], within_s: float) -> None:
    """Wait for a condition in virtual time."""
    with trio.move_on_after(within_s):
        while not happened():
            await trio.sleep(0.05)
        return
    raise AssertionError(f"it did not happen within {within_s} s")
