"""One request, one response a stream; whoever asks too much is told so and nobody else notices.

How often a peer may ask is its own pace; how much work its answers may be is a share (see shares):
one for each member, one for all strangers together.

Request: canonical `[name, body]`. Response: canonical `["ok", body]` or `["refused", reason,
detail]`. Bodies are bytes that only its two ends read.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import trio

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_node.errors import NodeError, PeerFault, Unavailable
from daa_node.network.directory import Directory
from daa_node.network.link_limits import LinkLimits
from daa_node.network.shares import Shares
from daa_node.network.untaken import Piece, Untaken
from daa_node.observability.events import REQUEST_FAILED, EventLog
from daa_node.prompt_lock import PromptLock
from daa_node.seams import ByteStream, PeerId, Transport
from daa_node.wire import protocols
from daa_node.wire.blob_messages import PIECE_BYTES
from daa_node.wire.framing import TRUNCATED, message_in_pieces, read_message, write_message
from daa_node.wire.limits import KIB, REQUEST_BYTES_MAX, REQUESTS_PER_PEER_MAX


@dataclass(frozen=True, slots=True)
class Answer:
    """A response's body, and what it took to make beside its own bytes (see shares)."""

    body: bytes
    work_bytes: int = 0


RequestHandler = Callable[[PeerId, bytes], Awaitable[bytes | Answer]]

READ_TIMEOUT_S = 10.0  # a request is one small message: it is there, or its sender stalls
ANSWER_TIMEOUT_S = 30.0  # from the request to the last byte of the response
REQUESTS_PER_S_MAX = 50.0  # of one peer; a node that catches up asks for pages
REQUESTS_BURST = 200.0
# Of one stranger at a time: each waits for its turn, which with as many strangers as may be comes
# within twenty seconds. More are neither read nor answered for a while: to open a stream and to be
# refused costs us 2 ms, and whoever floods has only so many streams.
STRANGERS_REQUESTS_MAX = 2
HELD_S = 10.0
REFUSAL_BYTES_MAX = 2 * KIB
ENVELOPE_BYTES = 64  # around a body
SHORT_BYTES = 16 * KIB  # waits for no cap, as letters do not
WORD_CHARACTERS_MAX = 40
DETAIL_CHARACTERS_MAX = 400


@dataclass(slots=True)
class _Load:
    """What one peer asks of us."""

    running: int = 0
    left: float = REQUESTS_BURST
    at_s: float = 0.0
    # Of its long answers: before a letter that we relay there is one piece of each peer at most.
    turn: PromptLock = field(default_factory=PromptLock)


