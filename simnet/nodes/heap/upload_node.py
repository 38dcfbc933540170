"""One node that fetches what an author spreads: the daemon's two machines, and their shell.

As network/blob_exchange has it: the author is told what came so far, and tells what to ask it for
and what others have; these are asked for the rest. Who is silent lags, and where nothing comes for
a while the author lends more than it offers, and in the end everything (see network.stall).
"""

from collections.abc import Callable
from dataclasses import dataclass

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
    PeerGained,
    PeerJoined,
    PeerLagging,
)
from daa_dag.ids import NodeId
from daa_dag.spread import ORPHANS_MAX, Patience, indices_of, shuffled
from daa_node.network.blob_source import SHARE_WAIT_CHUNK_S, SHARE_WAIT_S, SHARE_WAIT_S_MAX
from daa_node.network.stall import Stall
from simnet.nodes.heap.fetch_node import name_of, number_of
from simnet.nodes.heap.gossip_core import HEADER_BYTES, key_of
from simnet.world.links import NS

AUTHOR = 0
LOOK_EVERY_NS = NS // 2  # at who is silent, as the daemon does


@dataclass(slots=True)
class Share:
    """To the author: what is here, what nobody else can bring, and up to where it was heard."""

    have: int
    orphans: tuple[int, ...]
    heard: int
    size_bytes: int
    key: int


@dataclass(slots=True)
class Told:
    """From the author."""

    news: int
    offered: int
    holders: tuple[tuple[NodeId, int], ...]
    size_bytes: int
    key: int


@dataclass(slots=True)
class Wish:
    """Send me this chunk."""

    index: int
    size_bytes: int
    key: int


@dataclass(slots=True)
class Chunk:
    """It, or that it is not here: None."""

    index: int
    payload: bytes | None
    size_bytes: int
    key: int


Message = Share | Told | Wish | Chunk
Send = Callable[[int, Message], None]


def share(have: int, orphans: tuple[int, ...], heard: int, chunk_count: int) -> Share:
    words = b"%d %d " % (have, heard) + b" ".join(b"%d" % index for index in orphans)
    size_bytes = HEADER_BYTES + (chunk_count + 7) // 8 + 3 * len(orphans)
    return Share(have, orphans, heard, size_bytes, key_of(b"share", words))


def told(
    news: int, offered: int, holders: tuple[tuple[NodeId, int], ...], chunk_count: int
) -> Told:
    words = b"%d %d " % (news, offered) + b" ".join(n + b"%d" % mask for n, mask in holders)
    size_bytes = HEADER_BYTES + (chunk_count + 7) // 8 * (1 + len(holders)) + 40 * len(holders)
    return Told(news, offered, holders, size_bytes, key_of(b"told", words))


def ask(index: int) -> Wish:
    return Wish(index, HEADER_BYTES, key_of(b"ask", b"%d" % index))


def answer(index: int, payload: bytes | None) -> Chunk:
    key = key_of(b"chunk", b"%d " % index + (payload or b"-"))
    return Chunk(index, payload, HEADER_BYTES + len(payload or b""), key)


class UploadNode:
    """One receiver, from its first word on."""

    def __init__(self, manifest: Manifest, salt: bytes, send: Send) -> None:
        self.fetch = Fetch(manifest, range(len(manifest.sizes)), 0, shuffled(salt))
        self.held: dict[int, bytes] = {}
        self.accused: list[int] = []
        self.opened = False
        self._manifest = manifest
        self._send = send
        self._have = 0
        self._heard = 0
        self._wait_ns = int(SHARE_WAIT_S * NS)
        most_s = SHARE_WAIT_S_MAX + SHARE_WAIT_CHUNK_S * len(manifest.sizes)
        self._wait_ns_max = int(most_s * NS)
        self._patience = Patience()
        self._asked_ns: dict[tuple[int, int], int] = {}  # (peer, chunk) -> since when
        self._silent_ns: dict[int, int] = {}  # peer -> since when it lets us wait
        self._stall = Stall()
        self._banned: set[NodeId] = set()

    def begin(self, now_ns: int) -> None:
        self._stall.begin(now_ns / NS)
        self._stall.note_offers(now_ns / NS)
        self._step(now_ns, PeerJoined(name_of(AUTHOR), frozenset(), spreads=True))
        self.say(now_ns)

    def say(self, now_ns: int) -> None:
        """What is here by now."""
        orphans = tuple(self.fetch.orphans(ORPHANS_MAX))
        self._send(AUTHOR, share(self._have, orphans, self._heard, len(self._manifest.sizes)))

    def on_told(self, now_ns: int, news: Told) -> int:
        """In how many ns to say again what is here."""
        is_new = news.news > self._heard or news.offered
        self._heard = max(self._heard, news.news)
        self._wait_ns = int(SHARE_WAIT_S * NS) if is_new else 2 * self._wait_ns
        self._wait_ns = min(self._wait_ns, self._wait_ns_max)
        offered = frozenset(indices_of(news.offered))
        self._step(now_ns, PeerGained(name_of(AUTHOR), offered))
        for name, mask in news.holders:
            if name not in self._banned:
                self._step(now_ns, PeerJoined(name, frozenset()))
                self._step(now_ns, PeerGained(name, frozenset(indices_of(mask))))
        return self._wait_ns

    def on_chunk(self, now_ns: int, peer: int, chunk: Chunk) -> None:
        name = name_of(peer)
        since_ns = self._asked_ns.pop((peer, chunk.index), None)
        self._silent_ns[peer] = now_ns
        if since_ns is None or name in self._banned:
            return
        if chunk.payload is None:
            self._step(now_ns, ChunkMissing(name, chunk.index))
            return
        self._patience.took((now_ns - since_ns) / NS)
        self._stall.note_chunk(name, set() if peer == AUTHOR else {name}, now_ns / NS)
        self._step(now_ns, ChunkArrived(name, chunk.index, chunk.payload))

    def look(self, now_ns: int) -> None:
        """Who is silent, and whether anything comes at all."""
        if not self.opened and self._stall.is_due(now_ns / NS, self._patience.limit_s):
            count = self._stall.lend()
            self.opened = count > len(self._manifest.sizes) // 2
            lent = None if self.opened else frozenset(self.fetch.orphans(count))
            self._step(now_ns, PeerGained(name_of(AUTHOR), lent))
        limit_ns = int(self._patience.limit_s * NS)
        for peer, since_ns in sorted(self._silent_ns.items()):
            if now_ns - since_ns > limit_ns and self.fetch.owes(name_of(peer)):
                self._step(now_ns, PeerLagging(name_of(peer)))

    def _step(self, now_ns: int, event: Event) -> None:
        for effect in self.fetch.step(event):
            match effect:
                case Ask(name, index):
                    peer = number_of(name)
                    if not any(owing == peer for owing, _ in self._asked_ns):
                        self._silent_ns[peer] = now_ns
                    self._asked_ns[peer, index] = now_ns
                    self._send(peer, ask(index))
                case Hold(indices, payload):
                    self._wait_ns = int(SHARE_WAIT_S * NS)
                    for index in indices:
                        self.held[index] = bytes(payload)
                        self._have |= 1 << index
                case Accuse(name):
                    self.accused.append(number_of(name))
                case Ban(name):
                    self._banned.add(name)
                case Complete():
                    self.say(now_ns)
