"""Fetch blobs by root from many peers at once; every decision is daa_dag/fetch.py's.

A task a source talks over its bulk session: it finds the blob, sends the asks that are queued for
it, reads one answer, posts it, and so on. One loop steps the machine, checks and writes. Nothing is
buffered between them: a slow disk stops the reading, and that stops the peers.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field

import trio

from daa_dag.chunking import Manifest, decode_manifest
from daa_dag.errors import DagError, Malformed
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
from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import NotHeld, PeerFault, StorageFailed, Unavailable
from daa_node.network.answers import ANSWER_TIMEOUT_S, answer_of, frame_of
from daa_node.network.session_pool import Lease, SessionPool, Source
from daa_node.seams import BlobStore, BlobWriter, BulkTransport
from daa_node.wire.blob_messages import (
    ANSWER_BYTES_MAX,
    CHUNKS_PER_REQUEST_MAX,
    Chunks,
    ChunksRequest,
    FindRequest,
    Found,
    Refused,
    decode_answer,
    encode_request,
)

OnFault = Callable[[NodeId, PeerFault], None]
CUT = (trio.BrokenResourceError, trio.ClosedResourceError)
OpenWriter = Callable[[Manifest], Awaitable[BlobWriter]]
MoreSources = Callable[[], Sequence[Source]]
AreEnough = Callable[[Set[NodeId]], bool]

# After a second others are asked as well, and without an answer for it what the silent one owes; a
# full answer at 1 MB/s comes in time.
PATIENCE_S = 1.0
# A session may break under us once or twice; then the peer is gone.
ATTEMPTS_MAX = 3
RETRY_WAIT_S = 0.2  # doubled each time
# Sources are tried in the order given, but for who is slow to answer, each this much after the one
# before, or once one fails: a small blob comes from the first alone, and the others' sessions are
# not opened for nothing.
STAGGER_S = 0.1
# After enough sources have said that they lack a blob, the others have so long to say that they
# hold it: a session and an answer, six round trips, where one takes half a second.
LAST_CALL_S = 3.0


@dataclass(frozen=True, slots=True)
class Want:
    """What to fetch. `manifest` spares asking for it, if we know it already.

    `sizes` are those of its chunks, where there is only one way to cut it.
    """

    kind: str
    root: BlobRoot
    size_bytes_max: int
    manifest: Manifest | None = None
    sizes: tuple[int, ...] | None = None


class BlobFetcher:
    """Fetches over sessions of its own, which it keeps for the next fetch."""

    def __init__(self, local: NodeId, bulk: BulkTransport, on_fault: OnFault) -> None:
        self._local = local
        self._pool = SessionPool(bulk)
        self._on_fault = on_fault
        self.received_bytes = 0

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
        download = _Download(want, self._pool, open_writer, self._on_fault, first, more, are_enough)
        try:
            with trio.fail_after(deadline_s):
                return await download.run(sources, deadline_s)
        except trio.TooSlowError:
            why = download.why(f"not whole after {deadline_s} s")
            raise (Unavailable if download.lacked_s is None else NotHeld)(why) from None
        finally:
            self.received_bytes += download.received_bytes

    async def aclose(self) -> None:
        """Close the sessions that are kept."""
        await self._pool.aclose()


@dataclass(frozen=True, slots=True)
class _Joined:
    source: Source
    manifest: Manifest | None
    have: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class _Answered:
    source: Source
    indices: tuple[int, ...]
    payloads: tuple[memoryview | None, ...]


@dataclass(frozen=True, slots=True)
class _Broke:
    """The session is over; `for_good` if the source will not be tried again."""

    source: Source
    why: str
    for_good: bool
    declined: bool = False  # it said that it does not have the blob


_News = _Joined | _Answered | _Broke


@dataclass(slots=True)
class _Talk:
    """What the loop and a source's task share."""

    queued: deque[int] = field(default_factory=deque)  # asked by the machine, not yet sent
    wake: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    banned: bool = False
    heard_s: float = 0.0  # when it last said something, or had nothing to say
    answered: bool = False  # an answer of it waits for us: it is we who are slow


