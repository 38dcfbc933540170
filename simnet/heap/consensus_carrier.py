"""What carries letters and requests between hosts: every frame on the wire goes through here.

What a liar sends is what its conduct makes of it, and what it hears its conduct lets through.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from daa_consensus.votes import Kind, Statement
from daa_dag.ids import BlockId, NodeId
from daa_node.agreement.letters import Proposed, Said, encode_letter
from daa_node.errors import PeerFault
from simnet.adversaries.conduct import Conduct
from simnet.heap.consensus_wire import Wire
from simnet.invariants import READ, Broken

if TYPE_CHECKING:
    from simnet.heap.consensus import Consensus
    from simnet.heap.consensus_host import Host


class Carrier:
    """One world's."""

    def __init__(self, world: "Consensus", wire: Wire) -> None:
        self._world = world
        self._wire = wire

    @property
    def is_split(self) -> bool:
        """Whether some nodes cannot reach others."""
        return self._wire.is_cut

    def connected(self, host: "Host") -> list[int]:
        """Nodes with which it has a stream in both directions now."""
        now_ns, me = self._world.now_ns, host.node
        return [
            node
            for node, bodies in enumerate(self._world.hosts_of)
            if node != me
            and any(each.life is not None for each in bodies)
            and self._wire.reaches(now_ns, me, node)
            and self._wire.reaches(now_ns, node, me)
        ]

    def leaves(self, host: "Host", payload: bytes) -> None:
        """A letter leaves a host: look at the words in it that are its own."""
        if not self._world.is_honest(host.node):
            return
        try:
            body = host.decoded(payload).body
        except PeerFault as fault:
            raise Broken(READ, f"{host} says what is refused: {fault}") from None
        if not isinstance(body, Said | Proposed) or body.signed.signer != host.me:
            return
        statement = body.signed.statement
        if self._world.watch.word(host.node, body.signed) and statement.kind is Kind.NOTARIZE:
            self._justified(host, statement)

    def _justified(self, host: "Host", vote: Statement) -> None:
        assert host.life is not None
        assert isinstance(vote.value, bytes)
        known = host.life.machine.known
        block, proposal = known.block(BlockId(vote.value)), known.ballots.proposal(vote.view)
        if block is not None and proposal is not None and vote.domain == known.domain:
            leader = known.committee.leader(vote.domain, vote.view)
            by_leader = proposal.signer == leader and proposal.statement.value == vote.value
            self._world.watch.notarizes(host.node, block, by_leader)

    def send(self, host: "Host", receiver: NodeId, payload: bytes) -> None:
        """A letter, over the wire to a node, as its sender's conduct wants it."""
        to = self._world.network.number_of.get(receiver)
        if to is None or to == host.node:
            return
        if host.conduct is None:
            self._carry(host, to, payload)
            return
        own = host.decoded(payload)
        for told in host.conduct.sends(host.voice, to, own):
            if told is own:
                self._carry(host, to, payload)
            else:
                self._carry(host, to, told if isinstance(told, bytes) else encode_letter(told))

    def _carry(self, host: "Host", to: int, payload: bytes) -> None:
        def arrives(each: "Host") -> None:
            if each.conduct is None or self._hears(each, each.conduct, host.node, payload):
                each.receive(host.me, payload)

        self.frame(host, to, payload, arrives)

    def frame(
        self, host: "Host", to: int, payload: bytes, arrives: Callable[["Host"], object]
    ) -> None:
        """To those of a node's machines that are there, and still are when it arrives."""
        world, life = self._world, host.lives
        world.trace.frame(world.now_ns, host.node, to, payload)
        receivers = [(each, each.lives) for each in world.hosts_of[to] if each.life is not None]

        def arrive() -> None:
            for each, lives in receivers:
                if each.lives == lives:
                    arrives(each)

        def deliver(at_ns: int) -> None:
            if host.lives == life:
                world.at(at_ns, arrive)

        self._wire.send(world.now_ns, host.node, to, len(payload), deliver)

    def _hears(self, host: "Host", conduct: Conduct, sender: int, payload: bytes) -> bool:
        try:
            return conduct.hears(host.body, sender, host.decoded(payload))
        except PeerFault:
            return True  # what is no letter is refused by honest code
