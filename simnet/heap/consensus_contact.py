"""What one life has to do with the world: its clock, its mailbox, its event log, and the watch.

It is the mailbox and the event log that the agreement is given, and what its Life calls besides.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from daa_consensus.bft.effects import EnteredView, Finalized, Keep
from daa_consensus.bft.messages import Block, ResultPayload
from daa_consensus.votes import Kind
from daa_dag.ids import NodeId
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.kept import Kept
from daa_node.agreement.outcomes import Resolution
from daa_node.agreement.signer import LOG_BYTES_MAX, RECORD_BYTES_MAX
from daa_node.errors import PeerFault
from daa_node.observability import events
from daa_node.observability.events import EventName
from simnet.adversaries.conduct import Conduct
from simnet.determinism import FINAL, VIEW, VOTE
from simnet.heap.consensus_letters import Network
from simnet.heap.consensus_life import at_once
from simnet.invariants import RULES_AGREE, Broken, Watch

if TYPE_CHECKING:
    from simnet.heap.consensus_host import Host

PUBLISH_DELTAS = 2  # a resolved round's checkpoint is written within so many
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
    inbound: Inbound
    names: list[NodeId]  # of all nodes

    def at(self, at_ns: int, work: Callable[[], None]) -> None: ...

    def leaves(self, host: "Host", payload: bytes) -> None: ...

    def send(self, host: "Host", receiver: NodeId, payload: bytes) -> None: ...

    def is_honest(self, node: int) -> bool: ...

    def convicted(self, host: "Host", offender: NodeId) -> None: ...

    def note(self, what: str, **fields: Any) -> None: ...

    def progressed(self) -> None: ...


class Contact:
    """Made anew for each life."""

    def __init__(self, world: World, host: "Host", kept: Kept) -> None:
        self._world = world
        self._host = host
        self._kept = kept
        self._unpublished: deque[Resolution] = deque()
        self._newest_final: tuple[Block, ...] = ()

    @property
    def _is_watched(self) -> bool:
        return self._world.is_honest(self._host.node)

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
        if self._is_watched:
            self._world.watch.kept(self._host, effect.certificate)

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

    def publish(self, resolution: Resolution) -> None:
        """Write the round's checkpoint after a while; rounds in their order."""
        self._unpublished.append(resolution)
        within_ns = PUBLISH_DELTAS * self._world.network.delta_ns
        self._host.later(self._host.chance.randrange(within_ns), self._write)

    def _write(self) -> None:
        archive, resolution = self._host.disk.archive, self._unpublished.popleft()
        archive.publish(resolution.blocks, resolution.trailing, resolution.certificate)
        at_once(self._kept.forget((archive.tip.epoch, archive.tip.view)))

    def mark(self, name: str) -> None:
        self._world.watch.sometimes[name] += 1

    def result(self, honest: ResultPayload) -> ResultPayload | None:
        conduct = self._host.conduct
        return honest if conduct is None else conduct.result(self._host.voice, honest)

    def holds_data(self, block: Block) -> bool:
        conduct: Conduct | None = self._host.conduct
        return conduct is None or conduct.holds_data(self._host.body, block)

    def send(self, member: NodeId, payload: bytes) -> None:
        self._world.leaves(self._host, payload)
        self._world.send(self._host, member, payload)

    def broadcast(self, payload: bytes) -> None:
        self._world.leaves(self._host, payload)
        for name in self._world.names:
            if name != self._host.me:
                self._world.send(self._host, name, payload)

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
        self.mark(f"blamed for {fault.reason}")
