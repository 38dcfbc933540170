"""Fetch blobs by root from many peers at once; every decision is daa_dag/fetch.py's.

A task a source talks to it, see blob_source, and posts its answers. One loop steps the machine,
checks and writes. Nothing is buffered between them: a slow disk stops the reading, and that stops
the peers.

A large blob is not fetched from its holders alone: each offers us a part of it, and names others
that fetch it as well, from which the rest comes (see daa_dag.spread). Where that stalls, holders
are asked for everything; and where no holder is left, those others are asked what they have.
"""

from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass

import trio

from daa_dag.chunking import Manifest
from daa_dag.errors import Malformed
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
    PeerLeft,
)
from daa_dag.ids import BlobRoot, NodeId
from daa_dag.spread import ORPHANS_MAX, indices_of, mask_of, shuffled
from daa_node.errors import NotHeld, PeerFault, StorageFailed, Unavailable
from daa_node.network.blob_source import (
    Answered,
    BlobSource,
    Broke,
    Download,
    Joined,
    News,
    OnFault,
    Opened,
    Told,
)
from daa_node.network.farewell import commit_and_tell
from daa_node.network.hearsay import Hearsay
from daa_node.network.link_limits import LinkLimits
from daa_node.network.relay_source import RelaySource
from daa_node.network.session_pool import BULK_ANSWER_TIMEOUT_S, SessionPool, Source
from daa_node.network.spreading import SPREAD_KINDS, Part, Swarm
from daa_node.network.stall import Stall
from daa_node.seams import BlobStore, BlobWriter, BulkTransport
from daa_node.wire.blob_messages import Shared

OpenWriter = Callable[[Manifest], Awaitable[BlobWriter]]
MoreSources = Callable[[], Sequence[Source]]
AreEnough = Callable[[Set[NodeId]], bool]

# After a second others are asked as well, and without an answer for it what the silent one owes; a
# full answer at 1 MB/s comes in time.
PATIENCE_S = 1.0
# After enough sources have said that they lack a blob, the others have so long to say that they
# hold it: a session and an answer, six round trips, where one takes half a second. It waits behind
# chunks, so it is as many times longer as they are; STAGGER_S waits for few bytes.
LAST_CALL_S = 3.0
# Of one blob, with those that holders name. Each member that we have a connection with has a place:
# else a liar names those first that have nothing, and all comes from who has it whole.
SOURCES_MAX = 256  # more than the members of two committees and their trainers


@dataclass(frozen=True, slots=True)
class Want:
    """What to fetch. `manifest` spares asking for it, if we know it already.

    `sizes` are those of its chunks, where there is only one way to cut it. What a restart does
    without needs not be `durable`.
    """

    kind: str
    root: BlobRoot
    size_bytes_max: int
    manifest: Manifest | None = None
    sizes: tuple[int, ...] | None = None
    durable: bool = True


