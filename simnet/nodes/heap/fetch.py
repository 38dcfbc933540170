"""A checkpoint spreads over the mesh: from a few holders to everybody, chunk by chunk.

Every node runs daa_dag's fetch machine against its mesh peers, which serve what they hold already,
over reliable streams; each link has its own rate. Liars hold nothing: a babbler answers with
garbage, a withholder that it has not got the chunk, a staller answers rightly when nobody wants it
any more.

Invariants:
  * every honest node that is up in the end is whole, in time after the last fault has healed;
  * what is held has the bytes that the manifest names, and is fetched once, deaths or not;
  * only liars are accused or banned.
"""

from collections import Counter

from daa_dag.chunking import Manifest, manifest_of
from daa_node.errors import UserError
from simnet.checks.outcome import Invariant, Outcome, Stopwatch, nothing
from simnet.nodes.heap.fetch_node import Announce, Answer, Disk, FetchNode, Message, Request
from simnet.nodes.heap.gossip import percentile_ms, share
from simnet.nodes.heap.gossip_core import key_of
from simnet.nodes.heap.wires import Wires
from simnet.world.determinism import BROKEN, DOWN, UP, Streams, Trace
from simnet.world.faults import Edge, healed_ns
from simnet.world.links import NS
from simnet.world.scenario import AdversaryKind, Scenario

TICK_NS = NS // 2  # how often a node looks who is silent, and announces
STALL_NS = 15 * NS  # before the daemon gives a session up
LIARS: frozenset[AdversaryKind] = frozenset(("babbler", "withholder", "staller"))
WHOLE = "whole"  # in a trace: `node`
EVERYBODY, RIGHT, HONEST = "everybody is whole in time", "held bytes are right", "honest unaccused"


class Spread:
    """One run."""

    def __init__(self, scenario: Scenario, trace: Trace) -> None:
        self._scenario = scenario
        self._trace = trace
        self._streams = Streams(scenario.seed).below("fetch")
        self.wires: Wires[Message] = Wires(scenario, trace, self._deliver, reliable=True)
        self.engine = self.wires.engine
        work, count = scenario.work, scenario.node_count
        self.chunks = [
            self._streams.bytes(f"chunk {i}", work.chunk_bytes) for i in range(work.chunks)
        ]
        self.manifest: Manifest = manifest_of(
            b"".join(self.chunks), [work.chunk_bytes] * work.chunks
        )
        self._keys = [key_of(b"answer", chunk) for chunk in self.chunks]
        self.liars = _liars(scenario)
        self._mesh = self.wires.topology.mesh()
        honest = [node for node in range(count) if node not in self.liars]
        if work.holders > len(honest):
            raise UserError(f"{work.holders} holders, but only {len(honest)} honest nodes")
        self.holders = sorted(self._streams.random("holders").sample(honest, work.holders))
        self.disks = [Disk() for _ in range(count)]
        for holder in self.holders:
            self.disks[holder].held = dict(enumerate(self.chunks))
        self.whole_ns = dict.fromkeys(self.holders, 0)
        self.resumed = 0  # chunks that a node came back with
        self.wrongly_accused: list[int] = []
        self.accusations = 0
        self.bans = 0
        chance = self._streams.random("first")
        self._firsts = [chance.randrange(work.chunks) for _ in range(count)]
        self.nodes: dict[int, FetchNode] = {}  # honest ones that are up

    def run(self) -> None:
        """Play the whole scenario."""
        chance = self._streams.random("starts")
        for node in range(self._scenario.node_count):
            self.wires.alarm(chance.randrange(TICK_NS), node, self._come_up, node)
        self.wires.play(self._edge)
        for node in sorted(self.nodes):
            self._count_accused(self.nodes[node])

    def _come_up(self, node: int) -> None:
        if node in self.liars:
            everything = Announce(frozenset(range(len(self.chunks))), len(self.chunks))
            for peer in self._mesh[node]:
                self.wires.send(node, peer, everything)
            return

        def send(peer: int, message: Message) -> None:
            self.wires.send(node, peer, message)

        life = FetchNode(self.manifest, self.disks[node], self._firsts[node], send)
        self.nodes[node] = life
        life.hello(self.engine.now_ns, self._mesh[node])
        self._tick(node)

    def _tick(self, node: int) -> None:
        now_ns = self.engine.now_ns
        if self.nodes[node].on_tick(now_ns, self._mesh[node]):
            self.wires.alarm(now_ns + TICK_NS, node, self._tick, node)

    def _deliver(self, sender: int, receiver: int, message: Message) -> None:
        if receiver in self.liars:
            self._lie(receiver, sender, message)
            return
        node = self.nodes.get(receiver)
        if node is None:
            return  # it has not started yet
        now_ns = self.engine.now_ns
        match message:
            case Announce():
                node.on_announce(now_ns, sender, message)
            case Answer():
                node.on_answer(now_ns, sender, message)
                if receiver not in self.whole_ns and node.fetch.complete:
                    self.whole_ns[receiver] = now_ns
                    self._trace.note(now_ns, WHOLE, node=receiver)
            case Request(index):
                self._answer(receiver, sender, index, self.disks[receiver].held.get(index))

    def _answer(self, node: int, peer: int, index: int, payload: bytes | None) -> None:
        key = key_of(b"missing", b"%d" % index) if payload is None else self._keys[index]
        self.wires.send(node, peer, Answer(index, payload, key))

    def _lie(self, liar: int, peer: int, message: Message) -> None:
        if isinstance(message, Announce) and message.hello:
            self._come_up(liar)
        if not isinstance(message, Request):
            return
        index = message.index
        match self.liars[liar]:
            case "withholder":
                self._answer(liar, peer, index, None)
            case "staller":
                late_ns = self.engine.now_ns + STALL_NS
                self.wires.alarm(late_ns, liar, self._answer, liar, peer, index, self.chunks[index])
            case _:
                garbage = self._streams.bytes(f"garbage {liar} {index}", len(self.chunks[index]))
                self.wires.send(liar, peer, Answer(index, garbage, key_of(b"answer", garbage)))

    def _edge(self, edge: Edge) -> None:
        for node in self.wires.apply(edge):
            self._trace.note(self.engine.now_ns, DOWN if edge.begins else UP, node=node)
            if edge.begins:
                life = self.nodes.pop(node, None)
                if life is not None:
                    self._count_accused(life)
            else:
                self.resumed += len(self.disks[node].held)
                self._come_up(node)

    def _count_accused(self, life: FetchNode) -> None:
        self.accusations += len(life.accused)
        self.bans += len(life.banned)
        accused = {*life.accused, *life.banned}
        self.wrongly_accused += sorted(accused - self.liars.keys())

    def expected(self) -> list[int]:
        """Who must be whole in the end."""
        everybody = range(self._scenario.node_count)
        return [node for node in everybody if node not in self.liars and self.wires.is_up(node)]

    def verdicts(self) -> tuple[Invariant, ...]:
        """What held; what did not is noted in the trace as well."""
        limit_ns = healed_ns(self._scenario) + int(self._scenario.checks.heal_s * NS)
        limit_ns = min(limit_ns, self.wires.end_ns)  # a run that ends before has not shown it
        late = [n for n in self.expected() if self.whole_ns.get(n, limit_ns + 1) > limit_ns]
        wrong = [
            node
            for node, disk in enumerate(self.disks)
            if any(chunk != self.chunks[index] for index, chunk in disk.held.items())
        ]
        again = [node for node, disk in enumerate(self.disks) if disk.fetched_again]
        verdicts = (
            nothing(EVERYBODY, [f"{len(late)} are not, node {node} say" for node in late[:1]]),
            nothing(RIGHT, [f"node {node}" for node in wrong[:1]]),
            nothing("fetched once", [f"node {node}" for node in again[:1]]),
            nothing(HONEST, [f"node {node}" for node in self.wrongly_accused[:1]]),
        )
        for verdict in verdicts:
            if not verdict.ok:
                self._trace.note(
                    self.wires.end_ns, BROKEN, name=verdict.name, detail=verdict.detail
                )
        return verdicts


