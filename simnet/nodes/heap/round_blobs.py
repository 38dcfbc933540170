"""Blobs of whole rounds on their way: contributions to the validators, deltas to everybody.

Each receiver runs daa_dag's fetch machine among some peers, which pass on what they hold. Chunks
are a few real bytes whose digests are checked, and weigh on the links what they stand for.

A shipment is forgotten, with all that nodes know of it, when its round is over.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from daa_dag.chunking import Manifest
from daa_dag.ids import digest_of
from simnet.nodes.heap.fetch_node import Announce, Answer, Disk, FetchNode, Request
from simnet.nodes.heap.fetch_node import Message as Word
from simnet.nodes.heap.gossip_core import key_of
from simnet.nodes.heap.round_messages import Freight, Message
from simnet.nodes.heap.wires import Wires
from simnet.world.determinism import Streams
from simnet.world.links import NS

TICK_NS = NS // 2  # how often a node looks who is silent, and announces
STAND_IN_BYTES = 16  # of a chunk


@dataclass(frozen=True, slots=True)
class Blob:
    """What is shipped; `number` names it on the wires."""

    number: int
    manifest: Manifest
    chunks: tuple[bytes, ...]
    keys: tuple[int, ...]
    chunk_bytes: int

    @property
    def size_bytes(self) -> int:
        return len(self.chunks) * self.chunk_bytes


@dataclass(slots=True)
class Shipment:
    """One blob, and how far every node has come with it."""

    blob: Blob
    origin: int | None  # who has made it; None: many have
    disks: dict[int, Disk] = field(default_factory=dict)
    fetching: dict[int, FetchNode] = field(default_factory=dict)
    peers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sent_bytes: int = 0  # of chunks, by its origin

    def has_whole(self, node: int) -> bool:
        disk = self.disks.get(node)
        return disk is not None and len(disk.held) == len(self.blob.chunks)


class Shipments:
    """All blobs that are under way in one world."""

    def __init__(
        self,
        wires: Wires[Message],
        streams: Streams,
        on_whole: Callable[[int, int], None],
    ) -> None:
        """`on_whole(node, number)` is told once a node has all of a blob that it fetches."""
        self._wires = wires
        self._streams = streams.below("blobs")
        self._chance = self._streams.random("first chunks")
        self._on_whole = on_whole
        self._numbers = 0
        self._under_way: dict[int, Shipment] = {}

    def made(self, chunk_count: int, chunk_bytes: int, origin: int | None) -> int:
        """A new blob, by its number."""
        self._numbers += 1
        number = self._numbers
        drawn = self._streams.bytes(f"chunks {number}", STAND_IN_BYTES * chunk_count)
        chunks = tuple(
            drawn[at : at + STAND_IN_BYTES] for at in range(0, len(drawn), STAND_IN_BYTES)
        )
        manifest = Manifest((chunk_bytes,) * chunk_count, tuple(map(digest_of, chunks)))
        keys = tuple(key_of(b"answer", chunk) for chunk in chunks)
        self._under_way[number] = Shipment(
            Blob(number, manifest, chunks, keys, chunk_bytes), origin
        )
        if origin is not None:
            self.give(origin, number)
        return number

    def find(self, number: int) -> Shipment | None:
        return self._under_way.get(number)

    def give(self, node: int, number: int) -> None:
        """The node has made the blob itself."""
        shipment = self._under_way[number]
        shipment.fetching.pop(node, None)
        shipment.disks[node] = Disk(dict(enumerate(shipment.blob.chunks)))

    def fetch(self, node: int, number: int, peers: Iterable[int]) -> None:
        """Begin to get it from these, and to pass on to them what is here."""
        shipment = self._under_way.get(number)
        if shipment is None or node in shipment.peers:
            return
        disk = shipment.disks.setdefault(node, Disk())
        first = self._chance.randrange(len(shipment.blob.chunks))

        def send(peer: int, word: Word) -> None:
            if isinstance(word, Announce) and not word.have and not word.hello:
                return  # nobody needs to hear that there is nothing
            self._send(shipment, node, peer, word)

        fetcher = FetchNode(shipment.blob.manifest, disk, first, send)
        shipment.fetching[node] = fetcher
        shipment.peers[node] = tuple(sorted(set(peers) - {node}))
        fetcher.hello(self._wires.engine.now_ns, shipment.peers[node])
        self._wires.alarm(
            self._wires.engine.now_ns + TICK_NS, node, self._tick, node, number, fetcher
        )
        if fetcher.fetch.complete:  # it lay on the disk when the node came back
            self._on_whole(node, number)

    def share(self, node: int, number: int, peers: Iterable[int]) -> None:
        """Tell these that it is whole here: who wants it asks."""
        shipment = self._under_way[number]
        chunk_count = len(shipment.blob.chunks)
        everything = Announce(frozenset(range(chunk_count)), chunk_count)
        for peer in peers:
            self._send(shipment, node, peer, everything)

    def deal(self, node: int, number: int, receivers: Sequence[int]) -> None:
        """Offer each chunk to one of these only, who pass it on: so it leaves here about once."""
        shipment = self._under_way[number]
        chunk_count = len(shipment.blob.chunks)
        for at, receiver in enumerate(receivers):
            part = frozenset(range(at, chunk_count, len(receivers)))
            if part:
                self._send(shipment, node, receiver, Announce(part, chunk_count))

    def complain(self, node: int, number: int) -> None:
        """Whoever still lacks a part asks its origin for all that there is."""
        shipment = self._under_way.get(number)
        fetcher = None if shipment is None else shipment.fetching.get(node)
        if shipment is None or fetcher is None or shipment.origin is None:
            return
        if not fetcher.fetch.complete:
            fetcher.hello(self._wires.engine.now_ns, (shipment.origin,))

    def on_freight(self, sender: int, receiver: int, freight: Freight) -> None:
        """A word about a blob has arrived; of one that is forgotten nothing is answered."""
        shipment = self._under_way.get(freight.blob)
        if shipment is None:
            return
        now_ns, fetcher = self._wires.engine.now_ns, shipment.fetching.get(receiver)
        match freight.word:
            case Request(index):
                self._answer(shipment, receiver, sender, index)
            case Announce() as announce:
                if fetcher is not None:
                    fetcher.on_announce(now_ns, sender, announce)
                elif announce.hello and shipment.has_whole(receiver):
                    self.share(receiver, freight.blob, (sender,))
            case Answer() as answer:
                if fetcher is not None:
                    was_whole = fetcher.fetch.complete
                    fetcher.on_answer(now_ns, sender, answer)
                    if fetcher.fetch.complete and not was_whole:
                        self._on_whole(receiver, freight.blob)

    def forget(self, number: int) -> Shipment | None:
        return self._under_way.pop(number, None)

    def node_died(self, node: int) -> None:
        """What it was doing is over; its disk stays."""
        for shipment in self._under_way.values():
            shipment.fetching.pop(node, None)
            shipment.peers.pop(node, None)

    @property
    def kept(self) -> int:
        """How many disks and fetches of nodes are kept, of all blobs."""
        return sum(
            1 + len(shipment.disks) + len(shipment.fetching)
            for shipment in self._under_way.values()
        )

    def _tick(self, node: int, number: int, fetcher: FetchNode) -> None:
        shipment = self._under_way.get(number)
        if shipment is None or shipment.fetching.get(node) is not fetcher:
            return
        now_ns = self._wires.engine.now_ns
        if fetcher.on_tick(now_ns, shipment.peers[node]):
            self._wires.alarm(now_ns + TICK_NS, node, self._tick, node, number, fetcher)

    def _answer(self, shipment: Shipment, node: int, peer: int, index: int) -> None:
        disk, blob = shipment.disks.get(node), shipment.blob
        if disk is None or index not in disk.held:
            self._send(shipment, node, peer, Answer(index, None, key_of(b"missing", b"%d" % index)))
            return
        if node == shipment.origin:
            shipment.sent_bytes += blob.chunk_bytes
        self._send(shipment, node, peer, Answer(index, disk.held[index], blob.keys[index]))

    def _send(self, shipment: Shipment, node: int, peer: int, word: Word) -> None:
        self._wires.send(node, peer, Freight(shipment.blob.number, word, shipment.blob.chunk_bytes))
