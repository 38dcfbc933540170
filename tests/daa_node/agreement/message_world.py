"""Members of one network in one process: real keys, signers, mailboxes and machines.

The wire, the disks and the trainer are in memory, so that a virtual clock sees every wait. A member
can be cut off, killed and started again over what its disks hold; messages can be lost or slowed. A
`Puppet` holds a member's keys and says whatever a test wants.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import trio

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import Block, OfferBody, genesis_block
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.state import Simplex
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.checkpoint import Vertex, decode_vertex
from daa_dag.ids import BlobRoot, ChainId, NodeId, VertexId, tagged_digest
from daa_dag.retention import Retention
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.messages import (
    Body,
    Message,
    Position,
    decode_message,
    encode_message,
    message_bytes_max,
)
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.recovery import RecoveryStore, restored
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import VERTICES
from daa_node.checkpoints.page_server import Pages
from daa_node.checkpoints.pages import whole_page
from daa_node.checkpoints.publish import Page, genesis_vertex
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.errors import PeerFault, TrainerFailed, Unavailable
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import Validators
from daa_node.network.mailbox import Mailbox
from daa_node.observability.events import EventLog
from daa_node.rounds.catch_up import CatchUp
from daa_node.rounds.collect import Collection
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.rounds.job_runner import JobRunner, RunnerParts
from daa_node.rounds.peers import Peers
from daa_node.rounds.plan import RoundRules
from daa_node.rounds.synchronous import Happened, Work
from daa_node.seams import (
    BlobStore,
    ByteStream,
    StateRef,
    Trainer,
    Transport,
)
from daa_node.wire import protocols
from daa_node.wire.framing import read_message_or_end, write_message
from tests.daa_node.agreement.fixed_members import fixed_validators
from tests.daa_node.agreement.memory_disk import (
    STEPS,
    TOKENS_PER_STEP,
    TRAIN_S,
    UPDATE_BYTES,
    Disk,
    FakeTrainer,
    whole,
)
from tests.daa_node.agreement.memory_wire import MemoryTransport, Wire
from tests.daa_node.contributors.nobody_known import nobody_known
from tests.daa_node.disputes.no_disputes import no_disputes
from tests.daa_node.inline import Inline
from tests.daa_node.spot_checks.no_checks import no_checks, nothing_alike, nothing_measured

CHAIN = ChainId(b"\x01" * 32)
DELTA_S, DELTA_NS = 0.2, 200_000_000
WINDOW_S = 4.0
EXEC_S = 3.0
STALL_S = 30.0
ROUNDS = RoundsConfig(inner_steps_max=2 * STEPS, window_ms=int(WINDOW_S * 1e3), exec_ms=3_000)


@dataclass(slots=True)
class Life:
    """One run of a member, from start to kill."""

    agreement: WanBft
    runner: JobRunner
    catch_up: CatchUp
    chain: ChainStore
    signer: Signer
    machine: Simplex
    events: EventLog
    scope: trio.CancelScope


@dataclass(slots=True)
class Member:
    keys: NodeKeys
    disk: Disk = field(default_factory=Disk)
    life: Life | None = None
    happened: list[Happened] = field(default_factory=list)
    trainer: FakeTrainer = field(init=False)

    def __post_init__(self) -> None:
        self.trainer = FakeTrainer(self.disk.work)

    @property
    def me(self) -> NodeId:
        return self.keys.node_id

    @property
    def now(self) -> Life:
        assert self.life is not None
        return self.life

    @property
    def resolved(self) -> int:
        return self.now.runner.round

    @property
    def height(self) -> int:
        return self.now.runner.newest.height

    def chain(self) -> list[Vertex]:
        """Every published vertex, lowest first."""
        found = [decode_vertex(v) for (k, _), v in self.disk.chain.records.items() if k == VERTICES]
        return sorted(found, key=lambda vertex: vertex.height)

    def told(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.now.events.tail() if event["name"] == name]


class MemoryPeers:
    """What a job runner asks of others, straight from their stores, if the wire lets it through."""

    def __init__(self, world: "World", member: Member) -> None:
        self._world, self._member = world, member

    def reachable(self) -> set[NodeId]:
        others = [m for m in self._world.members if m is not self._member and m.life is not None]
        return {m.me for m in others if self._world.wire.reaches(m.me, self._member.me)}

    def who_never_train(self, _nodes: Set[NodeId]) -> set[NodeId]:
        return set()

    async def fetch_update(self, offer: OfferBody, nodes: Callable[[], list[NodeId]]) -> None:
        await self._fetch(offer.blob_root, [("updates", nodes())])

    async def fetch_delta(self, root: BlobRoot, node: NodeId) -> None:
        await self._fetch(root, [("updates", self.reachable()), ("deltas", self.reachable())])

    async def _fetch(self, root: BlobRoot, places: Sequence[tuple[str, Iterable[NodeId]]]) -> None:
        await trio.sleep(0.02)
        mine = self._member
        if mine.me in self._world.late:
            raise Unavailable("it has not come yet")
        for kind, nodes in places:
            for member in self._world.members:
                store = member.disk.work if kind == "updates" else member.disk.chain
                blob = store.blobs.get((kind, root))
                reaches = self._world.wire.reaches(member.me, mine.me)
                if blob is not None and reaches and member.me in nodes:
                    mine.disk.work.put_blob("updates", blob)
                    return
        raise Unavailable("nobody has it")

    def sent_bytes(self, root: BlobRoot) -> int:
        return 0  # who fetches reads its disk

    def note_own(self, root: BlobRoot) -> None:
        """No link here has a cap or a budget."""

    async def ask_page(self, node: NodeId, tip: Block, validators: Validators) -> Page | None:
        member = next(m for m in self._world.members if m.me == node)

        async def ask(body: bytes) -> bytes:
            await trio.sleep(0.02)
            if not self._world.wire.reaches(node, self._member.me) or member.life is None:
                raise Unavailable("not connected")
            if node in self._world.stalls:
                await trio.sleep(STALL_S)
                raise Unavailable("no answer")
            return await Pages(member.life.chain).answer(body)

        return await whole_page(ask, tip, validators)


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
        first_state = StateRef(whole(b"modelfirst").root, whole(b"outerfirst").root)
        self.first_vertex = genesis_vertex(first_state, self.committee.root)
        self.genesis = genesis_block(CHAIN, self.first_vertex.vertex_id)
        self.snapshot_every = 1_000
        self.doublings_max = Timing(DELTA_NS).doublings_max
        self.late: set[NodeId] = set()  # who gets nobody's data
        self.stalls: set[NodeId] = set()  # who takes questions for pages and never answers
        self.faults: list[tuple[NodeId, NodeId, str]] = []  # who blames whom for what

    def domain(self, epoch: int = 0) -> Domain:
        return Domain(CHAIN, epoch, self.committee.root)

    def leader(self, view: int, epoch: int = 0) -> int:
        """The index of the view's leader."""
        leader = self.committee.leader(self.domain(epoch), view)
        return [k.node_id for k in self.keys].index(leader)

    async def start(self, member: Member) -> None:
        """A daemon's life, until `kill`, over what its disk holds."""
        life = member.life = await self._boot(member)

        async def live() -> None:
            with life.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(life.agreement.run)
                    nursery.start_soon(_walk, member, life, len(self.members))

        self._nursery.start_soon(live)

    def kill(self, member: Member) -> None:
        member.now.scope.cancel()
        self.wire.transports[member.keys.peer_id].end()

    async def _boot(self, member: Member) -> Life:
        disk, events = member.disk, EventLog(lambda: 0)
        await member.trainer.initial_state()
        chain = ChainStore(cast(BlobStore, disk.chain), cast(BlobStore, disk.work), self.limits)
        await chain.open(self.first_vertex, self.genesis)
        newest = await chain.newest()
        signer = Signer(member.keys, CHAIN, disk, _Chance())
        await signer.load(history_exists=newest.height > 0)
        kept = RecoveryStore(cast(BlobStore, disk.work), self.limits)
        certificates, blocks = await kept.load()
        block, certificate = chain.final_tip
        await kept.forget((block.epoch, block.view))
        words = signer.restored().statements
        state, open_set = await restored(
            chain.path_down(block.id), certificate, self.epoch_rounds, certificates, blocks, words
        )
        timing = Timing(DELTA_NS, self.doublings_max)
        machine = Simplex(CHAIN, self.committee, member.me, timing, self.epoch_rounds, state)
        parts = self._parts(member, signer, kept, chain, events)
        path = [found async for found in chain.path_down(block.id)]
        parts.validators.follow(reversed(path))
        resolved = state.tip.height - (1 if state.tip_open else 0)
        agreement = WanBft(parts, machine, resolved, open_set)
        agreement.recall(
            [word for word in words if word.statement.kind in (Kind.OFFER, Kind.EXEC)],
            [k.certificate for k in certificates if k.certificate.statement.kind is Kind.EXEC],
            [*blocks, *(item.block for item in certificates if item.block is not None)],
        )
        runner_parts = self._runner_parts(member, chain, agreement, events)
        runner = JobRunner(
            runner_parts,
            self._rules(),
            EndConfig(rounds=10**9),
            Snapshots(chain, self.snapshot_every, Retention(), events),
            newest,
            (await chain.resume_point()).height,
        )
        catch_up = CatchUp(runner, runner_parts, lambda _tip: {}, _nobody)
        scope = trio.CancelScope()
        return Life(agreement, runner, catch_up, chain, signer, machine, events, scope)

    def _parts(
        self,
        member: Member,
        signer: Signer,
        kept: RecoveryStore,
        chain: ChainStore,
        events: EventLog,
    ) -> AgreementParts:
        transport = MemoryTransport(self.wire, member.keys, self._nursery)
        peers = {k.node_id: k.peer_id for k in self.keys}
        mailbox = Mailbox(
            cast(Transport, transport),
            peers.get,
            {peer: node for node, peer in peers.items()}.get,
            [k.node_id for k in self.keys if k.node_id != member.me],
            lambda: message_bytes_max(self.limits),
            self._fault_of(member),
            DELTA_S,
        )
        validators = self.validators()
        return AgreementParts(
            me=member.me,
            validators=validators,
            delta_ns=DELTA_NS,
            signer=signer,
            inbound=Inbound(validators),
            mailbox=mailbox,
            recovery=kept,
            stored_block=chain.block,
            events=events,
            fault=self._fault_of(member),
        )

    def validators(self) -> Validators:
        """The history as it begins."""
        return fixed_validators(CHAIN, self.committee, self.public_keys, self.epoch_rounds)

    def _rules(self) -> RoundRules:
        def check(blob: memoryview, codec: str) -> None:
            if len(blob) != UPDATE_BYTES:
                raise PeerFault("bad_update", f"{len(blob)} bytes")

        return RoundRules(
            rounds=ROUNDS,
            tokens_per_step=TOKENS_PER_STEP,
            rule="trimmed_mean",
            f_agg_among=lambda count: 0,
            codec="int8",
            codec_sizes={"int8": UPDATE_BYTES},
            check_update=check,
            compare=nothing_alike,
            measure=nothing_measured,
        )

    def _runner_parts(
        self, member: Member, chain: ChainStore, agreement: WanBft, events: EventLog
    ) -> RunnerParts:
        return RunnerParts(
            chain=chain,
            trainer=cast(Trainer, member.trainer),
            agreement=agreement,
            offload=Inline(),
            events=events,
            peers=cast(Peers, MemoryPeers(self, member)),
            spot_checks=no_checks(),
            disputes=no_disputes(),
            health=nobody_known(),
            fault=self._fault_of(member),
            bytes_sent=lambda: 0,
            told_height=lambda: 0,
        )

    @property
    def public_keys(self) -> dict[NodeId, bytes]:
        return {k.node_id: k.ml_dsa_public_key for k in self.keys}

    def _fault_of(self, member: Member) -> Callable[[NodeId, PeerFault], None]:
        return lambda node, fault: self.faults.append((member.me, node, fault.reason))

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
        self.heard: list[tuple[NodeId, Message]] = []
        self.position = Position(0, 1, 0, 0, 0)

    async def _hear(self, stream: ByteStream) -> None:
        sender = self._world.wire.node_of[stream.peer_id]
        while (payload := await read_message_or_end(stream, 2**24)) is not None:
            self.heard.append((sender, decode_message(payload, self._world.limits)))

    def sign(
        self, kind: Kind, value: Any, height: int = 0, view: int = 0, epoch: int = 0
    ) -> Signed:
        statement = Statement(self._world.domain(epoch), kind, view, height, value)
        return envelope.sign(statement, self.keys)

    async def send(self, members: Sequence[Member], body: Body) -> None:
        payload = encode_message(Message(self.position, body))
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
        return OfferBody(
            round=round_number,
            author=self.me,
            base_vertex_id=base,
            blob_root=self.disk.work.put_blob("updates", blob),
            size_bytes=UPDATE_BYTES,
            codec="int8",
            steps=1,
            tokens=TOKENS_PER_STEP,
            us_per_step=1_000,
            upload_bytes_per_s=0,
            base_loss_micronats=0,
            snapshot_roots=(),
        )


async def _walk(member: Member, life: Life, count: int) -> None:
    """Rounds one after the other, and catching up when others are ahead: the loop at its least."""
    runner, agreement = life.runner, life.agreement
    member.happened = []
    await runner.restore_state()
    await runner.history.recall()
    while True:
        behind = max(
            agreement.rounds_behind({}, 0), agreement.outcomes.resolved_round - runner.round
        )
        if behind <= 0:
            work = Work(STEPS, "int8", TRAIN_S)
            member.happened.append(await runner.run_round(work, _may_close(count)))
            continue
        try:
            await life.catch_up.follow_on()
        except (Unavailable, TrainerFailed):
            await trio.sleep(0.5)


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


async def _nobody(_vertex_ids: Sequence[VertexId]) -> list[NodeId]:
    return []


async def until(happened: Callable[[], bool], within_s: float) -> None:
    """Wait for a condition in virtual time."""
    with trio.move_on_after(within_s):
        while not happened():
            await trio.sleep(0.05)
        return
    raise AssertionError(f"it did not happen within {within_s} s")
