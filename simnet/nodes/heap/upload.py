"""A contribution leaves its author about once: receivers pass it on to each other.

Node 0 is the author and runs daa_dag.spread; all others fetch what it has at the same time, and
serve what they have of it. What a node sends leaves over one access link, one message after the
other, chunks behind chunks. Liars are receivers: they claim at once whatever they are offered, and
answer whoever asks them for it with garbage (a babbler), that it is not there (a withholder), or
nothing for long (a staller).

Invariants:
  * every honest receiver is whole in time;
  * only liars are accused;
  * without liars the author sends at most RATIO_MAX times what it has to give, with them one copy
    more for each at most.
"""

from collections import Counter

from daa_dag.chunking import Manifest, manifest_of
from daa_dag.spread import Spread
from daa_node.errors import UserError
from simnet.checks.outcome import Outcome, Stopwatch, nothing
from simnet.nodes.heap.fetch_node import name_of
from simnet.nodes.heap.gossip import percentile_ms
from simnet.nodes.heap.upload_node import (
    AUTHOR,
    LOOK_EVERY_NS,
    Chunk,
    Message,
    Share,
    Told,
    UploadNode,
    Wish,
    answer,
    share,
    told,
)
from simnet.nodes.heap.wires import Wires
from simnet.world.determinism import BROKEN, Streams, Trace
from simnet.world.links import NS
from simnet.world.scenario import AdversaryKind, Scenario
from simnet.world.topology import MBIT, TIERS

RATIO_MAX = 1.3
STALL_NS = 15 * NS
CLAIM_EVERY_NS = NS // 50  # as often as a server answers one peer
LIARS: frozenset[AdversaryKind] = frozenset(("babbler", "withholder", "staller"))
EVERYBODY, ONCE, HONEST = "everybody is whole in time", "uploaded once", "honest unaccused"


class Upload:
    """One run."""

    def __init__(self, scenario: Scenario, trace: Trace, is_expected: bool = True) -> None:
        """`is_expected`: all know who has it, and for how many; else it may be anybody's state."""
        for index, config in enumerate(scenario.adversaries):
            if config.kind not in LIARS:
                raise UserError(f"heap upload has no {config.kind}: adversaries[{index}]")
        if scenario.faults:
            raise UserError("heap upload has no faults: faults[0]")
        self._trace = trace
        self._streams = Streams(scenario.seed).below("upload")
        self.wires: Wires[Message] = Wires(scenario, trace, self._deliver, reliable=True)
        self.engine = self.wires.engine
        work, count = scenario.work, scenario.node_count
        self.chunks = [
            self._streams.bytes(f"chunk {i}", work.chunk_bytes) for i in range(work.chunks)
        ]
        sizes = [work.chunk_bytes] * work.chunks
        self.manifest: Manifest = manifest_of(b"".join(self.chunks), sizes)
        self.liars = {node: config.kind for node, config in scenario.liars().items()}
        if AUTHOR in self.liars:
            raise UserError(f"heap upload: node {AUTHOR} is the author, and honest")
        preset = scenario.topology.preset
        tier = TIERS["wan" if preset == "three_tier" else preset]
        rate = scenario.topology.mbit_s or tier.mbit_s
        self._up_bits_s = [
            int((scenario.group_of(node).up_mbit_s or rate) * MBIT) for node in range(count)
        ]
        self._busy_ns = [0] * count  # until when its access link sends chunks
        salt = self._streams.bytes("salt", 16)
        self.spread = (
            Spread(work.chunks, count - 1, salt)
            if is_expected
            else Spread(work.chunks, None, salt, is_alone=None)
        )
        self._claims = dict.fromkeys(self.liars, 0)  # masks: what each says that it has
        self.nodes: dict[int, UploadNode] = {}
        self.whole_ns: dict[int, int] = {}
        self.sent_bytes = [0] * count  # of chunks

    def run(self) -> None:
        for node in range(1, len(self._busy_ns)):
            self.engine.at(0, self._begin, node)
        self.wires.play(lambda _edge: None)

    def _begin(self, node: int) -> None:
        if node in self.liars:
            self._claim(node)
            return

        def send(peer: int, message: Message) -> None:
            self.wires.send(node, peer, message)

        salt = self._streams.bytes(f"salt {node}", 16)
        life = self.nodes[node] = UploadNode(self.manifest, salt, send)
        life.begin(self.engine.now_ns)
        self.engine.at(self.engine.now_ns + LOOK_EVERY_NS, self._look, node)

    def _look(self, node: int) -> None:
        life = self.nodes[node]
        if not life.fetch.complete:
            life.look(self.engine.now_ns)
            self.engine.at(self.engine.now_ns + LOOK_EVERY_NS, self._look, node)

    def _claim(self, liar: int) -> None:
        count, honest = len(self.chunks), len(self._busy_ns) - 1 - len(self.liars)
        if len(self.whole_ns) == honest:
            return  # nobody is left to be lied to
        self.wires.send(liar, AUTHOR, share(self._claims[liar], (), 0, count))
        self.engine.at(self.engine.now_ns + CLAIM_EVERY_NS, self._claim, liar)

    def _deliver(self, sender: int, receiver: int, message: Message) -> None:
        now_ns, count = self.engine.now_ns, len(self.chunks)
        match message:
            case Share(have, orphans, heard):
                news = self.spread.tell(name_of(sender), have, orphans, heard, now_ns / NS)
                self.wires.send(AUTHOR, sender, told(news.news, news.offered, news.holders, count))
            case Told() if receiver not in self.liars:
                wait_ns = self.nodes[receiver].on_told(now_ns, message)
                self.engine.at(now_ns + wait_ns, self._say, receiver)
            case Told(offered=offered):
                self._claims[receiver] |= offered
            case Wish(index):
                self._serve(receiver, sender, index)
            case Chunk() if receiver not in self.liars:
                life = self.nodes[receiver]
                life.on_chunk(now_ns, sender, message)
                if life.fetch.complete:
                    self.whole_ns.setdefault(receiver, now_ns)
            case _:
                pass  # to a liar

    def _say(self, node: int) -> None:
        if not self.nodes[node].fetch.complete:
            self.nodes[node].say(self.engine.now_ns)

    def _serve(self, node: int, peer: int, index: int) -> None:
        match self.liars.get(node):
            case "withholder":
                self._send_chunk(node, peer, index, None)
            case "staller":
                late_ns = self.engine.now_ns + STALL_NS
                self.engine.at(late_ns, self._send_chunk, node, peer, index, None)
            case "babbler":
                garbage = self._streams.bytes(f"garbage {node} {index}", len(self.chunks[index]))
                self._send_chunk(node, peer, index, garbage)
            case _ if node == AUTHOR:
                self._send_chunk(node, peer, index, self.chunks[index])
            case _:
                self._send_chunk(node, peer, index, self.nodes[node].held.get(index))

    def _send_chunk(self, node: int, peer: int, index: int, payload: bytes | None) -> None:
        """Behind what its access link sends already."""
        size_bytes = len(payload or b"")
        leaves_ns = max(self._busy_ns[node], self.engine.now_ns)
        leaves_ns += size_bytes * 8 * NS // self._up_bits_s[node]
        self._busy_ns[node] = leaves_ns
        self.sent_bytes[node] += size_bytes
        self.engine.at(leaves_ns, self._chunk_leaves, node, peer, index, payload)

    def _chunk_leaves(self, node: int, peer: int, index: int, payload: bytes | None) -> None:
        self.wires.send(node, peer, answer(index, payload))
        if node == AUTHOR:
            self.spread.sent(name_of(peer), (index,), self.engine.now_ns / NS)

    @property
    def ratio(self) -> float:
        """Bytes of chunks that the author sent, over the size of the blob."""
        return self.sent_bytes[AUTHOR] / self.manifest.size_bytes


