"""Gossip of up to 20,000 nodes: what is published reaches all who can be reached, and when.

Each node has mesh peers (Topology.mesh) and LAZY_DEGREE others to hint to. Messages are datagrams
here: a lossy link loses a whole one, as a full outbound queue of gossipsub does, and lazy gossip
has to repair it. A node that was killed comes back with an empty memory.

Invariants:
  * whom open links of the mesh join to the publisher from the moment of publishing on has the
    message `settle_s` later; once all faults have healed that is everybody;
  * nobody is given one message twice;
  * every cache keeps its limit.
"""

from collections import Counter
from dataclasses import dataclass
from random import Random

from daa_node.errors import UserError
from simnet.checks.outcome import Outcome, Stopwatch, nothing
from simnet.nodes.heap.gossip_core import (
    HEADER_BYTES,
    HEARTBEAT_S,
    Data,
    GossipNode,
    Have,
    Limits,
    Message,
    Sends,
    Want,
    key_of,
)
from simnet.nodes.heap.wires import Wires
from simnet.world.determinism import BROKEN, Streams, Trace
from simnet.world.faults import Edge, healed_ns
from simnet.world.links import MS, NS
from simnet.world.scenario import Scenario

LAZY_DEGREE = 12  # peers beside the mesh; go-libp2p keeps a few dozen connections
# Mesh peers that a node has to hear from to be owed what they know: fewer may all lose one message
FED_LINKS_MIN = 3
LIMITS = Limits()
PUBLISHED = "published"  # in a trace: `node`, `message`, `owed` (to how many)
DELIVERED, MEMORY, ONCE = "delivered in time", "caches within limits", "delivered once"


@dataclass(slots=True)
class Publication:
    """One message, and who is to have it by when."""

    index: int
    publisher: int
    at_ns: int
    owed: set[int]
    got: set[int]
    after_heal: bool


