"""One node that fetches a checkpoint from its mesh peers: daa_dag's machine, and its shell.

Peers announce which chunks they hold, when they come up and while that grows. The machine takes
what a peer has as fixed, so a peer that owes nothing leaves and joins anew with what it has now;
one that owes does so once it has answered. Chunks that were checked are on disk: a node that died
goes on with what is missing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from daa_dag.chunking import Manifest
from daa_dag.fetch import (
    Accuse,
    Ask,
    Ban,
    ChunkArrived,
    ChunkMissing,
    Complete,
    Event,
    Fetch,
    Hold,
    PeerJoined,
    PeerLagging,
    PeerLeft,
)
from daa_dag.ids import NodeId
from daa_node.network.blob_exchange import PATIENCE_S
from daa_node.network.session_pool import BULK_ANSWER_TIMEOUT_S
from simnet.nodes.heap.gossip_core import HEADER_BYTES, key_of
from simnet.world.links import NS

ANNOUNCE_AGAIN_NS = 10 * NS  # to peers that lack something: a cut may have swallowed the last one


@dataclass(slots=True)
class Announce:
    """The sender holds these chunks. `hello`: it has just come up, and would hear the same."""

    have: frozenset[int]
    chunk_count: int
    hello: bool = False
    key: int = field(init=False)
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        bits = sum(1 << index for index in self.have)
        size_bytes = (self.chunk_count + 7) // 8
        self.key = key_of(b"announce %d" % self.hello, bits.to_bytes(size_bytes))
        self.size_bytes = HEADER_BYTES + size_bytes


@dataclass(slots=True)
class Request:
    """Send me this chunk."""

    index: int
    size_bytes: int = HEADER_BYTES
    key: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = key_of(b"request", b"%d" % self.index)


@dataclass(slots=True)
class Answer:
    """A chunk, or that the sender does not have it. `key` is known to whoever has the bytes."""

    index: int
    payload: bytes | None
    key: int
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = HEADER_BYTES + len(self.payload or b"")


Message = Announce | Request | Answer
Send = Callable[[int, Message], None]  # to a peer


@dataclass(slots=True)
class Disk:
    """What outlives a death of the process."""

    held: dict[int, bytes] = field(default_factory=dict)
    fetched_again: int = 0  # chunks that came over the wire and were held already


def name_of(node: int) -> NodeId:
    return NodeId(node.to_bytes(4))


def number_of(name: NodeId) -> int:
    return int.from_bytes(name)


class FetchNode:
    """One life of one node. `first` is where it starts among equally rare chunks."""

    def __init__(self, manifest: Manifest, disk: Disk, first: int, send: Send) -> None:
        missing = [index for index in range(len(manifest.sizes)) if index not in disk.held]
        self.fetch = Fetch(manifest, missing, first)
        self.accused: list[int] = []  # peers, once for each wrong chunk
        self.banned: set[int] = set()
        self._manifest = manifest
        self._disk = disk
        self._send = send
        self._known: dict[int, frozenset[int]] = {}  # what each peer announced last
        self._joined: dict[int, frozenset[int]] = {}  # what the machine was told of it
        self._heard_ns: dict[int, int] = {}
        self._announced = -1  # how many chunks the last announcement named
        self._announced_ns = 0

    def on_announce(self, now_ns: int, peer: int, announce: Announce) -> None:
        if peer in self.banned:
            return
        self._known[peer] = announce.have
        if announce.hello:
            self._send(peer, self._announcement(hello=False))
        self._refresh(now_ns, peer)

    def on_answer(self, now_ns: int, peer: int, answer: Answer) -> None:
        if peer in self.banned:
            return
        self._heard_ns[peer] = now_ns
        name = name_of(peer)
        if answer.payload is None:
            self._step(now_ns, ChunkMissing(name, answer.index))
        else:
            self._step(now_ns, ChunkArrived(name, answer.index, answer.payload))
        self._refresh(now_ns, peer)

    def hello(self, now_ns: int, peers: tuple[int, ...]) -> None:
        """It has come up."""
        self._announced_ns, self._announced = now_ns, len(self._disk.held)
        for peer in peers:
            self._send(peer, self._announcement(hello=True))

    def on_tick(self, now_ns: int, peers: tuple[int, ...]) -> bool:
        """Look who is silent, and tell what is new. False: nobody here needs another tick."""
        for peer in sorted(self._joined):
            if self.fetch.owes(name_of(peer)):
                silent_ns = now_ns - self._heard_ns[peer]
                if silent_ns > BULK_ANSWER_TIMEOUT_S * NS:
                    del self._joined[peer]
                    self._step(now_ns, PeerLeft(name_of(peer)))
                elif silent_ns > PATIENCE_S * NS:
                    self._step(now_ns, PeerLagging(name_of(peer)))
        chunk_count, held = len(self._manifest.sizes), len(self._disk.held)
        lacking = [peer for peer in peers if len(self._known.get(peer, ())) < chunk_count]
        overdue = now_ns - self._announced_ns > ANNOUNCE_AGAIN_NS
        if lacking and (held > self._announced or overdue):
            self._announced, self._announced_ns = held, now_ns
            announcement = self._announcement(hello=False)
            for peer in lacking:
                self._send(peer, announcement)
        return bool(lacking) or not self.fetch.complete

    def _announcement(self, hello: bool) -> Announce:
        return Announce(frozenset(self._disk.held), len(self._manifest.sizes), hello)

    def _refresh(self, now_ns: int, peer: int) -> None:
        """Tell the machine of what `peer` has gained, unless it would forget what that owes."""
        name, known = name_of(peer), self._known.get(peer, frozenset())
        if self.fetch.complete or peer in self.banned or self.fetch.owes(name):
            return
        before = self._joined.get(peer)
        if not known or known == before:
            return
        self._heard_ns[peer] = now_ns
        self._joined[peer] = known
        if before is not None:
            self._step(now_ns, PeerLeft(name))
        self._step(now_ns, PeerJoined(name, known))

    def _step(self, now_ns: int, event: Event) -> None:
        for effect in self.fetch.step(event):
            match effect:
                case Ask(name, index):
                    peer = number_of(name)
                    self._heard_ns[peer] = now_ns  # patience begins with what was asked last
                    self._send(peer, Request(index))
                case Hold(indices, payload):
                    self._keep(indices, bytes(payload))
                case Accuse(name):
                    self.accused.append(number_of(name))
                case Ban(name):
                    self.banned.add(number_of(name))
                    self._joined.pop(number_of(name), None)
                case Complete():
                    pass

    def _keep(self, indices: tuple[int, ...], payload: bytes) -> None:
        for index in indices:
            self._disk.fetched_again += index in self._disk.held
            self._disk.held[index] = payload
