"""What a node does so that a blob leaves each holder about once; decisions are daa_dag.spread's.

Whoever fetches a large blob serves the chunks that it has so far (`UnderWay`), and the whole until
that is to be found where it belongs. Whoever has one whole offers each member a part of it and
tells it what others have (`Spreading`). Members report by asking, so nobody is sent what it did not
ask for, and who asks too often waits.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import trio

from daa_dag.chunking import Manifest
from daa_dag.ids import BlobRoot, NodeId
from daa_dag.spread import SPREAD_CHUNKS_MIN, Spread, mask_of
from daa_node.network.pace import PACES_KEPT, Pace
from daa_node.network.session_pool import Source
from daa_node.seams import BlobWriter
from daa_node.wire.blob_messages import Shared, ShareRequest

# What many want at the same time. A boundary is asked for by those that check it.
SPREAD_KINDS = frozenset({"updates", "deltas", "snapshots"})
# And of these who has come late, or lost something: one, or hundreds.
ASKED_BY_CHANCE = frozenset({"snapshots"})

BLOBS_SPREAD_MAX = 128  # of a kind, remembered: a round's, of as many as may vote
# A fetcher that hears nothing new asks six times a second, and a blob brings it news some dozen
# times.
SHARES_PER_S = 50.0
SHARES_AT_ONCE = 200.0
KEPT_MAX = 8  # blobs that we fetched whole, for others that still fetch them
SALT_BYTES = 16  # drawn for each blob

BlobName = tuple[str, BlobRoot]  # kind and root


def is_spread(manifest: Manifest) -> bool:
    """Whether it is worth passing on chunk by chunk."""
    return len(manifest.sizes) >= SPREAD_CHUNKS_MIN


def _twins_in(manifest: Manifest) -> int:
    """Mask of the chunks that come with another, as they are equal."""
    count_of = Counter(manifest.digests)
    return mask_of(i for i, digest in enumerate(manifest.digests) if count_of[digest] > 1)


@dataclass(frozen=True, slots=True)
class Part:
    """A blob that is being fetched: `held` are the chunks that can be read."""

    manifest: Manifest
    writer: BlobWriter
    held: set[int]
    checked: set[int] = field(default_factory=set)  # read again, and still what they were


class UnderWay:
    """The blobs that are being fetched here, to be served as far as they have come.

    And those fetched last: a state is published only when deltas on top of it are replayed.
    """

    def __init__(self) -> None:
        self._parts: dict[BlobName, Part] = {}
        self._kept: dict[BlobName, Part] = {}  # the newest last

    def begin(self, name: BlobName, part: Part) -> None:
        self._parts[name] = part

    def end(self, name: BlobName, part: Part) -> None:
        """It comes to nothing. What is kept is whole, and stays."""
        if self._parts.get(name) is part:
            del self._parts[name]

    def keep(self, name: BlobName, part: Part) -> None:
        """It is whole, but may not lie where we serve from yet; others still lack it."""
        if self._parts.get(name) is part:
            del self._parts[name]
            self._kept[name] = part
            while len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]

    def part(self, name: BlobName) -> Part | None:
        return self._parts.get(name) or self._kept.get(name)

    def forget(self, name: BlobName) -> None:
        """What was kept of it lies there no more."""
        self._kept.pop(name, None)


@dataclass(frozen=True, slots=True)
class Swarm:
    """What a fetcher needs to take chunks from others that fetch the same."""

    under_way: UnderWay
    source_of: Callable[[NodeId], Source | None]  # of members that we have a connection with
    draw: Callable[[], bytes]  # chance


class Spreading:
    """Of one server: every blob that members have asked for a part of."""

    def __init__(
        self,
        receivers: Callable[[], int],
        swarm: Swarm,
        slowness: float = 1.0,
        stakes: Callable[[], Mapping[NodeId, int] | None] = lambda: None,
    ) -> None:
        """`receivers`: how many want what a round brings, about.

        `slowness`: how many times longer than usual a chunk takes. `stakes`: of those who vote,
        whose waits tell how long all wait; not told, everybody's do.
        """
        self._stakes = stakes
        self._slowness = slowness
        self.under_way = swarm.under_way
        self._receivers = receivers
        self._draw = swarm.draw
        # Kind by kind: a chain may have hundreds of deltas, and who asks for parts of all of them
        # would have us forget what is out of an update, and offer the whole of it again.
        self._spreads: dict[str, OrderedDict[BlobRoot, Spread]] = {
            kind: OrderedDict() for kind in SPREAD_KINDS
        }
        self._paces: dict[NodeId, Pace] = {}
        self._sent_bytes: Counter[BlobName] = Counter()  # of chunks

    async def answer(self, peer: NodeId, request: ShareRequest, manifest: Manifest) -> Shared:
        await self._pace_of(peer).take()
        now_s = trio.current_time() / self._slowness
        spreads = self._spreads[request.kind]
        spread = spreads.get(request.root)
        if spread is None or spread.is_over(now_s):
            spread = spreads[request.root] = self._begin(request.kind, manifest)
            while len(spreads) > BLOBS_SPREAD_MAX:
                spreads.popitem(last=False)
        spreads.move_to_end(request.root)
        told = spread.tell(peer, request.have, request.orphans, request.heard, now_s)
        return Shared(told.news, told.offered, told.holders)

    async def part_for(self, peer: NodeId, name: BlobName) -> Part | None:
        """What there is of a blob that is not whole, for one that asks what it may have of it."""
        await self._pace_of(peer).take()
        return self.under_way.part(name)

    def _begin(self, kind: str, manifest: Manifest) -> Spread:
        """A round's blobs are for all members. Who wants a state nobody knows, nor may any vote."""
        count, salt, twins = len(manifest.sizes), self._draw(), _twins_in(manifest)
        if kind in ASKED_BY_CHANCE:
            return Spread(count, None, salt, None, None, twins)
        is_alone = kind == "updates"
        return Spread(count, self._receivers(), salt, self._stakes(), is_alone, twins)

    def sent(
        self, name: BlobName, member: NodeId | None, indices: Sequence[int], size_bytes: int
    ) -> None:
        """Chunks of it have left, to a member or to a stranger."""
        kind, root = name
        spread = self._spreads[kind].get(root) if kind in SPREAD_KINDS else None
        if member is not None and spread is not None:
            spread.sent(member, indices, trio.current_time() / self._slowness)
        self._sent_bytes[name] += size_bytes
        while len(self._sent_bytes) > BLOBS_SPREAD_MAX:
            del self._sent_bytes[next(iter(self._sent_bytes))]

    def sent_bytes(self, name: BlobName) -> int:
        """Bytes of its chunks that we have sent so far, as far as we remember."""
        return self._sent_bytes[name]

    def _pace_of(self, peer: NodeId) -> Pace:
        pace = self._paces.get(peer)
        if pace is None:
            if len(self._paces) >= PACES_KEPT:
                self._paces = {n: held for n, held in self._paces.items() if not held.is_full}
            pace = self._paces[peer] = Pace(SHARES_PER_S, SHARES_AT_ONCE)
        return pace
