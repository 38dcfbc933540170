"""One simulated validator across its lives: its disk, its clock, and what is done to it.

DOWN --start: disk read, machine restored--> UP --pause--> PAUSED --resume: letters waited--> UP
  ^                                           |
  +-- stop, or power fails amid a write ------+
"""

import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from daa_consensus.bft.effects import EnteredView, Finalized, Keep
from daa_consensus.bft.events import Tick
from daa_consensus.bft.messages import Block, Limits, ResultPayload
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.safety import Record
from daa_consensus.bft.state import Simplex
from daa_consensus.votes import Kind, Signed
from daa_dag.ids import NodeId
from daa_node.agreement import restart
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.kept import Kept
from daa_node.agreement.outcomes import Resolution
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.signer import Signer
from daa_node.errors import PeerFault, StorageFailed
from daa_node.identity.keys import NodeKeys
from daa_node.network.mailbox import OUTBOX_LETTERS_MAX, Mailbox
from daa_node.observability import events
from daa_node.observability.events import EventLog, EventName
from daa_node.seams import BlobStore
from daa_node.seams import Journal as JournalSeam
from simnet.heap.conduct import Conduct, Voice
from simnet.heap.consensus_letters import Keys, Network, signature_of
from simnet.heap.consensus_life import Life, at_once
from simnet.heap.disk import Disk, Journal, PowerCut, Records
from simnet.invariants import NO_NEED, RULES_AGREE, Broken, Watch
from simnet.links import MILLION

PUBLISH_DELTAS = 2  # a resolved round's checkpoint is written within so many
TORN_WRITES_MAX = 3  # a power cut in the middle of a write hits one of the next few


@dataclass(frozen=True, slots=True)
class Make:
    """How a host's parts are made: a test plants a broken one here, nothing else changes."""

    journal: Callable[[Disk], JournalSeam] = Journal
    records: Callable[[Disk], Any] = Records
    signer: Callable[..., Signer] = Signer
    kept: Callable[[BlobStore, Limits], Kept] = Kept
    restored: Callable[..., Awaitable[tuple[Any, Block | None]]] = restart.restored
    machine: Callable[..., Simplex] = Simplex


class World(Protocol):
    """What a host needs of its world."""

    now_ns: int
    watch: Watch
    network: Network
    make: Make
    inbound: Inbound

    def at(self, at_ns: int, work: Callable[[], None]) -> None: ...

    def leaves(self, host: "Host", payload: bytes) -> None: ...

    def send(self, host: "Host", receiver: NodeId, payload: bytes) -> None: ...

    def is_honest(self, node: int) -> bool: ...

    def note(self, what: str, **fields: Any) -> None: ...

    def progressed(self, host: "Host") -> None: ...


