"""A source that fetches the same blob as we do, and has a part of it: asked for chunks by number.

Each few chunks take a session from the pool and put it back, so that fetches which relay for each
other never wait in a circle for sessions that all of them hold. What it is said to have and has
not is no fault of its own: whoever spreads the blob said so.
"""

from collections import deque

import trio

from daa_node.errors import PeerFault, Unavailable
from daa_node.network.answers import answer_of
from daa_node.network.blob_source import (
    CUT,
    RETRY_WAIT_S,
    Answered,
    Broke,
    Download,
    Told,
    batch_of,
)
from daa_node.network.session_pool import Lease, Source
from daa_node.wire.blob_messages import (
    Answer,
    Chunks,
    ChunksRequest,
    Refusal,
    Refused,
    Shared,
    ShareRequest,
    decode_answer,
    encode_request,
)

BATCHES_AT_ONCE = 8  # asked on one session: all that a relay may owe is under way at once
RELAY_ATTEMPTS_MAX = 2  # then there are others


class RelaySource:
    """The talk with one of them. Called as a BlobSource is."""

    def __init__(self, source: Source, download: Download) -> None:
        self._source = source
        self._download = download
        self._queued: deque[int] = deque()
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        self._banned = False
        self._heard_s = 0.0
        self._answered = False
        self._is_open = False
        self._looks = False  # it is to say what it has by now
        self.said = trio.Event()
        self.said.set()  # it spreads nothing

    def ask(self, index: int) -> None:
        if not self._queued:
            self._heard_s = trio.current_time()
        self._queued.append(index)
        self._wake.set()

    def heard(self) -> None:
        self._heard_s = trio.current_time()

    def drop_asks(self) -> None:
        self._queued.clear()

    def look(self) -> None:
        """Ask what it has by now: nobody else may tell."""
        self._looks = True
        self._wake.set()

    def gained(self) -> None:
        """It does not care."""

    def finish(self) -> None:
        """Nor for this."""

    def ban(self) -> None:
        self._banned = True
        self._scope.cancel()

    def is_silent(self, now_s: float, patience_s: float) -> bool:
        if self._answered:
            return False
        if not self._is_open:  # in a first round all open sessions with all, which takes its time
            patience_s = max(patience_s, self._download.pool.opening_limit_s)
        return now_s - self._heard_s > patience_s

    async def run(self) -> None:
        """Until the fetch is over, or the source is useless or banned."""
        source, download = self._source, self._download
        with self._scope:
            for attempt in range(RELAY_ATTEMPTS_MAX):
                reused = False
                try:
                    while True:
                        self._wake = trio.Event()
                        if not (self._queued or self._looks):
                            await self._wake.wait()
                        async with download.pool.lease(source) as lease:
                            reused, lease.clean = lease.reused, False
                            self._is_open, self._heard_s = True, trio.current_time()
                            try:
                                await self._take_turns(lease)
                            finally:
                                self._is_open = False
                                lease.clean = lease.clean and not self._banned
                except PeerFault as fault:
                    download.on_fault(source.node_id, fault)
                    await download.post.send(Broke(source, str(fault), for_good=True))
                    return
                except (Unavailable, *CUT) as reason:
                    if not reused:
                        download.pool.waits.failed(source.node_id)
                    last = attempt + 1 == RELAY_ATTEMPTS_MAX
                    await download.post.send(Broke(source, str(reason), for_good=last))
                    await trio.sleep(RETRY_WAIT_S)

    async def _take_turns(self, lease: Lease) -> None:
        """Raises Unavailable or PeerFault; ends when nothing more is asked of it."""
        source, download = self._source, self._download
        assert download.manifest is not None
        pending: deque[tuple[tuple[int, ...], float]] = deque()
        while self._queued or self._looks or pending:
            if self._looks and len(pending) < BATCHES_AT_ONCE:
                self._looks = lease.clean = False
                pending.append(((), trio.current_time()))
                look = ShareRequest(download.kind, download.root, 0, (), download.have)
                await lease.stream.send_frame(encode_request(look))
            while self._queued and len(pending) < BATCHES_AT_ONCE:
                lease.clean = False
                batch = batch_of(self._queued, download)
                pending.append((batch, trio.current_time()))
                request = ChunksRequest(download.kind, download.root, batch)
                await lease.stream.send_frame(encode_request(request))
            with download.pool.waits.waiting(source.node_id):
                answer = decode_answer(await answer_of(lease))
            indices, since_s = pending.popleft()
            lease.clean = not pending
            if not indices:
                await self._note_look(answer)
                continue
            payloads: tuple[memoryview | None, ...] = (None,) * len(indices)
            if isinstance(answer, Chunks) and len(answer.payloads) == len(indices):
                payloads = answer.payloads
            elif not isinstance(answer, Refused):
                lease.clean = False
                raise PeerFault("malformed", f"no answer for {len(indices)} chunks")
            if any(payload is not None for payload in payloads):  # else it teaches nothing
                download.patience.took(trio.current_time() - since_s)
            self._answered = True
            tells = not isinstance(answer, Refused) or answer.reason is Refusal.UNKNOWN
            await download.post.send(Answered(source, indices, payloads, tells))
            self._answered = False

    async def _note_look(self, answer: Answer) -> None:
        """What it has. Whom else it names is for those that take it for a holder."""
        if not isinstance(answer, Refused):
            shared = self._download.checked(answer)
            told = Shared(shared.news, shared.offered, ())
            await self._download.post.send(Told(self._source, told))