class Requests:
    """Both ends: `register` what we answer, `ask` others. `serve` handles protocols.REQUEST."""

    def __init__(
        self,
        transport: Transport,
        directory: Directory,
        events: EventLog,
        untaken: Untaken | None = None,
    ) -> None:
        self._transport = transport
        self._directory = directory
        self._events = events
        self._handlers: dict[str, RequestHandler] = {}
        self._of_history: set[str] = set()
        self.limits: LinkLimits | None = None  # of the link; None: as it bears
        self._loads: dict[PeerId, _Load] = {}
        self.untaken = untaken or Untaken()  # what guests have not taken, bulk answers included
        self._shares = Shares(directory, self.untaken)
        self._taking = PromptLock()  # of the long answers to us

    def register(self, name: str, handler: RequestHandler, of_history: bool = False) -> None:
        """`handler(peer, body)` gives the response's body, or an Answer; a NodeError refuses.

        `of_history`: for members, too, only while there are data enough (see link_limits).
        """
        assert name not in self._handlers
        assert len(name) <= WORD_CHARACTERS_MAX
        self._handlers[name] = handler
        if of_history:
            self._of_history.add(name)

    async def ask(
        self,
        peer_id: PeerId,
        name: str,
        body: bytes,
        response_bytes_max: int,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> bytes:
        """The peer's answer.

        Raises Unavailable when it cannot or will not answer in time, and PeerFault, counted against
        the peer, when what it sent is not a response.
        """
        request = canonical.encode([name, body])
        assert len(request) <= REQUEST_BYTES_MAX
        try:
            with trio.fail_after(timeout_s):
                stream = await self._transport.open_stream(peer_id, protocols.REQUEST)
                try:
                    await write_message(stream, request)
                    size_bytes_max = max(response_bytes_max + ENVELOPE_BYTES, REFUSAL_BYTES_MAX)
                    payload = await read_message(stream, size_bytes_max)
                finally:
                    await stream.aclose()
            await self._take_in(len(payload))
            return _opened(payload, name)
        except (trio.TooSlowError, trio.BrokenResourceError) as error:
            cause = str(error) or f"no answer within {timeout_s:.0f} s"
            raise Unavailable(f"{name} of {peer_id}: {cause}") from None
        except PeerFault as fault:
            if fault.reason == TRUNCATED:  # it went away; that is no lie
                raise Unavailable(f"{name} of {peer_id}: {fault}") from None
            self._directory.blame(peer_id, fault)
            raise

    async def _take_in(self, size_bytes: int) -> None:
        """As the cap allows it, and in pieces: members' circuits wait for their turn meanwhile."""
        if self.limits is None or size_bytes <= SHORT_BYTES:
            return
        for at in range(0, size_bytes, PIECE_BYTES):
            async with self._taking:
                await self.limits.down.take_first(min(PIECE_BYTES, size_bytes - at))

    async def serve(self, stream: ByteStream) -> None:
        peer_id = stream.peer_id
        load = self._loads.setdefault(peer_id, _Load(at_s=trio.current_time()))
        if self._shares.of(peer_id).waits and load.running >= STRANGERS_REQUESTS_MAX:
            await trio.sleep(HELD_S)
            return
        load.running += 1
        try:
            await self._serve(stream, load)
        finally:
            load.running -= 1
            self._forget_idle()

    async def _serve(self, stream: ByteStream, load: _Load) -> None:
        try:
            with trio.fail_after(READ_TIMEOUT_S):
                payload = await read_message(stream, REQUEST_BYTES_MAX)
        except PeerFault as fault:
            if fault.reason == TRUNCATED:
                raise Unavailable("it was given up before it was asked") from None
            self._directory.blame(stream.peer_id, fault)
            raise
        with trio.fail_after(ANSWER_TIMEOUT_S):
            try:
                self._check_load(load)
            except Unavailable as error:
                await write_message(stream, _refusal("unavailable", str(error)))
                return
            try:
                await self._answer(stream, payload, load.turn)
            except PeerFault as fault:
                self._directory.blame(stream.peer_id, fault)
                raise

    async def _answer(self, stream: ByteStream, payload: bytes, turn: PromptLock) -> None:
        share = self._shares.of(stream.peer_id)
        async with AsyncExitStack() as on_its_way:
            try:
                async with share.work():
                    response, work_bytes = await self._response(stream.peer_id, payload)
                    share.spend(len(response) + work_bytes)
                    # Nobody's next answer is made before there is room for this one.
                    room = share.untaken(len(response))
                    answer = await on_its_way.enter_async_context(room)
            except Unavailable as error:
                await write_message(stream, _refusal("unavailable", str(error)))
                return
            is_long, goes_first = len(response) > SHORT_BYTES, not share.waits

            async def send(piece: Piece) -> None:
                if self.limits is not None and is_long:
                    async with turn:
                        await self.limits.up.pass_through(len(piece), goes_first)
                await stream.send_all(piece)

            await answer.send(send, message_in_pieces(response, PIECE_BYTES))

    async def _response(self, peer_id: PeerId, payload: bytes) -> tuple[bytes, int]:
        name = ""
        try:
            name, body = _request_of(payload)
            handler = self._handlers.get(name)
            if handler is None:
                raise Unavailable(f"nobody here answers {name!r}")
            is_stranger = self._shares.of(peer_id).waits
            if self.limits is not None and not self.limits.may_answer(
                name in self._of_history, is_stranger
            ):
                raise Unavailable(f"today's data for {name!r} are spent: ask another node")
            answer = await handler(peer_id, body)
            if not isinstance(answer, Answer):
                answer = Answer(answer)
            return canonical.encode(["ok", answer.body]), answer.work_bytes
        except PeerFault as fault:
            self._directory.blame(peer_id, fault)
            return _refusal(fault.reason, fault.detail), 0
        except NodeError as error:
            return _refusal("unavailable", str(error)), 0
        except Exception as error:
            # one request: a mistake of ours in a handler must cost its asker an answer, no more
            self._events.emit(REQUEST_FAILED, peer_id=peer_id, request=name, error=repr(error))
            return _refusal("internal", type(error).__name__), 0

    def _check_load(self, load: _Load) -> None:
        now_s = trio.current_time()
        earned = (now_s - load.at_s) * REQUESTS_PER_S_MAX
        load.left, load.at_s = min(REQUESTS_BURST, load.left + earned) - 1, now_s
        if load.running > REQUESTS_PER_PEER_MAX:
            raise Unavailable(f"busy: {REQUESTS_PER_PEER_MAX} of your requests are running")
        if load.left < 0:
            load.left = 0
            raise Unavailable(f"too fast: at most {REQUESTS_PER_S_MAX:.0f} requests a second")

    def _forget_idle(self) -> None:
        """A peer whose allowance has filled up again needs no entry."""
        now_s = trio.current_time()
        full_after_s = REQUESTS_BURST / REQUESTS_PER_S_MAX
        idle = [
            p for p, v in self._loads.items() if not v.running and now_s - v.at_s > full_after_s
        ]
        for peer_id in idle:
            del self._loads[peer_id]


def _request_of(payload: bytes) -> tuple[str, bytes]:
    try:
        value = canonical.decode(payload, REQUEST_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("request-malformed", str(fault)) from None
    if not isinstance(value, list) or len(value) != 2:
        raise PeerFault("request-malformed", "a request is a name and a body")
    name, body = value
    if not isinstance(name, str) or not isinstance(body, bytes) or len(name) > WORD_CHARACTERS_MAX:
        raise PeerFault("request-malformed", "a request is a name and a body")
    return name, body


def _refusal(reason: str, detail: str) -> bytes:
    return canonical.encode(["refused", reason, detail[:DETAIL_CHARACTERS_MAX]])


def _opened(payload: bytes, name: str) -> bytes:
    try:
        value = canonical.decode(payload, len(payload))
    except NotCanonical as fault:
        raise PeerFault("response-malformed", str(fault)) from None
    match value:
        case ["ok", bytes(body)]:
            return body
        case ["refused", str(reason), str(detail)] if len(payload) <= REFUSAL_BYTES_MAX:
            raise Unavailable(f"{name} refused: {reason}: {detail}")
        case _:
            raise PeerFault("response-malformed", f"neither an answer to {name} nor a refusal")
