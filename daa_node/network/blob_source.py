"""One source of a blob: found, asked and read over its bulk session, until it has nothing more.

begun --hurry, or its turn--> found --asks, a batch at a time--> answers --> posted to the fetch
  ^------ the session broke, ATTEMPTS_MAX times -------+

A source that spreads the blob is also told, between the asks, what we have by now, and says what to
ask it for and whom else: at first soon, and the later the longer it has nothing new. When we have
all it hears so, as others wait for what it takes us to lack.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import trio

from daa_dag.chunking import Manifest, decode_manifest, root_of
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, NodeId
from daa_dag.spread import Patience
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.answers import answer_of, turn_of
from daa_node.network.session_pool import Lease, SessionPool, Source
from daa_node.network.spreading import Swarm, is_spread
from daa_node.wire.blob_messages import (
    ANSWER_BYTES_MAX,
    CHUNKS_PER_REQUEST_MAX,
    Answer,
    Chunks,
    ChunksRequest,
    FindRequest,
    Found,
    Refusal,
    Refused,
    Shared,
    ShareRequest,
    check_bits,
    decode_answer,
    encode_request,
)

OnFault = Callable[[NodeId, PeerFault], None]
CUT = (trio.BrokenResourceError, trio.ClosedResourceError)

# A session may break under us once or twice; then the peer is gone.
ATTEMPTS_MAX = 3
RETRY_WAIT_S = 0.2  # doubled each time
SHARE_WAIT_S = 0.005  # before we say what we have: what arrives together is said once
SHARE_NEWS_WAIT_S = 0.02  # after news of others: there are more, and a chunk takes as long
SHARE_WAIT_S_MAX = 0.16  # doubled up to here, while there is nothing new
# And so much longer a chunk: then bitmaps of eight others are less than a hundredth of a link that
# carries a chunk in 20 ms.
SHARE_WAIT_CHUNK_S = 0.0002
# Chunks of one answer, where others fetch the same: as many of 256 KiB fill one, and small ones
# come in steps of as many, or who passes them on would wait for all of them.
SPREAD_BATCH_MAX = 4


@dataclass(frozen=True, slots=True)
class Joined:
    source: Source
    manifest: Manifest | None
    have: int | None  # mask of its chunks; None: all
    spreads: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """By a source that spreads the blob."""

    source: Source
    shared: Shared


@dataclass(frozen=True, slots=True)
class Opened:
    """A source that has the blob whole spreads it no more: it is asked for anything."""

    source: Source


@dataclass(frozen=True, slots=True)
class Answered:
    source: Source
    indices: tuple[int, ...]
    payloads: tuple[memoryview | None, ...]
    tells: bool = True  # what it has; not so where its day's data are spent


@dataclass(frozen=True, slots=True)
class Broke:
    """The session is over; `for_good` if the source will not be tried again."""

    source: Source
    why: str
    for_good: bool
    declined: bool = False  # it said that it does not have the blob


News = Joined | Told | Opened | Answered | Broke


@dataclass(slots=True)
class Download:
    """What all sources of one blob have in common."""

    kind: str
    root: BlobRoot
    pool: SessionPool
    on_fault: OnFault
    post: trio.MemorySendChannel[News]
    manifest: Manifest | None = None  # once it is known
    hurry: trio.Event = field(default_factory=trio.Event)  # one failed: the next need not wait
    swarm: Swarm | None = None  # None: everything comes from who has it whole
    slowness: float = 1.0  # so many times longer than usual a chunk takes
    patience: Patience = field(init=False)  # with answers, where others fetch as well
    begun: trio.Event = field(default_factory=trio.Event)  # what is here already is known
    have: int = 0  # mask of the chunks that can be read here
    orphans: Callable[[], tuple[int, ...]] = tuple

    def __post_init__(self) -> None:
        self.patience = Patience(self.slowness)

    @property
    def share_wait_s(self) -> float:
        """How long to wait at least until a source hears what we have."""
        return SHARE_WAIT_S * self.slowness

    @property
    def slow_s(self) -> float:
        """How long a session may take to open, and an answer to come."""
        return max(self.pool.opening_limit_s, self.patience.limit_s)

    def checked(self, answer: Answer) -> Shared:
        """What a source says to what we have. Raises PeerFault."""
        if not isinstance(answer, Shared):
            raise PeerFault("malformed", "no answer for what we have")
        assert self.manifest is not None
        for mask in (answer.offered, *(mask for _, mask in answer.holders)):
            check_bits(mask, self.manifest)
        return answer

    def spreads(self, manifest: Manifest) -> bool:
        """Whether chunks are passed on from one who fetches it to the next."""
        return self.swarm is not None and is_spread(manifest)


class BlobSource:
    """The talk with one source."""

    def __init__(self, source: Source, download: Download) -> None:
        self._source = source
        self._download = download
        self._queued: deque[int] = deque()  # asked by the machine, not yet sent
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        self._waiting = trio.CancelScope()  # for its turn
        self._banned = False
        self._heard_s = 0.0  # when it last said something, or had nothing to say
        self._answered = False  # an answer of it waits for us: it is we who are slow
        self._shares = False  # it spreads the blob
        self._heard = 0  # of its news
        self._offered = 0  # mask: what it offered last
        self._share_s = 0.0  # when to say what we have
        self._share_wait_s = download.share_wait_s
        self._whole = False  # we have all: it hears so, and that is the end
        self.said = trio.Event()

    def begin(self) -> None:
        """It is its turn, if it was not."""
        self._waiting.cancel()

    def ask(self, index: int) -> None:
        """For a chunk."""
        if not self._queued:
            self._heard_s = trio.current_time()
        self._queued.append(index)
        self._wake.set()

    def heard(self) -> None:
        """An answer of it was taken."""
        self._heard_s = trio.current_time()

    def drop_asks(self) -> None:
        self._queued.clear()

    def look(self) -> None:
        """It says by itself what it has."""

    def gained(self) -> None:
        """We have more, of others: those who hear of it may want it."""
        self._share_wait_s = self._download.share_wait_s
        self._share_s = min(self._share_s, trio.current_time() + 4 * self._share_wait_s)
        self._wake.set()

    def finish(self) -> None:
        """We have all. Who spreads the blob is told so; then, or at once, it has `said`."""
        self._whole = True
        self._queued.clear()
        self._wake.set()
        if not self._shares:
            self.said.set()

    def ban(self) -> None:
        self._banned = True
        self._scope.cancel()

    def is_silent(self, now_s: float, patience_s: float) -> bool:
        """Whether it has let us wait for longer than that."""
        return not self._answered and now_s - self._heard_s > patience_s

    async def run(self, wait_s: float) -> None:
        """Talk to it until the fetch is over, the source is useless, or it is banned.

        Waits first, for a source before it to fail or for so many seconds.
        """
        source, download = self._source, self._download
        with self._scope:
            if wait_s:
                self._waiting.deadline = trio.current_time() + wait_s
                with self._waiting:
                    await download.hurry.wait()
            attempt = 0
            while True:
                reused = False
                try:
                    async with download.pool.lease(source) as lease:
                        reused, lease.clean = lease.reused, False
                        try:
                            await self._converse(lease)
                        finally:
                            lease.clean = lease.clean and not self._banned
                    return
                except PeerFault as fault:
                    download.on_fault(source.node_id, fault)
                    await download.post.send(Broke(source, str(fault), for_good=True))
                    return
                except _Declined as refusal:
                    lacks = refusal.reason is not Refusal.SPENT
                    await download.post.send(Broke(source, str(refusal), True, declined=lacks))
                    return
                except (Unavailable, *CUT) as reason:
                    # a kept session that turned out dead says nothing about the peer
                    if not reused:
                        attempt += 1
                        download.pool.waits.failed(source.node_id)
                    last = attempt >= ATTEMPTS_MAX
                    await download.post.send(Broke(source, str(reason), for_good=last))
                    if last:
                        return
                if not reused:
                    await trio.sleep(RETRY_WAIT_S * 2 ** (attempt - 1))

    async def _converse(self, lease: Lease) -> None:
        """Raises Unavailable, PeerFault or _Declined; ends once we have all, else is cancelled."""
        source, download = self._source, self._download
        joined = await self._find(lease)
        await download.post.send(joined)
        if joined.spreads:
            await download.begun.wait()
        self._shares, self._heard, self._offered = joined.spreads, 0, 0
        self._share_s, self._share_wait_s = trio.current_time(), download.share_wait_s
        pending: deque[_Due] = deque()
        while True:
            while self._queued:
                lease.clean = False
                assert download.manifest is not None
                batch = batch_of(self._queued, download)
                pending.append(_Due(batch, trio.current_time()))
                request = ChunksRequest(download.kind, download.root, batch)
                await lease.stream.send_frame(encode_request(request))
            if self._is_share_due(pending):
                lease.clean = False
                pending.append(_Due((), trio.current_time()))
                is_last = self._whole
                await lease.stream.send_frame(encode_request(self._share()))
                if is_last:  # nobody waits for its answer
                    lease.clean, lease.unread = True, 1
                    self.said.set()
                    return
            if not pending:
                lease.clean = True
                self._wake = trio.Event()
                with trio.move_on_at(self._share_s if self._shares else inf):
                    await self._wake.wait()
                continue
            with download.pool.waits.waiting(source.node_id):
                answer = decode_answer(await answer_of(lease))
            due = pending.popleft()
            lease.clean = not pending
            await self._take(lease, due, answer)

    def _is_share_due(self, pending: Sequence["_Due"]) -> bool:
        """One at a time, behind one batch of chunks at most."""
        if not self._shares or any(not due.indices for due in pending):
            return False
        if self._whole:
            return not pending
        return len(pending) < 2 and trio.current_time() >= self._share_s

    def _share(self) -> ShareRequest:
        download = self._download
        self._share_s = inf  # until there is an answer
        return ShareRequest(
            download.kind, download.root, self._heard, download.orphans(), download.have
        )

    async def _take(self, lease: Lease, due: "_Due", answer: Answer) -> None:
        source, download = self._source, self._download
        if isinstance(answer, Refused) and not due.indices:
            self._shares = False
            await download.post.send(Opened(source))
            return
        if isinstance(answer, Refused):
            raise _Declined(answer.reason)
        if not due.indices:
            shared = download.checked(answer)
            self._note_share(shared)
            if not self._whole:
                await download.post.send(Told(source, shared))
            return
        if not isinstance(answer, Chunks) or len(answer.payloads) != len(due.indices):
            lease.clean = False
            raise PeerFault("malformed", f"no answer for {len(due.indices)} chunks")
        if any(payload is not None for payload in answer.payloads):
            download.patience.took(trio.current_time() - due.since_s)
        if self._whole:
            return  # it was asked of another as well
        self._answered = True
        await download.post.send(Answered(source, due.indices, answer.payloads))
        self._answered = False
        self._share_s = min(self._share_s, trio.current_time() + download.share_wait_s)

    def _note_share(self, shared: Shared) -> None:
        """When to ask again: soon after there was news, else later each time."""
        is_new = shared.news > self._heard or shared.offered & ~self._offered
        self._heard, self._offered = max(self._heard, shared.news), shared.offered
        assert self._download.manifest is not None
        most_s = SHARE_WAIT_S_MAX + SHARE_WAIT_CHUNK_S * len(self._download.manifest.sizes)
        slow = self._download.slowness
        longer_s = min(2 * self._share_wait_s, most_s * slow)
        self._share_wait_s = SHARE_NEWS_WAIT_S * slow if is_new else longer_s
        self._share_s = trio.current_time() + self._share_wait_s

    async def _find(self, lease: Lease) -> Joined:
        source, download = self._source, self._download
        with_manifest = download.manifest is None
        request = FindRequest(download.kind, download.root, with_manifest)
        await lease.stream.send_frame(encode_request(request))
        with download.pool.waits.searching(source.node_id):
            found = decode_answer(await answer_of(lease))
        if isinstance(found, Refused):
            lease.clean = True
            raise _Declined(found.reason)
        if not isinstance(found, Found):
            raise PeerFault("malformed", "no answer for a search")
        manifest = None
        if with_manifest:
            manifest = await self._receive_manifest(lease, found)
        lease.clean = True
        known = manifest or download.manifest
        assert known is not None
        check_bits(found.have or 0, known)
        return Joined(source, manifest, found.have, found.have is None and download.spreads(known))

    async def _receive_manifest(self, lease: Lease, found: Found) -> Manifest:
        encoded = bytearray(found.manifest)
        size_bytes = len(encoded) + found.following_bytes
        while len(encoded) < size_bytes:
            part = await turn_of(lease)
            if not 0 < len(part) <= size_bytes - len(encoded):
                raise PeerFault("malformed", "an empty part of a manifest, or more than it has")
            encoded += part
        if root_of(encoded) != self._download.root:  # before time and memory go into decoding it
            raise PeerFault("manifest-mismatch", "the manifest is another blob's")
        try:
            return decode_manifest(bytes(encoded))
        except DagError as fault:
            raise PeerFault("malformed", f"manifest: {fault}") from None


def batch_of(queued: deque[int], download: Download) -> tuple[int, ...]:
    """As many of the queued asks as one answer may hold, ascending; they are taken off."""
    manifest = download.manifest
    assert manifest is not None
    most = SPREAD_BATCH_MAX if download.spreads(manifest) else CHUNKS_PER_REQUEST_MAX
    batch = [queued.popleft()]
    size_bytes = manifest.sizes[batch[0]]
    while queued and len(batch) < most:
        size_bytes += manifest.sizes[queued[0]]
        if size_bytes > ANSWER_BYTES_MAX:
            break
        batch.append(queued.popleft())
    return tuple(sorted(batch))


@dataclass(frozen=True, slots=True)
class _Due:
    """An answer: for these chunks, or, if for none, to what we said that we have."""

    indices: tuple[int, ...]
    since_s: float


class _Declined(Exception):
    """The source does not have the blob, or its copy is damaged, or gives none; it said so."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(str(reason))
        self.reason = reason
