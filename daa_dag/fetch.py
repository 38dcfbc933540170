"""Fetch one blob chunk by chunk from peers that may lie, stall, leave or hold only a part.

Pure: events go in, effects come out. It reads no clock and opens no stream; the shell tells it who
answers too slowly. Chunks with one digest are one piece, fetched once, named by its first index.

    WANTED --Ask--> ASKED --good chunk--> HELD
      ^               |
      +---------------+  bad chunk, not there, peer left; unless another peer was asked as well

Rarest pieces first; among equals the order starts where the caller says, or is the caller's own, so
that nodes which fetch the same blob at the same time need not all ask alike. A peer that lags is
asked for nothing new, and what it owes is asked of a second peer too, once nothing else is wanted:
the end never waits for the slowest; nor for two, as others are asked where both say nothing. A
peer's window of bytes starts small and grows with what it delivers.

Whoever spreads the blob (see spread) has all of it and offers each fetcher its own part. It is
asked for that part, and after all others that have a piece; it learns which pieces are orphans:
those that nobody else is trusted to bring.

Invariants, checked after every step:
  * a piece is in exactly one of the three states;
  * no peer owes more than WINDOW_BYTES_MAX bytes or PIECES_PER_PEER_MAX pieces;
  * only bytes whose digest the manifest names are ever held.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import assert_never

from daa_dag.chunking import CHUNK_BYTES_MAX, Manifest
from daa_dag.errors import Malformed
from daa_dag.ids import NodeId, digest_of

# Two frames of four chunks: the next is under way while one is being written.
WINDOW_BYTES_START = 8 * CHUNK_BYTES_MAX
# Fills 640 Mbit/s at 100 ms of round trip; more would let a slow peer hoard work.
WINDOW_BYTES_MAX = 32 * CHUNK_BYTES_MAX
# Tensors of a few bytes each are chunks too: a window of them must not be 10^5 asks.
PIECES_PER_PEER_MAX = 256
# Where others fetch the same, each owes few: one that claims to have all must not be asked for all.
# Full chunks are a window then, which a long fat link needs.
PIECES_PER_RELAY_MAX = 32
# Servers check what they send, so one wrong chunk is a broken memory and two are a liar.
LIES_MAX = 2
# A piece is owed by one peer, and by a second one when the first lags; then by one that spreads it.
ASKED_OF_MAX = 2
ASKED_OF_SILENT_MAX = 8  # where all of them lag, of one that never did: two may lie together
# Who has at most one in so many pieces, and no more than this, is looked at piece by piece; for who
# has more the order of all is walked.
FEW_TIMES, FEW_MAX = 8, 1024


@dataclass(frozen=True, slots=True)
class PeerJoined:
    """The peer serves these chunk indices of the blob; None: all of them.

    `spreads`: they are what it offers us of a blob that it has whole.
    """

    peer: NodeId
    have: frozenset[int] | None = None
    spreads: bool = False


@dataclass(frozen=True, slots=True)
class PeerGained:
    """The peer serves these as well by now; None: all of them."""

    peer: NodeId
    have: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class PeerLacks:
    """Who said that the peer serves these is not believed any more. It may gain them later."""

    peer: NodeId
    indices: frozenset[int]


@dataclass(frozen=True, slots=True)
class ChunkArrived:
    """The peer answered our ask for chunk `index` with `payload`, which may be anything."""

    peer: NodeId
    index: int
    payload: bytes | memoryview


@dataclass(frozen=True, slots=True)
class ChunkMissing:
    """The peer answered that it does not have chunk `index`."""

    peer: NodeId
    index: int


@dataclass(frozen=True, slots=True)
class PeerLagging:
    """The peer owes us something and has been silent for longer than the shell's patience."""

    peer: NodeId


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """The peer disconnected, refused the blob, or its deadline passed."""

    peer: NodeId


Event = PeerJoined | PeerGained | PeerLacks | ChunkArrived | ChunkMissing | PeerLagging | PeerLeft


@dataclass(frozen=True, slots=True)
class Ask:
    peer: NodeId
    index: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep this verified payload as every one of these chunks."""

    indices: tuple[int, ...]
    payload: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Accuse:
    """The peer's answer for chunk `index` did not match its digest."""

    peer: NodeId
    index: int


@dataclass(frozen=True, slots=True)
class Ban:
    """The peer lied too often; it has been forgotten as if it had left."""

    peer: NodeId


@dataclass(frozen=True, slots=True)
class Complete:
    pass