class BlobFetcher:
    """Fetches over sessions of its own, which it keeps for the next fetch."""

    def __init__(
        self,
        local: NodeId,
        bulk: BulkTransport,
        on_fault: OnFault,
        swarm: Swarm | None = None,
        limits: LinkLimits | None = None,
        slowness: float = 1.0,
    ) -> None:
        """Without a `swarm` all comes from whole holders; a chunk takes `slowness` times longer."""
        self._limits = limits
        self._swarm = swarm
        self._slowness = slowness
        self._local = local
        self._pool = SessionPool(bulk, None if limits is None else limits.came, slowness)
        self.waits = self._pool.waits
        self._on_fault = on_fault

    @property
    def received_bytes(self) -> int:
        return self._pool.received_bytes

    async def fetch_blob(
        self,
        want: Want,
        sources: Sequence[Source],
        store: BlobStore,
        deadline_s: float,
        more: MoreSources = tuple,
    ) -> Manifest:
        """The blob is whole, checked and durable in `store` under `want.kind` when this returns.

        Resumes what an earlier fetch left. Raises Unavailable when the sources cannot give it in
        `deadline_s` seconds, NotHeld when each of them says that it does not have it,
        StorageFailed, and PeerFault "too-large" or "malformed-manifest", which are faults of
        whoever named the root.
        """
        held = await store.blob_manifest(want.kind, want.root)
        if held is not None:
            return held
        return await self.fetch(
            want, sources, lambda manifest: store.begin_blob(want.kind, manifest), deadline_s, more
        )

    async def fetch(
        self,
        want: Want,
        sources: Sequence[Source],
        open_writer: OpenWriter,
        deadline_s: float,
        more: MoreSources = tuple,
        are_enough: AreEnough = lambda _declined: False,
    ) -> Manifest:
        """Fetch into any writer; what is missing() there is asked for. Raises as fetch_blob.

        Raises NotHeld, too, once those who say that they do not have it `are_enough` to be believed
        and nobody else brings it: a source that never answers must not hold up who can do without.
        `more` names others that have come to hold the blob meanwhile: whoever is asked first may
        stall or drip for as long as it likes, so they are tried, too, after a second. Blobs of the
        kind SNAPSHOTS come from the records of peers' chains, chunk by chunk, also from peers that
        have some chunks only.
        """
        # nodes that fetch one blob at the same time start at different chunks
        first = int.from_bytes(self._local[:4])
        swarm = self._swarm if want.kind in SPREAD_KINDS else None
        post, inbox = trio.open_memory_channel[News](0)
        slow, common = self._slowness, (self._pool, self._on_fault, post)
        shared = Download(want.kind, want.root, *common, swarm=swarm, slowness=slow)
        download = _Download(want, shared, inbox, open_writer, first, more, are_enough)
        try:
            with trio.fail_after(deadline_s):
                if self._limits is not None:
                    await self._limits.until_may_fetch()
                return await download.run(sources, deadline_s)
        except trio.TooSlowError:
            why = download.why(f"not whole after {deadline_s} s")
            raise (Unavailable if download.lacked_s is None else NotHeld)(why) from None

    async def aclose(self) -> None:
        """Close the sessions that are kept."""
        await self._pool.aclose()