def _liars(scenario: Scenario) -> dict[int, AdversaryKind]:
    for index, config in enumerate(scenario.adversaries):
        if config.kind not in LIARS:
            raise UserError(f"heap fetch has no {config.kind}: adversaries[{index}]")
    return {node: config.kind for node, config in scenario.liars().items()}


def run_fetch(scenario: Scenario, trace: Trace) -> Outcome:
    """Raises UserError for faults and adversaries that this work does not have."""
    began = Stopwatch()
    world = Spread(scenario, trace)
    world.run()
    wires, size_bytes = world.wires, world.manifest.size_bytes
    expected = set(world.expected())
    whole_ns = sorted(at for node, at in world.whole_ns.items() if node not in world.holders)
    from_holders = sum(wires.sent_bytes[holder] for holder in world.holders)
    met = {
        "resumed after a death": world.resumed,
        "wrong chunk refused": world.accusations,
        "liar banned": world.bans,
    }
    return began.outcome(
        scenario,
        trace,
        wires.engine.now_ns / NS,
        (world.manifest.root.hex(),) if world.whole_ns.keys() >= expected else (),
        world.verdicts(),
        Counter(met),
        {
            "checkpoint_bytes": size_bytes,
            "whole_share": share(len(world.whole_ns.keys() & expected), len(expected)),
            "whole_ms_p50": percentile_ms(whole_ns, 50),
            "whole_ms_p99": percentile_ms(whole_ns, 99),
            "whole_ms_last": percentile_ms(whole_ns, 100),
            "sent_bytes_over_needed": round(
                sum(wires.sent_bytes) / (size_bytes * max(1, len(whole_ns))), 4
            ),
            "share_from_holders": share(from_holders, sum(wires.sent_bytes)),
            "events": wires.engine.events,
        },
    )