class Gossip:
    """One run."""

    def __init__(self, scenario: Scenario, trace: Trace, limits: Limits) -> None:
        if scenario.adversaries:
            raise UserError("heap gossip has no adversaries")
        self.settle_ns = int(min(scenario.checks.heal_s, scenario.duration_s / 3) * NS)
        self.wires: Wires[Message] = Wires(scenario, trace, self._deliver, reliable=False)
        self.engine = self.wires.engine
        self.latencies_ns: list[int] = []
        self.judged: list[Publication] = []
        self.late: list[str] = []  # of each message that somebody who was owed it has not got
        self.twice = 0
        self.repaired = 0  # asked for after a hint
        self.overfull = 0  # caches over their limits when they were looked at
        self._scenario = scenario
        self._trace = trace
        self._streams = Streams(scenario.seed).below("gossip")
        self._limits = limits
        self._mesh = self.wires.topology.mesh()
        self._lazy = [
            tuple(sorted(set(peers) - set(self._mesh[node])))
            for node, peers in enumerate(self.wires.topology.graph("lazy", LAZY_DEGREE))
        ]
        self._chances = [self._streams.random(f"node {i}") for i in range(scenario.node_count)]
        self.nodes = [self._born(node) for node in range(scenario.node_count)]
        self._open: dict[int, Publication] = {}  # by key

    def run(self) -> None:
        """Play the whole scenario."""
        chance = self._streams.random("heartbeats")
        for node in range(len(self.nodes)):
            self.wires.alarm(chance.randrange(HEARTBEAT_S * NS), node, self._heartbeat, node)
        self._plan_publications(self._streams.random("publications"))
        self.wires.play(self._edge)
        self.overfull += sum(not node.within_limits() for node in self.nodes)

    def _born(self, node: int) -> GossipNode:
        return GossipNode(self._mesh[node], self._lazy[node], self._chances[node], self._limits)

    def _plan_publications(self, chance: Random) -> None:
        """Evenly over what leaves time to settle, each at a random moment of its share."""
        count = self._scenario.work.messages
        span_ns = self.wires.end_ns - self.settle_ns
        for index in range(count):
            share_ns = span_ns // count
            at_ns = index * share_ns + chance.randrange(max(1, share_ns))
            self.engine.at(at_ns, self._publish, index, chance.randrange(len(self.nodes)))

    def _publish(self, index: int, node: int) -> None:
        """A publisher that is down or frozen publishes nothing."""
        if not self.wires.is_open(node, node):
            return
        now_ns, size_bytes = self.engine.now_ns, self._scenario.work.message_bytes
        data = Data(
            key_of(b"data", self._streams.bytes(f"payload {index}", size_bytes)),
            HEADER_BYTES + size_bytes,
        )
        owed = self._reached(node)
        after_heal = now_ns >= healed_ns(self._scenario)
        publication = Publication(index, node, now_ns, owed, {node}, after_heal)
        self._open[data.key] = publication
        self._trace.note(now_ns, PUBLISHED, node=node, message=index, owed=len(owed))
        self.engine.at(now_ns + self.settle_ns, self._judge, data.key)
        self._send(node, self.nodes[node].publish(data))

    def _judge(self, key: int) -> None:
        publication = self._open.pop(key)
        missing = sorted(publication.owed - publication.got)
        if missing:
            after = f"{self.settle_ns / NS:.1f} s after it was published"
            self.late.append(f"node {missing[0]} has not got message {publication.index} {after}")
            self._trace.note(self.engine.now_ns, BROKEN, name=DELIVERED, detail=self.late[-1])
        self.judged.append(publication)

    def _deliver(self, sender: int, receiver: int, message: Message) -> None:
        node = self.nodes[receiver]
        if type(message) is Data:
            sends = node.on_data(sender, message)
            if sends is None:
                return
            self._received(receiver, message.key)
        elif type(message) is Have:
            sends = node.on_have(sender, message)
        else:
            assert type(message) is Want
            sends = node.on_want(sender, message)
            self.repaired += len(sends)
        self._send(receiver, sends)

    def _received(self, node: int, key: int) -> None:
        publication = self._open.get(key)
        if publication is None:
            return  # later than anybody counts
        if node in publication.got:
            self.twice += 1
            return
        publication.got.add(node)
        self.latencies_ns.append(self.engine.now_ns - publication.at_ns)

    def _heartbeat(self, node: int) -> None:
        sends = self.nodes[node].on_heartbeat()
        self.wires.alarm(self.engine.now_ns + HEARTBEAT_S * NS, node, self._heartbeat, node)
        self._send(node, sends)

    def _send(self, node: int, sends: Sends) -> None:
        send = self.wires.send
        for message, peers in sends:
            for peer in peers:
                send(node, peer, message)

    def _edge(self, edge: Edge) -> None:
        changed = self.wires.apply(edge)
        for node in changed:
            if edge.begins:
                self.overfull += not self.nodes[node].within_limits()
                # what it knew is gone with it: it may get again what it had
                for publication in self._open.values():
                    publication.got.discard(node)
            else:
                self.nodes[node] = self._born(node)
                self._heartbeat(node)
        if edge.begins:
            self._owe_less(changed)

    def _owe_less(self, killed: list[int]) -> None:
        """A fault has begun: who is cut off by it is owed nothing that is still under way."""
        if not killed:
            for publication in self._open.values():
                publication.owed &= self._reached(publication.publisher)
            return
        lost = {peer for node in killed for peer in self._mesh[node] if not self._is_fed(peer)}
        for publication in self._open.values():
            publication.owed -= lost.union(killed)
            if publication.publisher in killed:
                publication.owed.clear()

    def _is_fed(self, node: int) -> bool:
        """Whether enough mesh peers can tell it things that a lost message or two do not matter."""
        open_links = sum(self.wires.is_open(peer, node) for peer in self._mesh[node])
        return open_links >= min(FED_LINKS_MIN, self._scenario.topology.degree // 2)

    def _reached(self, publisher: int) -> set[int]:
        """Whom the mesh carries a message of `publisher` to, as it is now."""
        everybody = set(range(len(self.nodes)))
        if self.wires.is_calm:
            return everybody
        fed = {node for node in everybody if self._is_fed(node)}
        if publisher not in fed:
            return {publisher}
        heard, rim = {publisher}, [publisher]
        while rim:
            node = rim.pop()
            for peer in self._mesh[node]:
                if peer in fed and peer not in heard and self.wires.is_open(node, peer):
                    heard.add(peer)
                    rim.append(peer)
        return heard


def percentile_ms(sorted_ns: list[int], percent: int) -> float | None:
    """The smallest value that `percent` of them do not exceed; None of none."""
    if not sorted_ns:
        return None
    return round(sorted_ns[(len(sorted_ns) * percent + 99) // 100 - 1] / MS, 3)


def share(part: int, whole: int) -> float | None:
    """Rounded; None of nothing."""
    return round(part / whole, 6) if whole else None


def run_gossip(scenario: Scenario, trace: Trace, limits: Limits = LIMITS) -> Outcome:
    """Raises UserError for faults that gossip does not have, and for adversaries."""
    began = Stopwatch()
    world = Gossip(scenario, trace, limits)
    world.run()
    count, wires = scenario.node_count, world.wires
    got = sum(len(publication.got) for publication in world.judged)
    latencies_ns = sorted(world.latencies_ns)
    met = {
        "published while parted": sum(len(p.owed) < count for p in world.judged),
        "published after healing": sum(p.after_heal for p in world.judged),
        "repaired by lazy gossip": world.repaired,
    }
    return began.outcome(
        scenario,
        trace,
        wires.engine.now_ns / NS,
        (),  # nobody has a state
        (
            nothing(DELIVERED, world.late[:1]),
            nothing(ONCE, [f"{world.twice} deliveries"] if world.twice else []),
            nothing(MEMORY, [f"{world.overfull} nodes"] if world.overfull else []),
        ),
        Counter(met),
        {
            "published": len(world.judged),
            "delivered_share": share(got, count * len(world.judged)),
            "latency_ms_p50": percentile_ms(latencies_ns, 50),
            "latency_ms_p99": percentile_ms(latencies_ns, 99),
            "settle_s": world.settle_ns / NS,
            "messages_a_node": round(sum(wires.sent) / count, 1),
            "bytes_a_node": sum(wires.sent_bytes) // count,
            "messages_lost": wires.lost,
            "events": wires.engine.events,
        },
    )
