"""One node, put together from its seams: identity, network, agreement, rounds, and the loop.

    open chain -> load signer -> restore machine -> open doors -> loop until ended or drained

Everything outside comes in as an argument (see seams), so that a simulated world can build the very
same node. The order of start-up matters: nothing is signed before the log and guard were read, and
no door opens before every handler is set.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import trio

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import genesis_block
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.state import Simplex
from daa_consensus.committee import VALIDATORS_MAX
from daa_consensus.votes import Kind
from daa_dag.ids import NodeId
from daa_node.agreement import restart
from daa_node.agreement.departure import see_others_through, until_hopeless
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.kept import Kept
from daa_node.agreement.letters import letter_bytes_max
from daa_node.agreement.member_roll import MemberRoll
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.petitions import Petitions
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.api.handlers import Handlers, Identity, Live
from daa_node.autonomy.loop import AutonomyLoop
from daa_node.autonomy.monitor import Monitor
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.errors import TrainerFailed
from daa_node.genesis import GENESIS_WORD, round_rules
from daa_node.network.blob_exchange import BlobFetcher
from daa_node.network.blob_server import BlobServer
from daa_node.network.contacts import Contacts
from daa_node.network.directory import Directory
from daa_node.network.discovery import Discovery, OwnRecord
from daa_node.network.gossip import Gossip
from daa_node.network.hello import OPEN_PROTOCOLS, Hello, OwnStanding
from daa_node.network.holders import Holders
from daa_node.network.mailbox import Mailbox
from daa_node.network.requests import Requests
from daa_node.node_parts import NodeParts
from daa_node.observability import events
from daa_node.rounds.catch_up import CatchUp
from daa_node.rounds.course import Course, CourseParts
from daa_node.rounds.peers import Peers, Sizes, update_deadline_s
from daa_node.rounds.scouting import Scout
from daa_node.seams import (
    Address,
    PeerId,
)
from daa_node.updates.outer_step import DELTA_CODEC
from daa_node.wire import protocols

T = TypeVar("T")

DISK_LIMITS = Limits(VALIDATORS_MAX, VALIDATORS_MAX)  # our own files, of any epoch
START_TRIES_MAX = 5  # workers that die while they make or restore the first state


async def run_node(parts: NodeParts) -> str:
    """Run until the job has ended and the node is told to stop, or it is drained; why it ended."""
    return await _Node(parts).run()


class _Node:
    """The wiring. Every method is one stage of the start-up, or one question that parts ask."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        genesis, job = parts.genesis, parts.genesis.job
        self._me = parts.keys.node_id
        self._validators = genesis.validators()
        self._limits = self._validators.limits
        self._epoch_rounds = job.agreement.epoch_rounds
        self._drain = trio.Event()
        self._ended_because: str | None = None
        self._directory = Directory(trio.current_time, genesis.peer_ids, parts.events)
        self._contacts = Contacts(self._me, self._validators, self._directory, parts.transport)
        self._requests = Requests(parts.transport, self._directory)
        self._holders = Holders(parts.transport, self._directory)
        self._chain = ChainStore(parts.chain_store, parts.work_store, DISK_LIMITS)
        self._bulk = parts.make_bulk(self._directory.node_of, self._contacts.blame)
        self._fetcher = BlobFetcher(self._me, self._bulk, self._contacts.fault)
        shelves = {"updates": parts.work_store, "deltas": parts.chain_store}
        room = self._requests.untaken
        self._server = BlobServer(
            shelves, parts.chain_store, lambda node: node in self._directory.members(), room
        )
        delta_bytes = DELTA_CODEC.encoded_size_bytes(job.model.parameter_count())
        fetch_s = update_deadline_s(job.rounds.window_ms, job.agreement.delta_ms)
        self._peers = Peers(
            self._fetcher,
            self._requests,
            self._contacts,
            self._chain,
            Sizes(self._limits, delta_bytes, fetch_s),
        )
        self._mailbox = Mailbox(
            parts.transport,
            self._directory.peer_of,
            self._directory.node_of,
            (),
            lambda: letter_bytes_max(self._limits),
            self._contacts.fault,
            job.agreement.delta_ms / 1e3,
        )
        self._roll = MemberRoll(
            self._me, self._validators, self._directory, self._mailbox, parts.events
        )
        self._signer = Signer(parts.keys, genesis.chain_id, parts.journal, parts.entropy)
        self._inbound = Inbound(self._validators)

    async def run(self) -> str:
        parts = self._parts
        await self._open_chain()
        agreement = await self._restore_agreement()
        scout = Scout(
            agreement,
            self._chain,
            self._peers,
            self._contacts.anybody,
            self._contacts.fault,
            parts.events,
        )
        course, catch_up = await self._make_course(agreement, scout)
        loop = AutonomyLoop(
            course,
            catch_up,
            Monitor(
                course,
                agreement,
                self._contacts,
                self._server.upload,
                lambda: parts.trainer.pid is not None,
                self._drain,
            ),
            parts.events,
        )
        petitions = Petitions(
            parts.keys,
            self._validators,
            self._signer,
            agreement,
            self._requests,
            self._contacts.member_peers,
            parts.transport.connected,
        )
        petitions.serve()
        own, gossip = self._make_voice(course)
        discovery = Discovery(
            parts.transport,
            self._directory,
            gossip,
            own,
            parts.clock,
            parts.events,
            tuple(Address(text) for text in parts.config.network.bootstrap),
        )
        self._set_doors(course, own, discovery)
        parts.control.set_handlers(self._handlers(course, loop, agreement, petitions).by_command())
        async with trio.open_nursery() as nursery:
            await parts.start_outside(nursery)
            parts.events.emit(
                events.NODE_STARTED, node_id=self._me, chain_id=parts.genesis.chain_id
            )
            await nursery.start(gossip.run)
            nursery.start_soon(discovery.run, parts.genesis.addresses)
            nursery.start_soon(gossip.announce_heads, lambda: course.newest.height)
            nursery.start_soon(self._holders.tell, lambda: course.newest.vertex_id)
            nursery.start_soon(agreement.run)
            nursery.start_soon(scout.run)
            nursery.start_soon(petitions.run)
            reason = await self._live(loop, course, agreement)
            nursery.cancel_scope.cancel()
        parts.events.emit(events.NODE_STOPPED, reason=reason)
        return reason

    async def _live(self, loop: AutonomyLoop, course: Course, agreement: WanBft) -> str:
        """The loop, then, when the job is done, serve others until told to stop."""
        reason = "drained in the middle of a round"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.watch_quorum)
            nursery.start_soon(self._end_drain, nursery.cancel_scope)
            await _outliving_workers(course.restore_state)
            await course.history.recall()
            reason = await loop.run()
            await course.snapshots.store()
            if self._drain.is_set():
                await see_others_through(agreement, self._contacts.members)
            nursery.cancel_scope.cancel()
        if not self._drain.is_set():
            course.phase = "done"
            self._ended_because = reason
            self._parts.events.emit(events.JOB_ENDED, reason=reason)
            await self._drain.wait()
        return reason

    async def _end_drain(self, loop_scope: trio.CancelScope) -> None:
        await self._drain.wait()
        committee, present = self._validators.now.committee, self._contacts.members_and_us
        # no epoch begins while a round drains
        await until_hopeless(lambda: committee.weight(present()) >= committee.quorum)
        loop_scope.cancel()

    # Start-up, in order

    async def _open_chain(self) -> None:
        parts = self._parts
        state = await _outliving_workers(parts.trainer.initial_state)
        vertex = genesis_vertex(state, parts.genesis.committee.root)
        first_block = genesis_block(parts.genesis.chain_id, vertex.vertex_id)
        await self._chain.open(vertex, first_block)

    async def _restore_agreement(self) -> WanBft:
        parts, job = self._parts, self._parts.genesis.job
        newest = await self._chain.newest()
        await self._signer.load(history_exists=newest.height > 0 or parts.key_use.begun)
        await parts.offload.run(parts.key_use.begin)
        block, certificate = self._chain.final_tip
        await self._roll.follow_chain(self._chain.path_down(block.id))
        kept = Kept(parts.work_store, DISK_LIMITS)
        certificates, blocks = await kept.load()
        await kept.forget((block.epoch, block.view))  # a crash may have come in between
        words = self._signer.restored().words
        state, open_set = await restart.restored(
            self._chain.path_down(block.id),
            certificate,
            self._epoch_rounds,
            certificates,
            blocks,
            words,
        )
        delta_ns = job.agreement.delta_ms * 1_000_000
        machine = Simplex(
            parts.genesis.chain_id,
            self._validators.now.committee,
            self._me,
            Timing(delta_ns, job.agreement.doublings_max),
            self._epoch_rounds,
            replace(state, membership=self._validators.now),
        )
        agreement_parts = AgreementParts(
            me=self._me,
            validators=self._validators,
            delta_ns=delta_ns,
            signer=self._signer,
            inbound=self._inbound,
            mailbox=self._mailbox,
            kept=kept,
            stored_block=self._chain.block,
            events=parts.events,
            fault=self._contacts.fault,
            members_changed=self._roll.changed,
        )
        resolved = state.tip.height - (1 if state.tip_open else 0)
        agreement = WanBft(agreement_parts, machine, resolved, open_set)
        agreement.recall(
            [word for word in words if word.statement.kind in (Kind.OFFER, Kind.EXEC)],
            [k.certificate for k in certificates if k.certificate.statement.kind is Kind.EXEC],
            [*blocks, *(item.block for item in certificates if item.block is not None)],
        )
        return agreement

    async def _make_course(self, agreement: WanBft, scout: Scout) -> tuple[Course, CatchUp]:
        parts, job = self._parts, self._parts.genesis.job
        course_parts = CourseParts(
            chain=self._chain,
            trainer=parts.trainer,
            agreement=agreement,
            offload=parts.offload,
            events=parts.events,
            peers=self._peers,
            fault=self._contacts.fault,
            bytes_sent=self.bytes_sent,
        )
        every, retention = job.checkpoints.snapshot_every, parts.config.storage.retention
        snapshots = Snapshots(self._chain, every, retention, parts.events)
        newest = await self._chain.newest()
        resumed = await self._chain.resume_point()
        course = Course(course_parts, round_rules(job), job.end, snapshots, newest, resumed.height)
        return course, CatchUp(course, course_parts, scout.found, self._holders.find)

    def _make_voice(self, course: Course) -> tuple[OwnRecord, Gossip]:
        parts = self._parts
        own = OwnRecord(
            parts.keys, parts.transport.addresses, parts.config.role, ("validator",), parts.clock
        )
        gossip = Gossip(
            parts.transport,
            self._directory,
            parts.clock,
            parts.genesis.chain_id,
            self._roll.told_height,
        )
        return own, gossip

    def _set_doors(self, course: Course, own: OwnRecord, discovery: Discovery) -> None:
        """Every handler is set before anybody can knock."""
        parts = self._parts
        hello = Hello(
            parts.transport,
            self._directory,
            parts.clock,
            parts.events,
            parts.genesis.chain_id,
            OwnStanding(own.current_bytes, lambda: course.newest.height),
            parts.config.network,
        )
        blame, is_member = self._contacts.blame, self._directory.is_member
        parts.transport.guard(hello.door, OPEN_PROTOCOLS, blame, is_member)
        parts.transport.set_handler(protocols.HELLO, hello.serve)
        parts.transport.set_handler(protocols.REQUEST, self._requests.serve)
        parts.transport.set_record_judge(discovery.judge_record)
        self._bulk.set_handler(self._server.serve, is_member)
        self._peers.serve()
        self._requests.register(GENESIS_WORD, self._tell_genesis)

    async def _tell_genesis(self, _peer_id: PeerId, _body: bytes) -> bytes:
        return self._parts.genesis.as_text().encode()

    # Questions that parts ask

    def bytes_sent(self) -> int:
        return self._mailbox.bytes_sent + self._server.sent_bytes

    def bytes_received(self) -> int:
        return self._mailbox.bytes_received + self._fetcher.received_bytes

    def _handlers(
        self, course: Course, loop: AutonomyLoop, agreement: WanBft, petitions: Petitions
    ) -> Handlers:
        parts = self._parts

        def stand(node_id: NodeId) -> tuple[int, int] | None:
            position = agreement.position_of(node_id)
            return None if position is None else (position.view, position.resolved_round)

        live = Live(
            phase=lambda: course.phase,
            ended=lambda: self._ended_because,
            waiting=loop.waiting,
            decisions=lambda: [{"decision": d.choice, "reason": d.reason} for d in loop.decisions],
            reachable=self._contacts.members_and_us,
            stand=stand,
            bytes_sent=self.bytes_sent,
            bytes_received=self.bytes_received,
            trainer_pid=lambda: parts.trainer.pid,
            drain=self._drain.set,
        )
        identity = Identity(
            self._me, parts.transport.peer_id, parts.genesis.chain_id, parts.process
        )
        return Handlers(identity, live, course, self._directory, parts.transport, petitions)


async def _outliving_workers(verb: Callable[[], Awaitable[T]]) -> T:
    """What the trainer answers, asked again when its worker dies. Raises TrainerFailed."""
    for _ in range(START_TRIES_MAX - 1):
        try:
            return await verb()
        except TrainerFailed:
            continue  # the supervisor has told why, and starts another one
    return await verb()