class _Download:
    """One blob on its way."""

    def __init__(
        self,
        want: Want,
        shared: Download,
        inbox: trio.MemoryReceiveChannel[News],
        open_writer: OpenWriter,
        first: int,
        more: MoreSources,
        are_enough: AreEnough,
    ) -> None:
        self._want = want
        self._more = more
        self._are_enough = are_enough
        self.lacked_s: float | None = None  # since when enough have said that they lack it
        self._nursery: trio.Nursery | None = None  # of the sources' tasks
        self._open_writer = open_writer
        self._first = first
        self._fetch: Fetch | None = None
        self._began_s = self._deadline_s = 0.0
        self._due_bytes = 0  # that were missing when we began
        self._writer: BlobWriter | None = None
        self._part: Part | None = None  # others may have what we have
        self._sources: dict[NodeId, BlobSource | RelaySource] = {}
        self._closed: set[NodeId] = set()  # holders that are asked for what they offer, no more
        self._relays: set[NodeId] = set()  # that we take chunks from, and have not given up
        self._gained_s = 0.0  # when the last chunk came
        self._stall = Stall(shared.slowness)
        self._hearsay = Hearsay(shared.slowness)
        self._trying: set[NodeId] = set()  # sources that have not joined yet, and may
        self._why: dict[NodeId, str] = {}
        self._declined: set[NodeId] = set()
        # without a buffer: an answer waits in its task until the one before is on disk
        self._inbox, self._shared = inbox, shared
        self.received_bytes = 0

    async def run(self, sources: Sequence[Source], deadline_s: float) -> Manifest:
        self._deadline_s = deadline_s
        failure: Exception | None = None
        try:
            if self._want.manifest is not None:
                await self._begin(self._want.manifest)
            self._began_s = self._gained_s = trio.current_time()
            self._stall.begin(self._began_s)
            async with trio.open_nursery() as self._nursery:
                self._welcome(sources)
                try:
                    await self._steer()
                    if self._part is not None:
                        await self._finish(self._part)
                except (Unavailable, PeerFault, StorageFailed) as fault:
                    failure = fault
                self._nursery.cancel_scope.cancel()
        finally:
            if self._part is not None and self._shared.swarm is not None:
                self._shared.swarm.under_way.end((self._want.kind, self._want.root), self._part)
        if failure is not None:
            raise failure
        assert self._writer is not None
        assert self._shared.manifest is not None
        if self._part is None:
            await self._writer.commit(self._want.durable)
        return self._shared.manifest

    async def _finish(self, part: Part) -> None:
        """All is here; others fetch what we have of it as before. Raises as commit does."""
        assert self._shared.swarm is not None
        sources = list(self._sources.values())
        await commit_and_tell(part.writer, self._want.durable, sources, self._inbox)
        self._shared.swarm.under_way.keep((self._want.kind, self._want.root), part)

    def _is_behind(self, now_s: float) -> bool:
        """Whether less has come than must have by now: what drips comes to no end in time."""
        passed_s = now_s - self._began_s
        due_bytes = self._due_bytes * passed_s / self._deadline_s
        limit_s = BULK_ANSWER_TIMEOUT_S * self._shared.slowness
        return passed_s > limit_s and self.received_bytes < due_bytes

    def why(self, outcome: str) -> str:
        """`outcome`, and what became of each source."""
        reasons = "; ".join(f"{node.hex()[:8]}: {why}" for node, why in self._why.items())
        return f"{self._want.kind}/{self._want.root.hex()[:8]} {outcome} ({reasons or 'no source'})"

    # The loop: one at a time

    async def _steer(self) -> None:
        while self._fetch is None or not self._fetch.complete:
            starved = self._fetch is None or (self._fetch.starved and not self._closed)
            lost = starved and not self._trying and not self._hopes()
            if lost and not self._welcome(self._more()):
                nobody = bool(self._sources) and self._declined == self._sources.keys()
                why = self.why("cannot be had")
                raise NotHeld(why) if nobody or self.lacked_s is not None else Unavailable(why)
            now_s = trio.current_time()
            called_s = 0.0 if self.lacked_s is None else now_s - self.lacked_s
            if called_s >= LAST_CALL_S * self._shared.slowness and (
                starved or self._is_behind(now_s)
            ):
                raise NotHeld(self.why("is not held by enough, nor brought by others"))
            news: News | None = None
            with trio.move_on_after(PATIENCE_S / 2 * self._shared.slowness):
                news = await self._inbox.receive()
            if news is not None:
                # outside of the timeout: what the machine takes for held must be written
                await self._take(news)
            await self._prod()

    def _welcome(self, sources: Sequence[Source]) -> bool:
        """Try those that were not tried before; whether there are any."""
        assert self._nursery is not None
        pool = self._shared.pool
        fresh = [s for s in dict.fromkeys(sources) if s.node_id not in self._sources]
        fresh.sort(key=lambda source: pool.waits.rank(source.node_id))
        stagger_s = pool.waits.stagger_s(PATIENCE_S)
        for place, source in enumerate(fresh):
            talk = self._sources[source.node_id] = BlobSource(source, self._shared)
            self._trying.add(source.node_id)
            self._nursery.start_soon(talk.run, place * stagger_s)
        return bool(fresh)

    async def _take(self, news: News) -> None:
        node_id = news.source.node_id
        match news:
            case Joined(_, manifest, have, spreads):
                if self._fetch is None:
                    assert manifest is not None
                    await self._begin(manifest)
                self._trying.discard(node_id)
                if spreads:
                    self._hearsay.tellers.add(node_id)
                    if not self._closed:
                        self._gained_s = trio.current_time()
                    self._closed.add(node_id)
                    self._stall.note_offers(trio.current_time())
                there = None if have is None else frozenset(indices_of(have))
                joined = PeerJoined(node_id, frozenset() if spreads else there, spreads)
                await self._step([joined])
            case Told(_, shared):
                self._sources[node_id].heard()
                await self._step(self._events_of(node_id, shared))
            case Opened():
                self._hearsay.tellers.discard(node_id)
                await self._open([node_id])
            case Answered(_, indices, payloads, tells):
                self._sources[node_id].heard()
                if any(payload is not None for payload in payloads):
                    self._stall.note_chunk(node_id, self._relays, trio.current_time())
                events: list[Event] = [
                    ChunkMissing(node_id, index)
                    if payload is None
                    else ChunkArrived(node_id, index, payload)
                    for index, payload in zip(indices, payloads, strict=True)
                ]
                if tells and node_id in self._relays:
                    events += self._hearsay.weigh(node_id, indices, payloads)
                await self._step(events)
            case Broke(_, why, for_good, declined):
                self._why[node_id] = why
                if declined:
                    self._declined.add(node_id)
                    if self.lacked_s is None and self._are_enough(self._declined):
                        self.lacked_s = trio.current_time()
                self._sources[node_id].drop_asks()
                self._closed.discard(node_id)
                if for_good:
                    self._trying.discard(node_id)
                    self._relays.discard(node_id)
                elif node_id not in self._relays:
                    self._trying.add(node_id)
                self._shared.hurry.set()
                heard = self._hearsay.heard_of(node_id, self._declined)
                told = [e for who, mask in heard for e in self._events_of_part(who, mask, None)]
                await self._step([PeerLeft(node_id), *told])

    def _events_of(self, node_id: NodeId, shared: Shared) -> list[Event]:
        """What a holder told us: what it offers, and who else has what."""
        is_relay = node_id in self._relays
        events = self._hearsay.gains(node_id, shared.offered, is_relay, node_id)
        for other, mask in shared.holders:
            events += self._events_of_part(other, mask, node_id)
        return events

    def _events_of_part(self, node_id: NodeId, mask: int, teller: NodeId | None) -> list[Event]:
        self._begin_relay(node_id, mask)
        if node_id not in self._relays:
            return []
        return self._hearsay.gains(node_id, mask, True, teller)

    def _begin_relay(self, node_id: NodeId, mask: int) -> None:
        """It has a part, or all of it by now: then it is asked as a holder, and without waiting."""
        assert self._nursery is not None
        assert self._shared.swarm is not None
        known = self._sources.get(node_id)
        if isinstance(known, BlobSource) and node_id not in self._declined:
            self._hearsay.name(node_id, mask)
            known.begin()
            return
        if isinstance(known, RelaySource) or len(self._sources) >= SOURCES_MAX:
            return
        source = self._shared.swarm.source_of(node_id)
        if source is not None:  # else we have no connection with it
            relay = self._sources[node_id] = RelaySource(source, self._shared)
            self._relays.add(node_id)
            self._nursery.start_soon(relay.run)

    async def _open(self, holders: Sequence[NodeId]) -> None:
        """From now on they are asked for whatever we lack."""
        self._closed.difference_update(holders)
        await self._step([PeerGained(node_id, None) for node_id in holders])

    async def _lend(self, fetch: Fetch) -> None:
        """Ask holders for more than they offer, of what nobody else can be trusted to bring."""
        assert self._shared.manifest is not None
        # What they owe comes no sooner if they have more to send.
        free = [node_id for node_id in sorted(self._closed) if not fetch.owes(node_id)]
        count = self._stall.lend() if free else 0
        if count > len(self._shared.manifest.sizes) // 2:
            await self._open(free)
        elif free:
            pieces = frozenset(fetch.orphans(count))
            await self._step([PeerGained(node_id, pieces) for node_id in free])

    def _orphans(self) -> tuple[int, ...]:
        """None as long as things come: of several that spread it one soon offers what is left."""
        assert self._fetch is not None
        quiet_s = trio.current_time() - self._gained_s
        is_due = self._hearsay.is_alone or quiet_s > PATIENCE_S * self._shared.slowness
        return tuple(self._fetch.orphans(ORPHANS_MAX)) if is_due else ()

    async def _begin(self, manifest: Manifest) -> None:
        """The manifest is known and is the root's: whatever is wrong with it was signed for."""
        if manifest.size_bytes > self._want.size_bytes_max:
            limit = self._want.size_bytes_max
            raise PeerFault("too-large", f"blob of {manifest.size_bytes} bytes, at most {limit}")
        if self._want.sizes not in (None, manifest.sizes):
            raise PeerFault("malformed-manifest", f"cut into {len(manifest.sizes)} chunks")
        self._shared.manifest = manifest
        self._writer = await self._open_writer(manifest)
        missing = self._writer.missing()
        self._due_bytes = sum(manifest.sizes[index] for index in missing)
        swarm = self._shared.swarm if self._shared.spreads(manifest) else None
        place_of = None if swarm is None else shuffled(swarm.draw())
        try:
            self._fetch = Fetch(manifest, missing, self._first, place_of)
        except Malformed as fault:
            raise PeerFault("malformed-manifest", str(fault)) from None
        if swarm is not None:
            held = set(range(len(manifest.sizes))).difference(missing)
            self._part = Part(manifest, self._writer, held)
            swarm.under_way.begin((self._want.kind, self._want.root), self._part)
            self._shared.have = mask_of(held)
            self._shared.orphans = self._orphans
        self._shared.begun.set()

    async def _step(self, events: Sequence[Event]) -> None:
        """All of an answer's chunks before anything waits: their asks leave together."""
        if self._fetch is None:
            return
        assert self._writer is not None
        holds: list[Hold] = []
        for effect in self._fetch.step(*events):
            match effect:
                case Ask(peer, index):
                    self._sources[peer].ask(index)
                case Hold():
                    holds.append(effect)
                case Accuse(peer, index):
                    self._shared.on_fault(peer, PeerFault("chunk-mismatch", f"chunk {index}"))
                case Ban(peer):
                    self._why[peer] = "lied"
                    self._closed.discard(peer)
                    self._relays.discard(peer)
                    self._hearsay.tellers.discard(peer)
                    self._sources[peer].ban()
                case Complete():
                    pass  # the loop sees it, once everything is written
        if holds:
            self.received_bytes += sum(len(hold.payload) for hold in holds)
            await self._writer.write_chunks(
                [(index, hold.payload) for hold in holds for index in hold.indices]
            )
            self._gained_s = trio.current_time()
            if self._part is not None:
                gained = [index for hold in holds for index in hold.indices]
                self._part.held.update(gained)
                self._shared.have |= mask_of(gained)
                for source in self._sources.values():
                    source.gained()

    async def _prod(self) -> None:
        """Tell the machine who has been silent for too long, and try others as well."""
        now_s = trio.current_time()
        usual_s = PATIENCE_S * self._shared.slowness
        patience_s = usual_s if self._part is None else self._shared.patience.limit_s
        if now_s - (self._began_s if self._part is None else self._gained_s) > usual_s:
            # Whether anybody lags or not: a source may bring each bit in time, and never soon.
            more = self._more()
            self._welcome(more)
            whole = [each.node_id for each in more if each.node_id in self._relays]
            await self._step([PeerGained(node_id, None) for node_id in whole])
        if self._fetch is None:
            return
        if self._relays and self._hearsay.is_look_due(now_s, now_s - self._gained_s):
            for node_id in self._relays:
                self._sources[node_id].look()
        if self._closed and self._is_stalled(now_s):
            await self._lend(self._fetch)
        silent = [n for n, source in self._sources.items() if source.is_silent(now_s, patience_s)]
        lagging = [node_id for node_id in silent if self._fetch.owes(node_id)]
        await self._step([PeerLagging(node_id) for node_id in lagging])

    def _hopes(self) -> bool:
        """Whether those that fetch it, too, may bring what nobody else does."""
        return bool(self._relays) and not self._stall.is_due(
            trio.current_time(), self._shared.slow_s
        )

    def _is_stalled(self, now_s: float) -> bool:
        """Whether nothing comes, or a quarter of the time will not do, as things come."""
        slow_s = self._shared.slow_s
        due_s = self._stall.due_share(now_s, self._began_s, slow_s)
        is_behind = self.received_bytes < self._due_bytes * due_s / self._deadline_s
        return is_behind or self._stall.is_due(now_s, slow_s)
