"""What one life has to do with the world: its clock, its event log, its chain, and the watch.

It is the event log that the agreement is given, and what its Life calls besides.
"""

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, Protocol

from daa_consensus.bft.effects import EnteredView, Finalized, Keep
from daa_consensus.bft.messages import Block, ResultPayload
from daa_consensus.membership import Membership
from daa_consensus.votes import Kind
from daa_dag.ids import BlockId, NodeId
from daa_node.agreement.kept import Kept
from daa_node.agreement.signer import LOG_BYTES_MAX, RECORD_BYTES_MAX
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators
from daa_node.observability import events
from daa_node.observability.events import EventName
from simnet.adversaries.conduct import Conduct
from simnet.determinism import FINAL, MEMBERS, VIEW, VOTE
from simnet.heap.consensus_carrier import Carrier
from simnet.heap.consensus_letters import Desk, Network
from simnet.heap.consensus_publisher import Publisher
from simnet.invariants import ACCEPTED, NO_SLANDER, RULES_AGREE, Broken, Watch

if TYPE_CHECKING:
    from simnet.heap.consensus_host import Host

KEPT_A_VIEW = 4  # a notarization, a nullification, and the blocks of twins
KEPT_BESIDES = 16  # what is final and unpublished, the guard, a view stepped back
LOG_MAX = LOG_BYTES_MAX + RECORD_BYTES_MAX
# Why a signer may refuse what the rules allow: it knows of votes before a quarantine, and of blocks
# that the disk has lost.
_MAY_REFUSE = ("quarantined", "unknown-block", "behind-floor")


class World(Protocol):
    """What a host needs of its world."""

    now_ns: int
    watch: Watch
    network: Network
    desk: Desk
    carrier: Carrier
    data_deltas: int

    def at(self, at_ns: int, work: Callable[[], None]) -> None: ...

    def is_honest(self, node: int) -> bool: ...

    def convicted(self, host: "Host", offender: NodeId) -> None: ...

    def note(self, what: str, **fields: Any) -> None: ...

    def progressed(self) -> None: ...

    def greet(self, nodes: Container[int]) -> None: ...