Effect = Ask | Hold | Accuse | Ban | Complete


@dataclass(slots=True)
class _Standing:
    joined: int  # ties are broken by who came first: a replay asks alike
    have: set[int] | None  # pieces; None: all
    spreads: bool = False
    owed: dict[int, None] = field(default_factory=dict)  # oldest first
    owed_bytes: int = 0
    window_bytes: int = WINDOW_BYTES_START
    lacks: set[int] = field(default_factory=set)
    lies: int = 0
    lags: int = 0
    lagging: bool = False
    cursor: int = 0  # before it, the order holds nothing to ask this peer for, `again` aside
    # What it has, and may still be asked for, where that is little: many are named that have less.
    few: set[int] | None = field(default_factory=set)
    brought: int = 0  # pieces

    def has(self, piece: int) -> bool:
        return piece not in self.lacks and (self.have is None or piece in self.have)

    def lack(self, pieces: Set[int]) -> None:
        self.lacks |= pieces
        if self.few is not None:
            self.few -= pieces

    def owed_max(self, most: int) -> int:
        """Pieces, of `most` that anybody may: a relay more with each that it has brought."""
        is_relay = most != PIECES_PER_PEER_MAX and not self.spreads
        return min(most, 1 + self.brought) if is_relay else most

    def rank(self) -> tuple[int, int, bool, int]:
        return (self.lies, self.lags, self.spreads, self.joined)

    @property
    def is_trusted(self) -> bool:
        """To bring what it has soon, without costing whoever spreads the blob a thing."""
        return not (self.spreads or self.lies or self.lags)


