"""One source of a blob: found, asked and read over its bulk session, until it has nothing more.

begun --hurry, or its turn--> found --asks, a batch at a time--> answers --> posted to the fetch
  ^------ the session broke, ATTEMPTS_MAX times -------+
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from daa_dag.chunking import Manifest, decode_manifest
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot, NodeId
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.answers import answer_of, frame_of
from daa_node.network.session_pool import Lease, SessionPool, Source
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

# A session may break under us once or twice; then the peer is gone.
ATTEMPTS_MAX = 3
RETRY_WAIT_S = 0.2  # doubled each time


@dataclass(frozen=True, slots=True)
class Joined:
    source: Source
    manifest: Manifest | None
    have: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class Answered:
    source: Source
    indices: tuple[int, ...]
    payloads: tuple[memoryview | None, ...]


@dataclass(frozen=True, slots=True)
class Broke:
    """The session is over; `for_good` if the source will not be tried again."""

    source: Source
    why: str
    for_good: bool
    declined: bool = False  # it said that it does not have the blob


News = Joined | Answered | Broke


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


class BlobSource:
    """The talk with one source."""

    def __init__(self, source: Source, download: Download) -> None:
        self._source = source
        self._download = download
        self._queued: deque[int] = deque()  # asked by the machine, not yet sent
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        self._banned = False
        self._heard_s = 0.0  # when it last said something, or had nothing to say
        self._answered = False  # an answer of it waits for us: it is we who are slow

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
                with trio.move_on_after(wait_s):
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
                except PeerFault as fault:
                    download.on_fault(source.node_id, fault)
                    await download.post.send(Broke(source, str(fault), for_good=True))
                    return
                except _Declined as refusal:
                    await download.post.send(Broke(source, str(refusal), True, declined=True))
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
        """Raises Unavailable, PeerFault or _Declined; ends in no other way than by cancellation."""
        source, download = self._source, self._download
        await download.post.send(await self._find(lease))
        pending: deque[tuple[int, ...]] = deque()
        while True:
            while self._queued:
                lease.clean = False
                pending.append(self._batch())
                request = ChunksRequest(download.kind, download.root, pending[-1])
                await lease.stream.send_frame(encode_request(request))
            if not pending:
                lease.clean = True
                self._wake = trio.Event()
                await self._wake.wait()
                continue
            with download.pool.waits.waiting(source.node_id):
                answer = decode_answer(await answer_of(lease))
            indices = pending.popleft()
            lease.clean = not pending
            if isinstance(answer, Refused):
                raise _Declined(answer.reason)
            if not isinstance(answer, Chunks) or len(answer.payloads) != len(indices):
                lease.clean = False
                raise PeerFault("malformed", f"no answer for {len(indices)} chunks")
            self._answered = True
            await download.post.send(Answered(source, indices, answer.payloads))
            self._answered = False

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
        return Joined(source, manifest, found.have)

    async def _receive_manifest(self, lease: Lease, found: Found) -> Manifest:
        encoded = bytearray(found.manifest)
        size_bytes = len(encoded) + found.following_bytes
        while len(encoded) < size_bytes:
            part = await frame_of(lease)
            if not part:
                raise PeerFault("malformed", "an empty part of a manifest")
            encoded += part
        try:
            manifest = decode_manifest(bytes(encoded))
        except DagError as fault:
            raise PeerFault("malformed", f"manifest: {fault}") from None
        if manifest.root != self._download.root:
            raise PeerFault("manifest-mismatch", "the manifest is another blob's")
        return manifest

    def _batch(self) -> tuple[int, ...]:
        """As many of the queued asks as one answer may hold, ascending."""
        manifest, queued = self._download.manifest, self._queued
        assert manifest is not None
        batch = [queued.popleft()]
        size_bytes = manifest.sizes[batch[0]]
        while queued and len(batch) < CHUNKS_PER_REQUEST_MAX:
            size_bytes += manifest.sizes[queued[0]]
            if size_bytes > ANSWER_BYTES_MAX:
                break
            batch.append(queued.popleft())
        return tuple(sorted(batch))


class _Declined(Exception):
    """The source does not have the blob, or its copy is damaged; it said so."""