class _Download:
    """One blob on its way."""

    def __init__(
        self,
        want: Want,
        pool: SessionPool,
        open_writer: OpenWriter,
        on_fault: OnFault,
        first: int,
        more: MoreSources,
        are_enough: AreEnough,
    ) -> None:
        self._want = want
        self._more = more
        self._are_enough = are_enough
        self.lacked_s: float | None = None  # since when enough have said that they lack it
        self._nursery: trio.Nursery | None = None  # of the sources' tasks
        self._pool = pool
        self._open_writer = open_writer
        self._on_fault = on_fault
        self._first = first
        self._manifest: Manifest | None = None
        self._fetch: Fetch | None = None
        self._began_s = self._deadline_s = 0.0
        self._due_bytes = 0  # that were missing when we began
        self._writer: BlobWriter | None = None
        self._talks: dict[NodeId, _Talk] = {}
        self._trying: set[NodeId] = set()  # sources that have not joined yet, and may
        self._why: dict[NodeId, str] = {}
        self._declined: set[NodeId] = set()
        self._hurry = trio.Event()  # a source failed: the next ones need not wait
        # without a buffer: an answer waits in its task until the one before is on disk
        self._post, self._inbox = trio.open_memory_channel[_News](0)
        self.received_bytes = 0

    async def run(self, sources: Sequence[Source], deadline_s: float) -> Manifest:
        self._deadline_s = deadline_s
        failure: Exception | None = None
        if self._want.manifest is not None:
            await self._begin(self._want.manifest)
        self._began_s = trio.current_time()
        async with trio.open_nursery() as self._nursery:
            self._welcome(sources)
            try:
                await self._steer()
            except (Unavailable, PeerFault, StorageFailed) as fault:
                failure = fault
            self._nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        assert self._writer is not None
        assert self._manifest is not None
        await self._writer.commit()
        return self._manifest

    def _is_behind(self, now_s: float) -> bool:
        """Whether less has come than must have by now: what drips comes to no end in time."""
        passed_s = now_s - self._began_s
        due_bytes = self._due_bytes * passed_s / self._deadline_s
        return passed_s > ANSWER_TIMEOUT_S and self.received_bytes < due_bytes

    def why(self, outcome: str) -> str:
        """`outcome`, and what became of each source."""
        reasons = "; ".join(f"{node.hex()[:8]}: {why}" for node, why in self._why.items())
        return f"{self._want.kind}/{self._want.root.hex()[:8]} {outcome} ({reasons or 'no source'})"

    # The loop: one at a time

    async def _steer(self) -> None:
        while self._fetch is None or not self._fetch.complete:
            starved = self._fetch is None or self._fetch.starved
            if starved and not self._trying and not self._welcome(self._more()):
                nobody = bool(self._talks) and self._declined == self._talks.keys()
                why = self.why("cannot be had")
                raise NotHeld(why) if nobody or self.lacked_s is not None else Unavailable(why)
            now_s = trio.current_time()
            called_s = 0.0 if self.lacked_s is None else now_s - self.lacked_s
            if called_s >= LAST_CALL_S and (starved or self._is_behind(now_s)):
                raise NotHeld(self.why("is not held by enough, nor brought by others"))
            news: _News | None = None
            with trio.move_on_after(PATIENCE_S / 2):
                news = await self._inbox.receive()
            if news is not None:
                # outside of the timeout: what the machine takes for held must be written
                await self._take(news)
            await self._prod()

    def _welcome(self, sources: Sequence[Source]) -> bool:
        """Try those that were not tried before; whether there are any."""
        assert self._nursery is not None
        fresh = [s for s in dict.fromkeys(sources) if s.node_id not in self._talks]
        fresh.sort(key=lambda source: self._pool.waits.rank(source.node_id))
        for place, source in enumerate(fresh):
            self._talks[source.node_id] = _Talk()
            self._trying.add(source.node_id)
            self._nursery.start_soon(self._attend, source, place * STAGGER_S)
        return bool(fresh)

    async def _take(self, news: _News) -> None:
        node_id = news.source.node_id
        match news:
            case _Joined(_, manifest, have):
                if self._fetch is None:
                    assert manifest is not None
                    await self._begin(manifest)
                self._trying.discard(node_id)
                await self._step([PeerJoined(node_id, have)])
            case _Answered(_, indices, payloads):
                self._talks[node_id].heard_s = trio.current_time()
                await self._step(
                    [
                        ChunkMissing(node_id, index)
                        if payload is None
                        else ChunkArrived(node_id, index, payload)
                        for index, payload in zip(indices, payloads, strict=True)
                    ]
                )
            case _Broke(_, why, for_good, declined):
                self._why[node_id] = why
                if declined:
                    self._declined.add(node_id)
                    if self.lacked_s is None and self._are_enough(self._declined):
                        self.lacked_s = trio.current_time()
                self._talks[node_id].queued.clear()
                if for_good:
                    self._trying.discard(node_id)
                else:
                    self._trying.add(node_id)
                self._hurry.set()
                await self._step([PeerLeft(node_id)])

    async def _begin(self, manifest: Manifest) -> None:
        """The manifest is known and is the root's: whatever is wrong with it was signed for."""
        if manifest.size_bytes > self._want.size_bytes_max:
            limit = self._want.size_bytes_max
            raise PeerFault("too-large", f"blob of {manifest.size_bytes} bytes, at most {limit}")
        if self._want.sizes not in (None, manifest.sizes):
            raise PeerFault("malformed-manifest", f"cut into {len(manifest.sizes)} chunks")
        self._manifest = manifest
        self._writer = await self._open_writer(manifest)
        missing = self._writer.missing()
        self._due_bytes = sum(manifest.sizes[index] for index in missing)
        try:
            self._fetch = Fetch(manifest, missing, self._first)
        except Malformed as fault:
            raise PeerFault("malformed-manifest", str(fault)) from None

    async def _step(self, events: Sequence[Event]) -> None:
        """All of an answer's chunks before anything waits: their asks leave together."""
        if self._fetch is None:
            return
        assert self._writer is not None
        holds: list[Hold] = []
        for effect in [effect for event in events for effect in self._fetch.step(event)]:
            match effect:
                case Ask(peer, index):
                    talk = self._talks[peer]
                    if not talk.queued:
                        talk.heard_s = trio.current_time()
                    talk.queued.append(index)
                    talk.wake.set()
                case Hold():
                    holds.append(effect)
                case Accuse(peer, index):
                    self._on_fault(peer, PeerFault("chunk-mismatch", f"chunk {index}"))
                case Ban(peer):
                    self._why[peer] = "lied"
                    self._talks[peer].banned = True
                    self._talks[peer].scope.cancel()
                case Complete():
                    pass  # the loop sees it, once everything is written
        if holds:
            self.received_bytes += sum(len(hold.payload) for hold in holds)
            await self._writer.write_chunks(
                [(index, hold.payload) for hold in holds for index in hold.indices]
            )

    async def _prod(self) -> None:
        """Tell the machine who has been silent for too long, and try others as well."""
        now_s = trio.current_time()
        if now_s - self._began_s > PATIENCE_S:
            # Whether anybody lags or not: a source may bring each bit in time, and never soon.
            self._welcome(self._more())
        if self._fetch is None:
            return
        silent = [
            node_id
            for node_id, talk in self._talks.items()
            if not talk.answered and now_s - talk.heard_s > PATIENCE_S
        ]
        lagging = [node_id for node_id in silent if self._fetch.owes(node_id)]
        await self._step([PeerLagging(node_id) for node_id in lagging])

    # A source's task

    async def _attend(self, source: Source, wait_s: float) -> None:
        """Talk to one source until the fetch is over, the source is useless, or it is banned."""
        talk = self._talks[source.node_id]
        with talk.scope:
            with trio.move_on_after(wait_s):
                await self._hurry.wait()
            attempt = 0
            while True:
                reused = False
                try:
                    async with self._pool.lease(source) as lease:
                        reused, lease.clean = lease.reused, False
                        try:
                            await self._converse(source, lease)
                        finally:
                            lease.clean = lease.clean and not talk.banned
                except PeerFault as fault:
                    self._on_fault(source.node_id, fault)
                    await self._post.send(_Broke(source, str(fault), for_good=True))
                    return
                except _Declined as refusal:
                    await self._post.send(_Broke(source, str(refusal), True, declined=True))
                    return
                except (Unavailable, *CUT) as reason:
                    # a kept session that turned out dead says nothing about the peer
                    attempt += not reused
                    last = attempt >= ATTEMPTS_MAX
                    await self._post.send(_Broke(source, str(reason), for_good=last))
                    if last:
                        return
                if not reused:
                    await trio.sleep(RETRY_WAIT_S * 2 ** (attempt - 1))

    async def _converse(self, source: Source, lease: Lease) -> None:
        """Raises Unavailable, PeerFault or _Declined; ends in no other way than by cancellation."""
        talk = self._talks[source.node_id]
        await self._post.send(await self._find(source, lease))
        pending: deque[tuple[int, ...]] = deque()
        while True:
            while talk.queued:
                lease.clean = False
                pending.append(self._batch(talk.queued))
                request = ChunksRequest(self._want.kind, self._want.root, pending[-1])
                await lease.stream.send_frame(encode_request(request))
            if not pending:
                lease.clean = True
                talk.wake = trio.Event()
                await talk.wake.wait()
                continue
            with self._pool.waits.waiting(source.node_id):
                answer = decode_answer(await answer_of(lease))
            indices = pending.popleft()
            lease.clean = not pending
            if isinstance(answer, Refused):
                raise _Declined(answer.reason)
            if not isinstance(answer, Chunks) or len(answer.payloads) != len(indices):
                lease.clean = False
                raise PeerFault("malformed", f"no answer for {len(indices)} chunks")
            talk.answered = True
            await self._post.send(_Answered(source, indices, answer.payloads))
            talk.answered = False

    async def _find(self, source: Source, lease: Lease) -> _Joined:
        with_manifest = self._manifest is None
        request = FindRequest(self._want.kind, self._want.root, with_manifest)
        await lease.stream.send_frame(encode_request(request))
        with self._pool.waits.waiting(source.node_id):
            found = decode_answer(await answer_of(lease))
        if isinstance(found, Refused):
            lease.clean = True
            raise _Declined(found.reason)
        if not isinstance(found, Found):
            raise PeerFault("malformed", "no answer for a search")
        manifest = None
        if with_manifest:
            manifest = await self._receive_manifest(lease, found.manifest_bytes)
        lease.clean = True
        return _Joined(source, manifest, found.have)

    async def _receive_manifest(self, lease: Lease, size_bytes: int) -> Manifest:
        encoded = bytearray()
        while len(encoded) < size_bytes:
            part = await frame_of(lease)
            if not part:
                raise PeerFault("malformed", "an empty part of a manifest")
            encoded += part
        try:
            manifest = decode_manifest(bytes(encoded))
        except DagError as fault:
            raise PeerFault("malformed", f"manifest: {fault}") from None
        if manifest.root != self._want.root:
            raise PeerFault("manifest-mismatch", "the manifest is another blob's")
        return manifest

    def _batch(self, queued: deque[int]) -> tuple[int, ...]:
        """As many of the queued asks as one answer may hold, ascending."""
        assert self._manifest is not None
        batch, size_bytes = [queued.popleft()], 0
        size_bytes = self._manifest.sizes[batch[0]]
        while queued and len(batch) < CHUNKS_PER_REQUEST_MAX:
            size_bytes += self._manifest.sizes[queued[0]]
            if size_bytes > ANSWER_BYTES_MAX:
                break
            batch.append(queued.popleft())
        return tuple(sorted(batch))


class _Declined(Exception):
    """The source does not have the blob, or its copy is damaged; it said so."""
