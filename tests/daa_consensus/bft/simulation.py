"""A world of Simplex machines on a heap: links that lose, double, delay and part; nodes that crash.

Each node has a disk (guard, log, kept certificates, final chain) that survives it and a machine
that does not. Members may come and go (`Members`): who is none observes. A traitor runs two
machines under one key, sends each one's words to a part of the others, and votes for everything
besides. Checked all the time: no honest node ever signs two different things for a slot, nor a vote
in an epoch of which it is no member, and no two final chains differ.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from daa_consensus.bft import effects as do
from daa_consensus.bft import events as on
from daa_consensus.bft.evidence import Evidence, conflict
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    ResultPayload,
    SetPayload,
    genesis_block,
)
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.state import Simplex
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.operations import decode_operation
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import BlockId, ChainId, Digest, NodeId, VertexId, tagged_digest
from tests.daa_consensus.bft.disk import Disk
from tests.daa_consensus.bft.members import STEADY, Churn, Members, signed_by_its_own

CHAIN = ChainId(b"c" * 32)
GENESIS = genesis_block(CHAIN, VertexId(bytes(32)))
DELTA_NS = 1_000


def node_id(index: int) -> NodeId:
    return NodeId(bytes([65 + index]) * 32)


def committee_of(stakes: list[int]) -> Committee:
    return Committee(tuple(Validator(node_id(i), stake) for i, stake in enumerate(stakes)))


def sign(statement: Statement, signer: NodeId) -> Signed:
    """Machines never look at signatures: any bytes do."""
    return Signed(statement, signer, b"signature of " + signer[:1])


def empty_set(round_: int, weight: int = 0) -> SetPayload:
    return SetPayload(round_, (), (), "mean", weight, (), (), ())


def result_of(block: Block) -> ResultPayload:
    """What every honest node computes from a decided set."""
    vertex_id = VertexId(tagged_digest("vertex", block.id))
    return ResultPayload(block.height, vertex_id, Digest(tagged_digest("result", block.id)))


@dataclass(slots=True)
class Faults:
    """How bad the world is until it heals at `heal_ns`."""

    heal_ns: int = 0
    loss_percent: int = 0
    double_percent: int = 0
    crash_percent: int = 0  # of a crash of some node, every five delta
    part_percent: int = 0  # of a new partition, every ten delta
    delay_max_ns: int = DELTA_NS // 2
    data_max_ns: int = DELTA_NS
    lose_exec_percent: int = 0  # of a node that executes a round long after its deadline
    late: tuple[int, ...] = ()  # hosts whose data of a set comes late,
    late_ns: int = 0  # by so much
    withholding: tuple[int, ...] = ()  # hosts that say no Finalize


Send = Callable[["Node", on.Event, NodeId], None]


class Node:
    """The host of one machine: it carries out effects in virtual time."""

    def __init__(self, world: "World", me: NodeId, voter: bool = True) -> None:
        self.world = world
        self.me = me
        self.voter = voter
        self.disk = Disk(world.committee, world.epoch_rounds, [GENESIS])
        self.up = True
        self.alarm_ns = 0
        self.life = 0  # timers and answers of an earlier life are void
        self.execs: dict[int, dict[NodeId, ResultPayload]] = {}
        self.evidence: list[Evidence] = []
        self.refusals: list[str] = []
        self.views: list[do.EnteredView] = []
        self.machine = self._boot()

    def _boot(self) -> Simplex:
        restored = self.disk.restored()
        assert restored.membership is not None
        return Simplex(
            CHAIN,
            restored.membership.committee,
            self.me if self.voter else None,
            Timing(DELTA_NS),
            self.world.epoch_rounds,
            restored,
        )

    @property
    def index(self) -> int:
        return self.world.hosts.index(self)

    @property
    def committee(self) -> Committee:
        """Of the epoch in which this node stands."""
        return self.machine.known.committee

    def start(self) -> None:
        self.up, self.alarm_ns = True, 0
        self.life += 1
        self.machine = self._boot()
        self.execs = {}
        self.step(on.Tick())
        self._plan_round()
        if self.world.churn.percent:
            self._say_where_we_stand()

    def _say_where_we_stand(self) -> None:
        """Who observes has nothing else to say, and is offered what it lacks."""
        self._broadcast_position()
        self.world.call(10 * DELTA_NS, self, self._say_where_we_stand)

    def crash(self) -> None:
        self.up = False
        self.life += 1

    def later(self, delay_ns: int, event: on.Event) -> None:
        self.world.at(delay_ns, self, event)

    def step(self, event: on.Event) -> None:
        if isinstance(event, on.PeerPosition):
            self._send_page(event)
        for effect in self.machine.step(self.world.now_ns, event):
            self._carry_out(effect)
        deadline_ns = self.machine.deadline_ns
        if deadline_ns is not None and not self.world.now_ns < self.alarm_ns <= deadline_ns:
            self.alarm_ns = deadline_ns
            self.world.at(deadline_ns - self.world.now_ns, self, on.Tick())

    def _send_page(self, theirs: on.PeerPosition) -> None:
        """Who is further behind than the machine remembers gets the end of its epoch from disk."""
        known = self.machine.known
        if theirs.epoch in self.disk.closings and theirs.epoch not in known._proofs.closings:
            certificate, blocks = self.disk.page(theirs.epoch)
            page = on.CertificateArrived(certificate, blocks[-1], tuple(blocks[:-1]))
            self.world.send(self, theirs.peer, page)

    def _carry_out(self, effect: do.Effect) -> None:
        world, rng = self.world, self.world.rng
        match effect:
            case do.SignAndSend(statement, block):
                self._sign(statement, block)
            case do.Resend(messages, block):
                for signed in messages:
                    self._broadcast(signed, block)
                self._broadcast_position()
            case do.TryAgain():
                self._say_exec_again()
            case do.AskPayload(view, _, round_):
                bare = empty_set(round_, rng.randrange(3))
                known = self.machine.known.membership
                chosen = world.members.load(bare, known, self.evidence, rng)
                self.later(rng.randrange(DELTA_NS // 4), on.PayloadChosen(view, chosen))
            case do.Judge(block):
                assert isinstance(block.payload, SetPayload)
                asked = [decode_operation(encoded) for encoded in block.payload.operations]
                good = block.payload.rule == "mean" and all(map(signed_by_its_own, asked))
                self.later(rng.randrange(DELTA_NS // 4), on.Judged(block.id, good, "bad rule"))
            case do.AskDataHeld(block):
                delay_ns = rng.randrange(1, world.faults.data_max_ns)
                if self.index in world.faults.late:
                    delay_ns += world.faults.late_ns
                self.later(delay_ns, on.DataHeld(block.id))
            case do.FetchBlock(block_id, holders):
                world.serve_block(self, block_id, holders)
            case do.FetchCertificates(peer, epoch, first_view, last_view):
                world.serve_certificates(self, peer, (epoch, first_view, last_view))
            case do.Keep(certificate, block):
                self.disk.kept.append((certificate, block))
            case do.Offer(peer, certificates):
                for certificate, block in certificates:
                    world.send(self, peer, on.CertificateArrived(certificate, block))
            case do.Finalized(blocks, certificate, trailing):
                self._finalize(blocks, certificate, trailing)
            case do.EnteredView():
                self.views.append(effect)
            case do.GaveUp(_, reason):
                self.refusals.append(reason)
            case do.Accuse(evidence):
                self.evidence.append(evidence)

    def _sign(self, statement: Statement, block: Block | None) -> None:
        if statement.kind == Kind.FINALIZE and self.index in self.world.faults.withholding:
            return
        signed = sign(statement, self.me)
        self.world.check_signed(self, signed)
        named = statement.value
        voted = self.machine.known.block(BlockId(named)) if isinstance(named, bytes) else None
        self.disk.keep_vote(signed, block, voted)
        self._broadcast(signed, block)
        self.later(0, _arrival(signed, block))

    def _broadcast(self, signed: Signed, block: Block | None) -> None:
        for peer in self.committee.validators:
            whole = signed.statement.kind != Kind.PROPOSAL or block is not None
            if peer.node_id != self.me and whole:
                self.world.send(self, peer.node_id, _arrival(signed, block))

    def _broadcast_position(self) -> None:
        at = self.machine.known.position
        for peer in self.world.names():
            if peer != self.me:
                stand = on.PeerPosition(self.me, at.epoch, at.view, at.finalized_view)
                self.world.send(self, peer, stand)

    def _finalize(
        self, blocks: tuple[Block, ...], certificate: Certificate, trailing: tuple[Block, ...]
    ) -> None:
        self.disk.keep_final(blocks, certificate, trailing)
        self.world.check_chain(self)
        if self.me not in self.world.traitors:
            self.world.members.check_final(certificate, self.machine.known.membership)
        self._plan_round()

    def _plan_round(self) -> None:
        """Execute an open round, or wait for the window of the next one."""
        faults, rng, chain = self.world.faults, self.world.rng, self.disk.chain
        height = chain[-1].height
        if not self.disk.tip_open():
            self.later(rng.randrange(DELTA_NS * 4), on.RoundReady(height + 1))
            return
        self.later(DELTA_NS * 12 + rng.randrange(DELTA_NS * 4), on.AbortDue(height))
        slow = rng.randrange(100) < faults.lose_exec_percent
        delay_ns = DELTA_NS * 40 if slow else rng.randrange(DELTA_NS * 2)
        if self.voter and self.me in self.committee.stake_of:
            self.world.call(delay_ns, self, lambda: self._execute(height))

    def _execute(self, round_: int) -> None:
        if self.machine.known.chain.may_execute(round_):
            self.disk.executed = max(self.disk.executed, round_)
            self.step(on.ExecSigned(round_))
            self._say_exec(round_)

    def _say_exec(self, round_: int) -> None:
        decided = next(
            b for b in self.disk.chain if isinstance(b.payload, SetPayload) and b.height == round_
        )
        self.world.say_exec(self, result_of(decided))

    def _say_exec_again(self) -> None:
        if self.disk.tip_open() and self.disk.executed == self.disk.chain[-1].height:
            self._say_exec(self.disk.executed)

    def hear_exec(self, author: NodeId, result: ResultPayload) -> None:
        said = self.execs.setdefault(result.round, {})
        said[author] = result
        agreeing = {a for a, r in said.items() if r == result}
        committee = self.committee
        if (result.round - 1) // self.world.epoch_rounds != self.machine.known.domain.epoch:
            return  # of an epoch that is over, or of which we do not know yet who counts
        if committee.weight(agreeing) >= committee.quorum:
            self.step(on.ExecCertified(result.round, result.vertex_id, result.result_root))


def _arrival(signed: Signed, block: Block | None) -> on.Event:
    if signed.statement.kind == Kind.PROPOSAL:
        assert block is not None
        return on.ProposalArrived(signed, block)
    return on.VoteArrived(signed)


class World:
    """`traitors` are indices of validators, of at most f weight if the run is to stay safe."""

    def __init__(
        self,
        seed: int,
        stakes: list[int],
        faults: Faults,
        traitors: tuple[int, ...] = (),
        epoch_rounds: int = 4,
        observers: int = 0,
        churn: Churn = STEADY,
    ) -> None:
        self.rng = random.Random(seed)
        self.committee = committee_of(stakes)  # the first
        self.churn = churn
        self.faults = faults
        self.epoch_rounds = epoch_rounds
        self.now_ns = 0
        self.traitors = {node_id(i) for i in traitors}
        self.members = Members(self.committee, epoch_rounds, self.traitors)
        self.hosts: list[Node] = []
        self.delivered = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._pushed = 0
        self._started = False
        self._parts: dict[NodeId, int] = {}
        self._signed: dict[tuple[NodeId, int, int], list[Signed]] = {}
        self.final: list[Block] = [GENESIS]
        for index in range(len(stakes)):
            twins = 2 if index in traitors else 1
            self.hosts += [Node(self, node_id(index)) for _ in range(twins)]
        self.hosts += [Node(self, node_id(100 + i), voter=False) for i in range(observers)]
        self.hosts += [Node(self, node_id(len(stakes) + i)) for i in range(churn.strangers)]

    @property
    def honest(self) -> list[Node]:
        return [host for host in self.hosts if host.me not in self.traitors]

    def names(self) -> list[NodeId]:
        return list(dict.fromkeys(host.me for host in self.hosts))

    def call(self, delay_ns: int, host: Node, work: Callable[[], None]) -> None:
        life = host.life

        def run() -> None:
            if host.up and host.life == life:
                work()

        self._push(delay_ns, run)

    def at(self, delay_ns: int, host: Node, event: on.Event) -> None:
        self.call(delay_ns, host, lambda: host.step(event))

    def _push(self, delay_ns: int, work: Callable[[], None]) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (self.now_ns + max(delay_ns, 0), self._pushed, work))

    @property
    def healed(self) -> bool:
        return self.now_ns >= self.faults.heal_ns

    def send(self, sender: Node, to: NodeId, event: on.Event) -> None:
        faults, rng = self.faults, self.rng
        if sender.me in self.traitors:
            self._betray(sender, to, event)
            if rng.randrange(2):
                return
        copies = 1
        if not self.healed:
            if self._parts.get(sender.me, 0) != self._parts.get(to, 0):
                return
            if rng.randrange(100) < faults.loss_percent:
                return
            copies += rng.randrange(100) < faults.double_percent
        slowest_ns = faults.delay_max_ns if not self.healed else DELTA_NS // 2
        for _ in range(copies):
            for host in self.hosts:
                if host.me == to:
                    self._push(rng.randrange(1, slowest_ns), self._deliver(host, event))

    def _deliver(self, host: Node, event: on.Event) -> Callable[[], None]:
        def run() -> None:
            if host.up:
                self.delivered += 1
                host.step(event)

        return run

    def _betray(self, sender: Node, to: NodeId, event: on.Event) -> None:
        """A traitor's vote goes along with one that contradicts it."""
        if not isinstance(event, on.VoteArrived) or self.rng.randrange(4):
            return
        statement = event.signed.statement
        known = [b for b in sender.machine.known.chain._blocks.values() if b.view == statement.view]
        other = self.rng.choice(known).id if known else None
        for kind in (Kind.NOTARIZE, Kind.FINALIZE, Kind.NULLIFY):
            value = None if kind == Kind.NULLIFY else other
            height = 0 if kind == Kind.NULLIFY else (known[0].height if known else 0)
            if kind == Kind.NULLIFY or other is not None:
                lie = Statement(statement.domain, kind, statement.view, height, value)
                signed = sign(lie, sender.me)
                for host in self.hosts:
                    if host.me == to:
                        self._push(1, self._deliver(host, on.VoteArrived(signed)))

    def serve_block(self, asker: Node, block_id: BlockId, holders: tuple[NodeId, ...]) -> None:
        for host in self.hosts:
            block = host.machine.known.block(block_id) or host.disk.block(block_id)
            if host.me in holders and host.up and block is not None:
                self.send(host, asker.me, on.BlockArrived(block))

    def serve_certificates(self, asker: Node, peer: NodeId, wanted: tuple[int, int, int]) -> None:
        for host in self.hosts:
            if host.me == peer and host.up:
                for certificate in host.machine.known.certificates(*wanted):
                    self.send(host, asker.me, on.CertificateArrived(certificate, None))

    def say_exec(self, author: Node, result: ResultPayload) -> None:
        for host in self.hosts:
            lost = not self.healed and self.rng.randrange(100) < self.faults.loss_percent
            if not lost or host is author:
                delay_ns = self.rng.randrange(1, DELTA_NS // 2)
                self.call(delay_ns, host, partial(host.hear_exec, author.me, result))

    def check_signed(self, host: Node, signed: Signed) -> None:
        """No honest node ever signs two things that are evidence together."""
        if host.me in self.traitors:
            return
        statement = signed.statement
        earlier = self._signed.setdefault((host.me, statement.domain.epoch, statement.view), [])
        for other in earlier:
            assert conflict(signed, other) is None, (signed.statement, other.statement)
        self.members.check_signed(signed)
        earlier.append(signed)

    def check_chain(self, host: Node) -> None:
        """All final chains are prefixes of one; each block stands on the one before it."""
        chain = host.disk.chain
        if host.me in self.traitors:
            return
        shared = min(len(chain), len(self.final))
        assert [b.id for b in chain[:shared]] == [b.id for b in self.final[:shared]], "fork"
        for below, above in zip(chain[shared - 1 :], chain[shared:], strict=False):
            assert (above.parent_id, above.parent_view) == (below.id, below.view)
        if len(chain) > len(self.final):
            self.members.note_final(chain[shared:])
            self.final = list(chain)
            self._check_rounds()

    def _check_rounds(self) -> None:
        is_open, height = False, 0
        for block in self.final[1:]:
            match block.payload:
                case SetPayload(round=round_):
                    assert not is_open
                    assert round_ == height + 1
                    is_open, height = True, round_
                case ResultPayload(round=round_) | AbortPayload(round=round_):
                    assert is_open
                    assert round_ == height
                    is_open = False
            if not isinstance(block.payload, EmptyPayload):
                assert block.epoch == (height - 1) // self.epoch_rounds
            assert block.height == height

    def run(self, until_ns: int, done: Callable[[], bool] = lambda: False) -> None:
        if not self._started:
            self._started = True
            for host in self.hosts:
                host.start()
            self._push(5 * DELTA_NS, self._crash_someone)
            self._push(10 * DELTA_NS, self._part)
            self._push(self.faults.heal_ns, self._heal)
            if self.churn.percent:
                self._push(8 * DELTA_NS, lambda: _stir(self))
        while self._heap and self._heap[0][0] <= until_ns and not done():
            self.now_ns, _, work = heapq.heappop(self._heap)
            work()

    def _crash_someone(self) -> None:
        if self.healed:
            return
        if self.rng.randrange(100) < self.faults.crash_percent:
            victim = self.rng.choice(self.honest)
            if victim.up:
                victim.crash()
            else:
                victim.start()
        self._push(5 * DELTA_NS, self._crash_someone)

    def _part(self) -> None:
        if self.healed:
            return
        self._parts = {}
        if self.rng.randrange(100) < self.faults.part_percent:
            self._parts = {name: self.rng.randrange(2) for name in self.names()}
        self._push(10 * DELTA_NS, self._part)

    def _heal(self) -> None:
        self._parts = {}
        for host in self.hosts:
            if not host.up:
                host.start()
            host._broadcast_position()  # what a node says when it connects again


def _stir(world: World) -> None:
    if world.rng.randrange(100) < world.churn.percent:
        world.members.ask_something(world.rng, world.names())
    world._push(8 * DELTA_NS, lambda: _stir(world))


def domain_of(committee: Committee, epoch: int = 0) -> Domain:
    return Domain(CHAIN, epoch, committee.root)