class Fetch:
    """One blob being fetched. Feed events to step(); carry out the effects in order."""

    def __init__(
        self,
        manifest: Manifest,
        missing: Iterable[int],
        first: int = 0,
        place_of: Callable[[int], bytes] | None = None,
    ) -> None:
        """`missing`: chunk indices not held yet. `first`: any integer; where equals start.

        `place_of` gives each index its place among equals instead, as drawn by chance, where many
        fetch the same from each other.
        Raises Malformed when the manifest gives one digest two sizes: nothing could satisfy both.
        """
        self._manifest = manifest
        self._piece_of = _pieces_of(manifest)  # [chunk index] -> piece
        self._indices: dict[int, list[int]] = {}  # piece -> its missing chunks
        for index in missing:
            self._indices.setdefault(self._piece_of[index], []).append(index)
        self._total = len(self._indices)
        self._wanted: set[int] = set(self._indices)
        # Wanted pieces that were asked before: they go first, in the order of these numbers.
        self._again: dict[int, int] = {}
        self._given_back = 0
        self._asked: dict[int, list[NodeId]] = {}
        self._held_count = 0
        self._peers: dict[NodeId, _Standing] = {}
        self._joined_count = 0
        pieces = sorted(self._indices, key=place_of)
        start = first % len(pieces) if pieces and place_of is None else 0
        self._natural = pieces[start:] + pieces[:start]
        self._order = self._natural
        self._place = {piece: place for place, piece in enumerate(self._order)}
        self._pieces_max = PIECES_PER_PEER_MAX if place_of is None else PIECES_PER_RELAY_MAX
        self._rarity = dict.fromkeys(self._natural, 0)  # peers that have a piece, but not all
        self._is_sorted = True

    @property
    def complete(self) -> bool:
        return self._held_count == self._total

    @property
    def starved(self) -> bool:
        """Nobody who is here can give what is still wanted."""
        return not self.complete and not any(p.owed for p in self._peers.values())

    def orphans(self, most: int) -> list[int]:
        """The rarest wanted pieces that only who spreads them can be trusted to bring."""
        trusted = [p for p in self._peers.values() if p.is_trusted]
        found: list[int] = []
        for piece in self._order:
            askers = self._asked.get(piece)
            is_late = askers is not None and all(self._peers[peer].lagging for peer in askers)
            if piece not in self._wanted and not is_late:
                continue
            if not any(standing.has(piece) for standing in trusted):
                found.append(piece)
                if len(found) >= most:
                    break
        return found

    def owes(self, peer: NodeId) -> bool:
        """Whether an answer of this peer is due."""
        standing = self._peers.get(peer)
        return standing is not None and bool(standing.owed)

    def step(self, *events: Event) -> list[Effect]:
        """What is asked next is looked for once, however many things happened."""
        if self.complete or not events:
            return []
        effects: list[Effect] = []
        for event in events:
            match event:
                case PeerJoined(peer, have, spreads):
                    self._on_joined(peer, have, spreads)
                case PeerGained(peer, have):
                    self._on_gained(peer, have)
                case PeerLacks(peer, indices):
                    standing = self._peers.get(peer)
                    if standing is not None and standing.have is not None:
                        standing.lack(_among(self._piece_of, indices))
                case ChunkArrived(peer, index, payload):
                    effects += self._on_answer(peer, self._piece_of[index], payload)
                case ChunkMissing(peer, index):
                    self._on_missing(peer, self._piece_of[index])
                case PeerLagging(peer):
                    self._on_lagging(peer)
                case PeerLeft(peer):
                    self._forget(peer)
                case _:
                    assert_never(event)
        effects += [Complete()] if self.complete else self._next_asks()
        self._check_invariants()
        return effects

    def _on_joined(self, peer: NodeId, have: frozenset[int] | None, spreads: bool) -> None:
        if peer in self._peers:
            return
        self._peers[peer] = _Standing(self._joined_count, set(), spreads)
        self._joined_count += 1
        self._on_gained(peer, have)

    def _on_gained(self, peer: NodeId, have: frozenset[int] | None) -> None:
        standing = self._peers.get(peer)
        if standing is None:
            return
        if have is None:
            if standing.have is not None:
                self._count(standing.have, -1)
                standing.have, standing.few, standing.cursor = None, None, 0
                standing.lacks.clear()
            return
        told = _among(self._piece_of, have)
        back = told & standing.lacks
        gained = told - standing.have if standing.have is not None else set[int]()
        if not (gained or back):
            return
        standing.cursor = 0
        standing.lacks -= back
        if standing.have is not None:
            standing.have |= gained
            self._count(gained, 1)
        if standing.few is not None:
            standing.few |= gained | back
            if len(standing.few) > min(FEW_MAX, len(self._order) // FEW_TIMES):
                standing.few = None

    def _count(self, pieces: Iterable[int], more: int) -> None:
        """So many more peers have these pieces, and not all."""
        for piece in pieces:
            if piece in self._rarity:
                self._rarity[piece] += more
                self._is_sorted = False

    def _on_answer(self, peer: NodeId, piece: int, payload: bytes | memoryview) -> list[Effect]:
        if not self._settle(peer, piece):
            return []  # not owed: it was forgotten while the answer was under way
        standing = self._peers[peer]
        standing.lagging = False
        if piece not in self._asked:
            return []  # the second of two who were asked: no need to look at it
        if digest_of(payload) == self._manifest.digests[piece]:
            del self._asked[piece]
            self._held_count += 1
            size_bytes = self._manifest.sizes[piece]
            standing.window_bytes = min(standing.window_bytes + size_bytes, WINDOW_BYTES_MAX)
            standing.brought += 1
            return [Hold(tuple(self._indices[piece]), payload)]
        self._give_back(peer, piece)
        standing.lies += 1
        accusation = Accuse(peer, piece)
        if standing.lies < LIES_MAX:
            return [accusation]
        self._forget(peer)
        return [accusation, Ban(peer)]

    def _on_missing(self, peer: NodeId, piece: int) -> None:
        if self._settle(peer, piece):
            self._peers[peer].lagging = False
            self._peers[peer].lack({piece})
            self._give_back(peer, piece)

    def _on_lagging(self, peer: NodeId) -> None:
        standing = self._peers.get(peer)
        if standing is None or not standing.owed or standing.lagging:
            return
        standing.lagging = True
        standing.lags += 1
        standing.window_bytes = CHUNK_BYTES_MAX

    def _forget(self, peer: NodeId) -> None:
        standing = self._peers.pop(peer, None)
        if standing is None:
            return
        for piece in standing.owed:
            self._give_back(peer, piece)
        self._count(standing.have or (), -1)

    def _settle(self, peer: NodeId, piece: int) -> bool:
        """Take `piece` off what `peer` owes; False when it does not owe it."""
        standing = self._peers.get(peer)
        if standing is None or piece not in standing.owed:
            return False
        del standing.owed[piece]
        standing.owed_bytes -= self._manifest.sizes[piece]
        return True

    def _give_back(self, peer: NodeId, piece: int) -> None:
        """`peer` will not bring this piece: it is wanted again, unless another peer owes it too."""
        askers = self._asked.get(piece)
        if askers is None:
            return  # held by now
        askers.remove(peer)
        if not askers:
            del self._asked[piece]
            self._wanted.add(piece)
            self._given_back += 1
            self._again[piece] = self._given_back
            for standing in self._peers.values():
                if standing.few is not None and standing.has(piece):
                    standing.few.add(piece)

    def _sort_by_rarity(self) -> None:
        """Order by the number of peers that serve a piece; whoever serves all changes nothing."""
        if self._is_sorted:
            return
        # sorting is stable: equals keep the natural order
        self._order = sorted(self._natural, key=self._rarity.__getitem__)
        self._place = {piece: place for place, piece in enumerate(self._order)}
        self._is_sorted = True
        for standing in self._peers.values():
            standing.cursor = 0

    def _next_asks(self) -> list[Effect]:
        asks: list[Effect] = []
        self._sort_by_rarity()
        eager = [(p.rank(), peer) for peer, p in self._peers.items() if not p.lagging]
        # Listed once: for each of a hundred peers anew, a look would be ten thousand steps.
        silent = {peer for peer, p in self._peers.items() if p.lagging}
        lagging = [p for p in self._peers.values() if p.lagging]
        not_spreading = [p for p in self._peers.values() if p.lagging or not p.spreads]
        for _, peer in sorted(eager):
            standing = self._peers[peer]
            pieces_max = standing.owed_max(self._pieces_max)
            if len(standing.owed) >= pieces_max or standing.owed_bytes >= standing.window_bytes:
                continue
            slower = not_spreading if standing.spreads else lagging
            for pieces in (self._fresh(standing), self._hedges(peer, slower, silent)):
                for piece in pieces:
                    size_bytes = self._manifest.sizes[piece]
                    full = standing.owed_bytes + size_bytes > standing.window_bytes
                    if standing.owed and (full or len(standing.owed) >= pieces_max):
                        break
                    self._wanted.discard(piece)
                    self._again.pop(piece, None)
                    self._asked.setdefault(piece, []).append(peer)
                    standing.owed[piece] = None
                    standing.owed_bytes += size_bytes
                    asks.append(Ask(peer, piece))
        return asks

    def _fresh(self, standing: _Standing) -> Iterator[int]:
        """Wanted pieces that this peer has, in order. What is not taken stays for the next time."""
        if standing.few is not None:
            standing.few &= self._wanted
            never = self._given_back + 1
            yield from sorted(
                standing.few, key=lambda piece: (self._again.get(piece, never), self._place[piece])
            )
            return
        for piece in list(self._again):
            if standing.has(piece):
                yield piece
        while standing.cursor < len(self._order):
            piece = self._order[standing.cursor]
            if piece in self._wanted and piece not in self._again and standing.has(piece):
                yield piece  # if it is not taken we are not resumed, and the cursor stays
            standing.cursor += 1

    def _hedges(
        self, peer: NodeId, slower: Iterable[_Standing], silent: Set[NodeId]
    ) -> Iterator[int]:
        """What `slower` peers owe and this one has, once nothing else is left to ask it for.

        Of one that spreads the blob what any relay owes: it offers no more than its link takes, and
        what it offers in vain keeps it from offering others.
        """
        standing = self._peers[peer]
        for slow in slower:
            for piece in slow.owed:
                askers = self._asked.get(piece, [peer])  # held by now: nobody needs it
                # one that spreads it is the last resort, where both of two lie
                most = ASKED_OF_MAX + (standing.spreads and slow.lagging)
                if standing.is_trusted and all(p in silent for p in askers):
                    most = ASKED_OF_SILENT_MAX
                if peer not in askers and len(askers) < most and standing.has(piece):
                    yield piece

    def _check_invariants(self) -> None:
        assert len(self._wanted) + len(self._asked) + self._held_count == self._total
        assert len(self._again) <= len(self._wanted)
        for standing in self._peers.values():
            assert standing.owed_bytes <= WINDOW_BYTES_MAX
            assert len(standing.owed) <= PIECES_PER_PEER_MAX


def _among(piece_of: Sequence[int], indices: Iterable[int]) -> set[int]:
    """Their pieces; others may say anything."""
    return {piece_of[index] for index in indices if index < len(piece_of)}


def _pieces_of(manifest: Manifest) -> list[int]:
    """[chunk index] -> the first index with that digest. Raises Malformed."""
    first_of: dict[bytes, int] = {}
    pieces = []
    for index, digest in enumerate(manifest.digests):
        piece = first_of.setdefault(digest, index)
        if manifest.sizes[piece] != manifest.sizes[index]:
            raise Malformed(f"chunks {piece} and {index} have one digest and two sizes")
        pieces.append(piece)
    return pieces
