"""Which parts a node has, and which of the others each of them is given.

Everything outside comes in as an argument (see seams), so that a simulated world can build the very
same node. In which order the parts come to life is told in `node`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import trio

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import genesis_block
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.state import Simplex
from daa_consensus.committee import VALIDATORS_MAX
from daa_consensus.votes import Kind
from daa_dag.ids import BlobRoot, NodeId
from daa_node.agreement.doorstep import Doorstep
from daa_node.agreement.enrolment_requests import EnrolmentRequests
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.invitations import Invitations, desk_of
from daa_node.agreement.member_list import MemberList
from daa_node.agreement.membership_requests import MembershipRequests
from daa_node.agreement.messages import message_bytes_max
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.protocol_word import ProtocolWord
from daa_node.agreement.recovery import RecoveryStore, restored
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.agreement.withdrawal import Withdrawal
from daa_node.api.handlers import Handlers, Identity, Live
from daa_node.autonomy.loop import AutonomyLoop
from daa_node.autonomy.monitor import Monitor
from daa_node.bulk_wiring import BulkWiring
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.page_server import Pages
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.contributors.kept import KeptHealth
from daa_node.contributors.records import HealthRecords
from daa_node.contributors.views import REQUEST as STANDING_REQUEST
from daa_node.contributors.views import Views
from daa_node.disputes.decided_sets import Drawn
from daa_node.disputes.disputes import Disputes
from daa_node.disputes.parts import DisputeParts, Reach, Voice
from daa_node.errors import Unavailable
from daa_node.gateway.volunteers import door_for_both
from daa_node.gateway_wiring import GatewayWiring
from daa_node.genesis import GENESIS_REQUEST, chain_facts, check_rules_of, round_rules
from daa_node.history_wiring import HistoryWiring
from daa_node.network.contacts import Contacts
from daa_node.network.directory import Directory
from daa_node.network.discovery import Discovery, OwnRecord
from daa_node.network.gossip import Gossip
from daa_node.network.hello import OPEN_PROTOCOLS, Hello, OwnStanding
from daa_node.network.holders import Holders
from daa_node.network.link_limits import Budget
from daa_node.network.mailbox import Mailbox
from daa_node.network.requests import Requests
from daa_node.node_parts import NodeParts
from daa_node.reach_wiring import capabilities_of, make_relaying
from daa_node.rounds.catch_up import CatchUp, far_behind
from daa_node.rounds.claims import Claims
from daa_node.rounds.first_weights import FirstWeights
from daa_node.rounds.job_runner import JobRunner, RunnerParts
from daa_node.rounds.peers import Peers, Sizes, update_deadline_s
from daa_node.rounds.scouting import Scout
from daa_node.seams import Address, Door, PeerId, StateRef
from daa_node.spot_checks.calibration import Calibration
from daa_node.spot_checks.canaries import Canaries, Others
from daa_node.spot_checks.checks import SpotChecks
from daa_node.spot_checks.continuity import named_fault
from daa_node.training.boundaries import BOUNDARIES
from daa_node.wire import protocols

DISK_LIMITS = Limits(VALIDATORS_MAX, VALIDATORS_MAX)  # our own files, of any epoch


class Wiring:
    """The parts of one node, each made from those before it."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        genesis, job = parts.genesis, parts.genesis.job
        self.me = parts.keys.node_id
        self.validators = genesis.validators(parts.speaks.numbers)
        self._limits = self.validators.limits
        self._epoch_rounds = job.agreement.epoch_rounds
        self._directory = Directory(trio.current_time, genesis.peer_ids, parts.events)
        if parts.paths is not None:
            parts.paths.hear_round_trips(self._directory.note_round_trip)
        self.contacts = Contacts(self.me, self.validators, self._directory, parts.transport)
        self._requests = Requests(parts.transport, self._directory, parts.events)
        self.holders = Holders(parts.transport, self._directory)
        self.relaying = make_relaying(parts, self.contacts, self._directory, self._requests)
        self.chain = ChainStore(parts.chain_store, parts.work_store, DISK_LIMITS)
        around = self._directory, self.contacts, self._requests, self.validators
        self._bulk = bulk = BulkWiring(parts, *around)
        self.limits, self._fetcher, self._server = bulk.limits, bulk.fetcher, bulk.server
        check_rules = check_rules_of(job)
        delta_bytes_max = job.updates.delta_format.size_bytes_max(job.model.parameter_count())
        fetch_s = update_deadline_s(job.rounds.window_ms, job.agreement.delta_ms)
        chunks = check_rules.boundary_chunks, job.updates.chunk_bytes
        self._peers = Peers(
            self._fetcher,
            self._requests,
            self.contacts,
            parts.work_store,
            Sizes(self._limits, delta_bytes_max, fetch_s, *chunks),
            bulk.sent_of,
            self.limits.note_own,
        )
        self.health = HealthRecords(self.me, self._why_excluded, parts.events)
        self.kept_health = KeptHealth(self.health, parts.work_store, parts.events)
        waits, health = self._fetcher.waits, self.health
        waits.on_answer, waits.place_of = health.note_answer, health.place_of
        self._server.is_last, self._directory.on_fault = health.is_last, health.note_fault
        self._views = Views(
            self.health,
            self._directory.node_of,
            self._contributors_here,
            self._requests.ask,
            self.contacts.fault,
        )
        self._claims = Claims(self._peers, self.chain, parts.offload)
        census = self.validators.voters, lambda: self.validators.now.committee.liars_max
        self.calibration = Calibration(self.me, check_rules.tolerance, *census)
        self.spot_checks = SpotChecks(
            *(self.me, check_rules, parts.trainer, self._claims, self.calibration, parts.events)
        )
        self.spot_checks.on_finding = self.health.note_finding
        self._mailbox = Mailbox(
            parts.transport,
            self._directory.peer_of,
            self._directory.node_of,
            (),
            lambda: message_bytes_max(self._limits),
            self.contacts.fault,
            job.agreement.delta_ms / 1e3,
        )
        self._member_list = MemberList(
            self.me, self.validators, self._directory, self._mailbox, parts.events
        )
        self._signer = Signer(parts.keys, genesis.chain_id, parts.journal, parts.entropy)
        self._inbound, self.withdrawal = Inbound(self.validators), Withdrawal(parts.work_store)
        around_chain = self.contacts, self._requests, self._fetcher, self.validators
        self.history = HistoryWiring(parts, self.chain, *around_chain)
        gateway = GatewayWiring(parts, self.chain, self.validators, self.spot_checks)
        self._gateway = gateway if parts.config.gateway.enabled else None
        self.volunteers = None if self._gateway is None else self._gateway.volunteers

    def _why_excluded(self, node: NodeId) -> str | None:
        """What puts somebody out here: never a score."""
        if node in self.validators.now.convicted:
            return "it stands convicted by evidence in a set"
        peer_id = self.contacts.peer_of(node)
        if peer_id is not None and self._directory.banned_for_s(peer_id):
            return "this node has banned it for its faults"
        return None

    def _contributors_here(self) -> Mapping[NodeId, PeerId]:
        """Those that we have seen contribute, and have a connection with."""
        here = {node: self.contacts.peer_of(node) for node in self.contacts.members()}
        return {n: peer_id for n, peer_id in here.items() if peer_id and self.health.knows(n)}

    async def open_chain(self, first_state: StateRef) -> None:
        """Raises StorageFailed."""
        genesis = self._parts.genesis
        begun = genesis.membership
        vertex = genesis_vertex(first_state, begun.committee.root, begun.roll.root)
        await self.chain.open(vertex, genesis_block(genesis.chain_id, vertex.vertex_id))

    def make_first_weights(self) -> FirstWeights:
        parts, states = self._parts, chain_facts(self._parts.genesis).states
        begun = parts.genesis.membership
        return FirstWeights(
            vertex=genesis_vertex(states.first_state, begun.committee.root, begun.roll.root),
            rules=states,
            chain=self.chain,
            peers=self._peers,
            offload=parts.offload,
            events=parts.events,
            read_file=parts.read_first_weights,
        )

    async def restore_agreement(self) -> WanBft:
        """With all that this node has signed and seen final. Raises StorageFailed."""
        parts, job = self._parts, self._parts.genesis.job
        newest = await self.chain.newest()
        await self._signer.load(history_exists=newest.height > 0 or parts.key_use.begun)
        await parts.offload.run(parts.key_use.begin)
        block, certificate = self.chain.final_tip
        on_disk = self._member_list.on_disk()
        await self.chain.turns.lead_on(on_disk, block.id)
        self._member_list.take_up(on_disk)
        records = RecoveryStore(parts.work_store, DISK_LIMITS)
        certificates, blocks = await records.load()
        await records.forget((block.epoch, block.view))  # a crash may have come in between
        statements = self._signer.restored().statements
        state, open_set = await restored(
            self.chain.path_down(block.id),
            certificate,
            self._epoch_rounds,
            certificates,
            blocks,
            statements,
        )
        delta_ns = job.agreement.delta_ms * 1_000_000
        machine = Simplex(
            parts.genesis.chain_id,
            self.validators.now.committee,
            self.me,
            Timing(delta_ns, job.agreement.doublings_max),
            self._epoch_rounds,
            replace(state, membership=self.validators.now),
        )
        agreement_parts = AgreementParts(
            me=self.me,
            validators=self.validators,
            delta_ns=delta_ns,
            signer=self._signer,
            inbound=self._inbound,
            mailbox=self._mailbox,
            recovery=records,
            stored_block=self.chain.block,
            events=parts.events,
            fault=self.contacts.fault,
            members_changed=self._member_list.changed,
        )
        resolved = state.tip.height - (1 if state.tip_open else 0)
        agreement = WanBft(agreement_parts, machine, resolved, open_set)
        agreement.recall(
            [signed for signed in statements if signed.statement.kind in (Kind.OFFER, Kind.EXEC)],
            [k.certificate for k in certificates if k.certificate.statement.kind is Kind.EXEC],
            [*blocks, *(item.block for item in certificates if item.block is not None)],
        )
        return agreement

    def make_disputes(self, agreement: WanBft) -> tuple[Disputes, Canaries]:
        """Over what checks of this node, or of others, find; and what they tolerate."""
        parts, rules = self._parts, check_rules_of(self._parts.genesis.job)

        async def named(drawn: Drawn) -> str | None:
            base, sizes = drawn.basis.state, rules.boundary_chunks
            shown = rules.shown_chunks
            wrong = await named_fault(self._claims, drawn.draw, base, drawn.merged, sizes, shown)
            return None if wrong is None else wrong[1]

        async def last_boundary(drawn: Drawn) -> BlobRoot | None:
            if drawn.merged is None:
                return None
            return await self._claims.last_boundary(drawn.merged, drawn.author)

        async def ask(node: NodeId, name: str, body: bytes, answer_bytes_max: int) -> bytes:
            peer_id = self.contacts.peer_of(node)
            if peer_id is None:
                raise Unavailable(f"{node.hex()[:8]} is not connected")
            return await self._requests.ask(peer_id, name, body, answer_bytes_max)

        disputes = Disputes(
            DisputeParts(
                me=self.me,
                rules=rules,
                trainer=parts.trainer,
                store=parts.work_store,
                fetch=self._peers.fetch_boundary,
                named_fault=named,
                last_boundary=last_boundary,
                see_base=self._claims.base_manifest,
                tolerance_of=self.calibration.tolerance,
                reach=Reach(self.contacts.members, self._directory.node_of, ask),
                voice=Voice(
                    self.validators, self._inbound.verify, self._signer.sign, agreement.convict
                ),
                events=parts.events,
            )
        )
        disputes.serve(self._requests)
        self.spot_checks.on_doubt = disputes.doubt
        self.spot_checks.on_unshown = disputes.unshown
        if rules.shown_chunks:  # they hold what nobody else has: to be seen where the lot says so
            self._server.may_show = lambda kind, root: (
                kind != BOUNDARIES or disputes.is_drawn(self.me, root)
            )
        others = Others(self.contacts.members, self._directory.node_of, ask, self.contacts.fault)
        canaries = Canaries(
            self.calibration, parts.trainer, disputes.turn, parts.work_store, others, parts.events
        )
        canaries.serve(self._requests)
        return disputes, canaries

    async def make_runner(
        self, agreement: WanBft, disputes: Disputes
    ) -> tuple[JobRunner, Scout, CatchUp]:
        """Where the chain on disk has come to, and how it is caught up with others."""
        parts, job = self._parts, self._parts.genesis.job
        runner_parts = RunnerParts(
            chain=self.chain,
            trainer=parts.trainer,
            agreement=agreement,
            offload=parts.offload,
            events=parts.events,
            peers=self._peers,
            spot_checks=self.spot_checks,
            disputes=disputes,
            health=self.health,
            fault=self.contacts.fault,
            bytes_sent=self.bytes_sent,
            told_height=self._member_list.told_height,
            anchor=parts.anchor,
            contributes=parts.config.trainer.contribute,
        )
        every, retention = job.checkpoints.snapshot_every, parts.config.storage.retention
        snapshots = Snapshots(self.chain, every, retention, parts.events)
        self.history.lend_to(snapshots)
        newest = await self.chain.newest()
        resumed = await self.chain.resume_point()
        runner = JobRunner(
            runner_parts, round_rules(job), job.end, snapshots, newest, resumed.height
        )
        scout = Scout(runner, agreement, self.chain, self._peers, self.contacts, parts.events)
        catch_up = CatchUp(
            *(runner, runner_parts, scout.found, self.holders.find),
            is_far=far_behind(
                self._member_list.told_height,
                lambda: self.history.within(snapshots.quota.retention, every),
                every,
            ),
        )
        return runner, scout, catch_up

    def make_loop(
        self, runner: JobRunner, catch_up: CatchUp, agreement: WanBft, drain: trio.Event
    ) -> AutonomyLoop:
        trainer = self._parts.trainer
        monitor = Monitor(
            runner,
            agreement,
            self.contacts,
            self._server.upload,
            lambda: trainer.pid is not None,
            drain,
            self.health.is_last,
        )
        monitor.data_spent = lambda: self.limits.budget is Budget.SPENT
        monitor.trains = self._parts.config.trainer.contribute
        return AutonomyLoop(runner, catch_up, monitor, self._parts.events)

    def make_membership_requests(self, agreement: WanBft) -> MembershipRequests:
        return MembershipRequests(
            self._parts.keys,
            self.validators,
            self._signer,
            agreement,
            Doorstep(self._requests, self.contacts.member_peers, self._parts.transport.connected),
        )

    def make_word(self, agreement: WanBft) -> ProtocolWord:
        return ProtocolWord(self.me, self.validators, self._signer, agreement)

    def make_enrolments(self, agreement: WanBft) -> tuple[EnrolmentRequests, Invitations]:
        """What is asked of the trainers' roll, and who comes with an invite."""
        parts, contacts = self._parts, self.contacts
        enrolments = EnrolmentRequests(
            parts.keys,
            self.validators,
            self._signer,
            agreement,
            Doorstep(self._requests, contacts.member_peers, parts.transport.connected),
            self.withdrawal,
        )
        enrolments.wants = parts.config.enroll
        invitations = Invitations(
            self.me,
            self.validators,
            desk_of(enrolments),
            parts.work_store,
            (parts.clock, parts.entropy),
            self.relaying.told,
            parts.events,
        )
        invitations.serve(self._requests, self._directory.node_of, contacts.blame)
        return enrolments, invitations

    def make_gossip(self) -> Gossip:
        parts, told = self._parts, self._member_list.told_height
        chain_id = parts.genesis.chain_id
        delta_s = parts.genesis.job.agreement.delta_ms / 1e3
        gossip = Gossip(parts.transport, self._directory, parts.clock, chain_id, told, delta_s)
        gossip.limits = self.limits
        return gossip

    def open_doors(self, runner: JobRunner, gossip: Gossip) -> Discovery:
        """Every handler is set before anybody can knock."""
        parts, network = self._parts, self._parts.config.network
        can = capabilities_of(parts.config)
        own = OwnRecord(parts.keys, self.relaying.told, parts.config.role, can, parts.clock)
        discovery = Discovery(
            parts.transport,
            self._directory,
            gossip,
            own,
            parts.clock,
            parts.events,
            tuple(Address(text) for text in network.bootstrap),
        )
        hello = Hello(
            parts.transport,
            self._directory,
            parts.clock,
            parts.events,
            parts.genesis.chain_id,
            OwnStanding(own.current_bytes, lambda: runner.newest.height, parts.speaks),
            network,
        )
        door: Door = hello.door
        open_to_all = OPEN_PROTOCOLS
        if self.volunteers is not None:
            door, open_to_all = door_for_both(door), open_to_all | {protocols.VOLUNTEER}
            parts.transport.set_handler(protocols.VOLUNTEER, self.volunteers.serve)
        blame, is_member = self.contacts.blame, self._directory.is_member
        parts.transport.guard(door, open_to_all, blame, is_member)
        parts.transport.set_handler(protocols.HELLO, hello.serve)
        parts.transport.set_handler(protocols.REQUEST, self._requests.serve)
        parts.transport.set_record_judge(discovery.judge_record)
        self._bulk.open(is_member)
        Pages(self.chain).serve(self._requests)
        self.history.serve()
        self._requests.register(GENESIS_REQUEST, self._tell_genesis)
        self._requests.register(STANDING_REQUEST, self._views.answer)
        if self._gateway is not None:
            self._gateway.open(runner)
        return discovery

    async def _tell_genesis(self, _peer_id: PeerId, _body: bytes) -> bytes:
        return self._parts.genesis.as_text().encode()

    def bytes_sent(self) -> int:
        return self._mailbox.bytes_sent + self._server.sent_bytes

    def bytes_received(self) -> int:
        return self._mailbox.bytes_received + self._fetcher.received_bytes

    def handlers(
        self,
        runner: JobRunner,
        loop: AutonomyLoop,
        agreement: WanBft,
        disputes: Disputes,
        membership_requests: MembershipRequests,
        ended: Callable[[], str | None],
        drain: trio.Event,
    ) -> Handlers:
        """What an operator may ask."""
        parts = self._parts
        checks_are_on = parts.genesis.job.spot_checks.is_on

        def stand(node_id: NodeId) -> tuple[int, int] | None:
            position = agreement.position_of(node_id)
            return None if position is None else (position.view, position.resolved_round)

        live = Live(
            phase=lambda: runner.phase,
            ended=ended,
            waiting=loop.waiting,
            decisions=lambda: [{"decision": d.choice, "reason": d.reason} for d in loop.decisions],
            reachable=self.contacts.members_and_us,
            stand=stand,
            checks=self.spot_checks.health.of,
            usefulness=self.spot_checks.usefulness.of,
            health=self.health.told_of,
            shunned_until=disputes.shunned_until,
            views_of_us=self._views.of_us,
            calibration=lambda: self.calibration.standing() if checks_are_on else None,
            calibration_of=lambda node: self.calibration.of(node) if checks_are_on else None,
            bytes_sent=self.bytes_sent,
            bytes_received=self.bytes_received,
            link=self.limits.standing,
            copies=self.history.copies,
            trainer_pid=lambda: parts.trainer.pid,
            gateway=lambda: None if self._gateway is None else self._gateway.standing(),
            api=lambda: None if parts.api is None else parts.api.door.standing(),
            reachability=self.relaying.standing,
            is_relayed=self.relaying.is_relayed,
            is_punched=self.relaying.is_punched,
            why_relayed=self.relaying.why_relayed,
            paths=parts.paths,
            drain=drain.set,
            is_paused=lambda: loop.is_paused,
            has_retired=lambda: self.withdrawal.is_kept,
            set_paused=loop.set_paused,
        )
        identity = Identity(self.me, parts.transport.peer_id, parts.genesis.chain_id, parts.process)
        return Handlers(
            identity, live, runner, self._directory, parts.transport, membership_requests
        )