class Chance:
    """The Entropy seam: nonces of Rejoins."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def bytes(self, size_bytes: int) -> bytes:
        return self._chance.randbytes(size_bytes)


class Host:
    """A node's machine, or one of the several that a liar runs under its key."""

    def __init__(
        self, world: World, node: int, body: int, me: NodeId, votes: bool, conduct: Conduct | None
    ) -> None:
        self._world = world
        self.node, self.body, self.me, self.votes = node, body, me, votes
        self.conduct = conduct
        self.disk: Disk
        self.chance: random.Random
        self.skew_ns, self.drift_ppm = 0, 0
        self.life: Life | None = None
        self.lives = 0
        self.begun = False  # the keys know that they have signed, whatever becomes of the log
        self.impaired = False  # the disk has lost or refused something
        self._why_down: list[object] = []
        self._paused = 0
        self._waiting: deque[tuple[NodeId, bytes]] = deque(maxlen=OUTBOX_LETTERS_MAX)
        self._deferred: list[Callable[[], None]] = []
        self._alarm_ns = 0
        self._newest_final: tuple[Block, ...] = ()

    def __repr__(self) -> str:
        return f"node {self.node}" if not self.body else f"node {self.node} (body {self.body})"

    def equip(self, chance: random.Random, disk_chance: random.Random) -> None:
        """Give it a disk and its chance; before the first start."""
        self.chance = chance
        self.disk = Disk(disk_chance)
        self.disk.chain.append(self._world.network.genesis)

    @property
    def voice(self) -> Voice:
        """What this host's conduct may use."""
        assert self.life is not None
        return Voice(
            self.node,
            self.body,
            len(self._world.network.committee.validators),
            self.life.machine,
            lambda words: Signed(words, self.me, signature_of(self.me)),
            self.chance,
        )

    # Lives

    def start(self) -> None:
        """Read the disk, and go on from there."""
        self.lives += 1
        self._alarm_ns = 0
        try:
            self._begin()
        except PowerCut:
            self.stop(cut=True)
            self._world.at(self._world.now_ns + self._world.network.delta_ns, self.start)

    def stop(self, cut: bool) -> None:
        """The process is gone; `cut`: the power too, and with it what was not synced."""
        if self.life is not None:
            self._world.note("down", node=self.node)
        self.life = None
        self.lives += 1
        self._waiting.clear()
        self._deferred.clear()
        if cut:
            self.disk.power_cut()

    def down_for(self, reason: object) -> None:
        """Be down until `up_for` the same reason, and every other one."""
        self._why_down.append(reason)
        if self.life is not None:
            self.stop(cut=True)

    def up_for(self, reason: object) -> None:
        if reason in self._why_down:
            self._why_down.remove(reason)
            if not self._why_down and self.life is None:
                self.start()

    @property
    def is_wanted_up(self) -> bool:
        return not self._why_down

    def tear(self, reason: object) -> None:
        """Power fails in the middle of one of the next writes, or soon without one."""
        self.disk.cut_in = self.chance.randint(1, TORN_WRITES_MAX)
        life, delta_ns = self.lives, self._world.network.delta_ns
        self._why_down.append(reason)

        def fall() -> None:
            if self.lives == life and reason in self._why_down:
                self.stop(cut=True)

        self._world.at(self._world.now_ns + 2 * delta_ns, fall)

    def pause(self) -> None:
        self._paused += 1

    def resume(self) -> None:
        """What came meanwhile comes now."""
        self._paused -= 1
        if self._paused:
            return
        deferred, self._deferred = self._deferred, []
        for work in deferred:
            self._run(work)
        while self._waiting and self.life is not None:
            self.receive(*self._waiting.popleft())

    def _begin(self) -> None:
        world, make, network = self._world, self._world.make, self._world.network
        signer = self._signer()
        try:
            at_once(signer.load(self.begun))
        except StorageFailed:
            world.watch.sometimes["damaged log moved away by the operator"] += 1
            self.disk.lose_log()
            signer = self._signer()
            at_once(signer.load(self.begun))
        self.begun = True
        if signer.quarantine is not None:
            world.watch.sometimes["quarantine entered"] += 1
            if not self.impaired and world.is_honest(self.node):
                raise Broken(NO_NEED, f"{self}: {signer.quarantine}")
        kept = make.kept(cast(BlobStore, make.records(self.disk)), network.limits)
        at_once(self._revive(signer, kept))

    def _signer(self) -> Signer:
        make, network = self._world.make, self._world.network
        keys, journal = cast(NodeKeys, Keys(self.me)), make.journal(self.disk)
        return make.signer(keys, network.chain_id, journal, Chance(self.chance))

    async def _revive(self, signer: Signer, kept: Kept) -> None:
        world, make, network = self._world, self._world.make, self._world.network
        certificates, blocks = await kept.load()
        tip = self.disk.final_tip
        await kept.forget((tip.epoch, tip.view))
        words = signer.restored().words
        state, open_set = await make.restored(
            self.disk.path_down(),
            self.disk.chain_proof,
            network.epoch_rounds,
            certificates,
            blocks,
            words,
        )
        machine = make.machine(
            network.chain_id,
            network.committee,
            self.me if self.votes else None,
            Timing(network.delta_ns, network.doublings_max),
            network.epoch_rounds,
            state,
        )
        if state.record != Record(0, 0) and state.record.slot == machine.known.slot:
            world.watch.sometimes["restart mid-vote"] += 1
        if self.disk.torn:
            world.watch.sometimes["power lost in the middle of a write"] += self.disk.torn
            self.disk.torn = 0
        resolved = state.tip.height - (1 if state.tip_open else 0)
        self._kept = kept
        self.life = Life(self._parts(signer, kept), machine, resolved, open_set, self, self.chance)
        if self._is_watched:
            finals = [k for k in certificates if k.certificate.statement.kind is Kind.FINALIZE]
            slots = [k.slot for k in finals] + [(tip.epoch, tip.view)]
            world.watch.started(self, state.tip, max(slots), not self.impaired)
        world.note("up", node=self.node)
        self.life.begin(
            [word for word in words if word.statement.kind in (Kind.OFFER, Kind.EXEC)],
            [k.certificate for k in certificates if k.certificate.statement.kind is Kind.EXEC],
            [*blocks, *(item.block for item in certificates if item.block is not None)],
        )

    def _parts(self, signer: Signer, kept: Kept) -> AgreementParts:
        world, network = self._world, self._world.network
        return AgreementParts(
            me=self.me,
            committee=network.committee,
            domain_of=network.domain,
            epoch_of=network.epoch_of,
            delta_ns=network.delta_ns,
            signer=signer,
            inbound=world.inbound,
            mailbox=cast(Mailbox, self),
            kept=kept,
            stored_block=self.disk.published,
            events=cast(EventLog, self),
            fault=self._fault,
        )

    @property
    def _is_watched(self) -> bool:
        return self._world.is_honest(self.node)

    # What a life needs of its host

    def now_ns(self) -> int:
        now_ns = self._world.now_ns
        return now_ns + now_ns * self.drift_ppm // MILLION + self.skew_ns

    def later(self, delay_ns: int, work: Callable[[], None]) -> None:
        life = self.lives

        def run() -> None:
            if self.lives == life:
                self._run(work)

        self._world.at(self._world.now_ns + delay_ns, run)

    def alarm(self, local_ns: int) -> None:
        wait_ns = max(local_ns - self.now_ns(), 0)
        at_ns = self._world.now_ns + wait_ns * MILLION // (MILLION + self.drift_ppm) + 1
        if self._world.now_ns < self._alarm_ns <= at_ns:
            return
        self._alarm_ns = at_ns
        life = self.life
        assert life is not None
        self.later(at_ns - self._world.now_ns, lambda: life.tell(Tick()))

    def finalized(self, effect: Finalized) -> None:
        world = self._world
        self._newest_final = effect.blocks
        if not self._is_watched:
            return
        world.watch.finalized(self, effect.blocks, effect.certificate)
        for block in effect.blocks:
            kind = type(block.payload).__name__.removesuffix("Payload").lower()
            world.note("final", node=self.node, height=block.height, view=block.view, payload=kind)
        world.progressed(self)

    def certificate(self, effect: Keep) -> None:
        if self._is_watched:
            self._world.watch.certificate(effect.certificate)
        if effect.certificate.statement.kind is Kind.NULLIFY:
            self._world.watch.sometimes["view nullified"] += 1

    def entered(self, effect: EnteredView) -> None:
        self._world.note("view", node=self.node, view=effect.view)

    def publish(self, resolution: Resolution) -> None:
        delta_ns = self._world.network.delta_ns

        def write() -> None:
            tip = self.disk.final_tip
            above = [b for b in resolution.blocks if (b.epoch, b.view) > (tip.epoch, tip.view)]
            assert above or not resolution.blocks
            self.disk.publish(resolution.blocks, resolution.trailing, resolution.certificate)
            newest = self.disk.final_tip
            at_once(self._kept.forget((newest.epoch, newest.view)))

        self.later(self.chance.randrange(PUBLISH_DELTAS * delta_ns), write)

    def mark(self, name: str) -> None:
        self._world.watch.sometimes[name] += 1

    def result(self, honest: ResultPayload) -> ResultPayload | None:
        return honest if self.conduct is None else self.conduct.result(self.voice, honest)

    def holds_data(self, block: Block) -> bool:
        return self.conduct is None or self.conduct.holds_data(self.body, block)

    # The mailbox and the event log of the agreement

    def send(self, member: NodeId, payload: bytes) -> None:
        self._world.leaves(self, payload)
        self._world.send(self, member, payload)

    def broadcast(self, payload: bytes) -> None:
        self._world.leaves(self, payload)
        for validator in self._world.network.committee.validators:
            if validator.node_id != self.me:
                self._world.send(self, validator.node_id, payload)

    def emit(self, name: EventName, /, **fields: object) -> None:
        watch = self._world.watch
        match name:
            case events.VOTE_REFUSED:
                reason = str(fields["why"]).split(":")[0]
                allowed = ("quarantined", "unknown-block", "behind-floor")
                if reason not in allowed and self._is_watched:
                    raise Broken(RULES_AGREE, f"{self}: {fields['kind']}, {fields['why']}")
            case events.STORAGE_FAILED:
                watch.sometimes["vote refused by disk"] += 1
            case events.REJOINED:
                watch.sometimes["quarantine left"] += 1
                if self._is_watched:
                    carrier = next(b for b in self._newest_final if b.view == fields["view"])
                    watch.rejoined(self.node, carrier)
            case events.WORD_SAID if fields["view"]:
                self._world.note(
                    "vote", node=self.node, kind=str(fields["kind"]), view=fields["view"]
                )
            case _:
                pass

    def _fault(self, member: NodeId, fault: PeerFault) -> None:
        self._world.watch.sometimes[f"blamed for {fault.reason}"] += 1

    # Events

    def receive(self, sender: NodeId, payload: bytes) -> None:
        """A letter has arrived."""
        if self.life is None:
            return
        if self._paused:
            self._waiting.append((sender, payload))
            return
        life = self.life
        self._run(lambda: life.receive(sender, payload))

    def greet(self, member: NodeId) -> None:
        """The stream to `member` is open anew."""
        life = self.life
        if life is not None:
            self._run(lambda: life.greet(member))

    def _run(self, work: Callable[[], None]) -> None:
        if self._paused:
            self._deferred.append(work)
            return
        try:
            work()
        except PowerCut:
            self.stop(cut=True)
            if self.is_wanted_up:
                self.start()