class Contact:
    """Made anew for each life."""

    def __init__(self, world: World, host: "Host", kept: Kept) -> None:
        self._world = world
        self._host = host
        self.names = [keys.node_id for keys in world.network.keys]  # by number
        self.data_deltas = world.data_deltas
        self.publisher = Publisher(host, kept, world.network.delta_ns)
        self._newest_final: tuple[Block, ...] = ()
        self._validators: Validators  # that this life leads on, from `begins` on
        self._was_away = False  # while members changed, and has not followed yet

    @property
    def _is_watched(self) -> bool:
        return self._world.is_honest(self._host.node)

    @property
    def delta_ns(self) -> int:
        return self._world.network.delta_ns

    def now_ns(self) -> int:
        return self._host.local_ns()

    def later(self, delay_ns: int, work: Callable[[], None]) -> None:
        self._host.later(delay_ns, work)

    def alarm(self, local_ns: int) -> None:
        self._host.alarm(local_ns)

    def finalized(self, effect: Finalized) -> None:
        world, host = self._world, self._host
        self._newest_final = effect.blocks
        if not self._is_watched:
            return
        world.watch.finalized(host, effect.blocks, effect.certificate)
        for block in effect.blocks:
            kind = type(block.payload).__name__.removesuffix("Payload").lower()
            world.note(FINAL, node=host.node, height=block.height, view=block.view, payload=kind)
        world.progressed()

    def kept(self, effect: Finalized) -> None:
        if self._is_watched and not self._host.disk.full:  # which took nothing
            self._world.watch.kept(self._host, effect.certificate)

    def begins(self, validators: Validators, tip: BlockId) -> None:
        """A life starts from what the disk says of members."""
        now, newest = validators.now, self._world.watch.rolls.now
        self._validators = validators
        self.knows(tip, now)
        if self._host.lives > 1 and self._is_watched:
            if now.committee != self._world.network.committee:
                self.mark("restarted after a change of members")
            if now.waiting:
                self.mark("restarted while a change waited")
            self._was_away = now.epoch < newest.epoch and now.committee != newest.committee

    def _epoch_began(self, **fields: Any) -> None:
        world, host, known = self._world, self._host, self._validators
        world.note(MEMBERS, node=host.node, **fields)
        if not self._is_watched:
            return
        before, now = known.committee(known.now.epoch - 1), known.now.committee
        if host.me in before.stake_of and host.me not in now.stake_of:
            self.mark("leaver stopped")
        if known.now.expelled:
            self.mark("convicted member expelled")
        if fields["changes"] and world.carrier.is_split:
            self.mark("members changed across a partition")
        if self._was_away and known.now.epoch == world.watch.rolls.now.epoch:
            self._was_away = False
            self.mark("change of members followed by who was away")

    def knows(self, tip: BlockId, known: Membership) -> None:
        if self._is_watched:
            self._world.watch.follows(self._host, tip, known)

    def certificate(self, effect: Keep) -> None:
        if self._is_watched:
            self._world.watch.certificate(effect.certificate)
        if effect.certificate.statement.kind is Kind.NULLIFY:
            self.mark("view nullified")

    def entered(self, effect: EnteredView) -> None:
        self._world.note(VIEW, node=self._host.node, view=effect.view)
        disk, watch = self._host.disk, self._world.watch
        unpublished = max(effect.view - disk.archive.tip.view, 0)
        kept_max = KEPT_BESIDES + KEPT_A_VIEW * unpublished
        watch.bounded(f"{self._host}: kept records", disk.file_count, kept_max)
        watch.bounded(f"{self._host}: log bytes", disk.log.size_bytes, LOG_MAX)

    def mark(self, name: str) -> None:
        self._world.watch.sometimes[name] += 1

    def result(self, honest: ResultPayload) -> ResultPayload | None:
        conduct = self._host.conduct
        return honest if conduct is None else conduct.result(self._host.voice, honest)

    def holds_data(self, block: Block) -> bool:
        conduct: Conduct | None = self._host.conduct
        return conduct is None or conduct.holds_data(self._host.body, block)

    def refused(self, block: Block, reason: str) -> None:
        """It judges by the chain below, which is its leader's, too."""
        leads = self._validators.committee(block.epoch).leader(
            self._validators.domain(block.epoch), block.view
        )
        number = self._world.network.number_of.get(leads)
        if self._is_watched and number is not None and self._world.is_honest(number):
            raise Broken(ACCEPTED, f"{self._host} refuses the set of node {number}: {reason}")
        self.mark("set refused")

    def emit(self, name: EventName, /, **fields: object) -> None:
        match name:
            case events.VOTE_REFUSED:
                reason = str(fields["why"]).split(":")[0]
                if reason not in _MAY_REFUSE and self._is_watched:
                    raise Broken(RULES_AGREE, f"{self._host}: {fields['kind']}, {fields['why']}")
            case events.STORAGE_FAILED:
                self.mark("vote refused by disk")
            case events.REJOINED:
                self.mark("quarantine left")
                if self._is_watched:
                    carrier = next(b for b in self._newest_final if b.view == fields["view"])
                    self._world.watch.rejoined(self._host.node, carrier)
            case events.EXEC_CERTIFIED if self._is_watched and self._host.life is not None:
                round_number = fields["round"]
                assert isinstance(round_number, int)
                held = self._host.life.facts.exec_certificates[round_number]
                self._world.watch.execution(held)
            case events.EPOCH_BEGAN:
                self._epoch_began(**fields)
            case events.EVIDENCE_FOUND:
                offender = fields["offender"]
                assert isinstance(offender, bytes)
                self._world.convicted(self._host, NodeId(offender))
            case events.WORD_SAID if fields["view"]:
                kind = str(fields["kind"])
                self._world.note(VOTE, node=self._host.node, kind=kind, view=fields["view"])
            case _:
                pass

    def fault(self, member: NodeId, fault: PeerFault) -> None:
        self.misled(self._world.network.number_of.get(member), fault)

    def misled(self, node: int | None, fault: PeerFault) -> None:
        """A node said what none should."""
        self.mark(f"blamed for {fault.reason}")
        if node is not None and self._world.is_honest(node) and self._is_watched:
            raise Broken(NO_SLANDER, f"{self._host} blames the honest node {node}: {fault}")