def run_upload(scenario: Scenario, trace: Trace) -> Outcome:
    """Raises UserError for faults and adversaries that this work does not have."""
    began = Stopwatch()
    world = Upload(scenario, trace)
    world.run()
    limit_ns = int(min(scenario.checks.heal_s, scenario.duration_s) * NS)
    honest = [node for node in range(1, scenario.node_count) if node not in world.liars]
    late = [node for node in honest if world.whole_ns.get(node, limit_ns + 1) > limit_ns]
    accused = {peer for life in world.nodes.values() for peer in life.accused}
    wrongly = sorted(accused - world.liars.keys())
    most = RATIO_MAX + len(world.liars)
    many = [f"{world.ratio:.2f} times"] if world.ratio > most else []
    verdicts = (
        nothing(EVERYBODY, [f"{len(late)} are not, node {node} say" for node in late[:1]]),
        nothing(HONEST, [f"node {node}" for node in wrongly[:1]]),
        nothing(ONCE, many),
    )
    for verdict in verdicts:
        if not verdict.ok:
            trace.note(world.wires.end_ns, BROKEN, name=verdict.name, detail=verdict.detail)
    whole_ns = sorted(world.whole_ns.values())
    relayed = max((world.sent_bytes[node] for node in honest), default=0)
    size_bytes = world.manifest.size_bytes
    return began.outcome(
        scenario,
        trace,
        world.engine.now_ns / NS,
        (world.manifest.root.hex(),) if not late else (),
        verdicts,
        Counter({"wrong chunk refused": sum(len(n.accused) for n in world.nodes.values())}),
        {
            "blob_bytes": size_bytes,
            "author_sent_over_size": round(world.ratio, 4),
            "most_relayed_over_size": round(relayed / size_bytes, 4),
            "whole_ms_p50": percentile_ms(whole_ns, 50),
            "whole_ms_last": percentile_ms(whole_ns, 100),
            "opened": sum(life.opened for life in world.nodes.values()),
            "events": world.engine.events,
        },
    )
