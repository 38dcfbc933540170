"""The bulk channel: AEAD frames over a socket of their own, agreed over an authenticated stream.

A session starts on a libp2p stream, whose ends noise has proved, with the hybrid handshake of
identity/session.py. Then the initiator dials one of the responder's endpoints, which are where
libp2p listens (see bulk_door), and shows the token:

    initiator                       responder's listener
    first byte, token, proof    -->
                            <--     proof of its own
    frames                     <->  frames

If no endpoint answers, or the peer names none (a node behind a router), the initiator names its own
on the stream. The responder, if we are a member to it, dials those that are where its connection
with us comes from, with the same token and proofs. If that is no way, either, one of them says
"relay", and the same frames run on the stream:

    "dial", endpoints           -->
    first byte, token, proof    -->  at the initiator's listener     or <--  "relay"

Whichever path takes the token first has the session: keys never serve two paths, so no counter is
used twice.

Who gets a session is told in bulk_places, who is dialled in bulk_dialer.

Whoever connects without a token costs a task and 65 bytes, for 5 s at most, in the waiting room of
all that arrive: an honest peer speaks at once. While no token waits, nobody is let in at all.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import trio

from daa_dag.ids import NodeId
from daa_node.adapters.bulk_arrivals import Arrivals
from daa_node.adapters.bulk_dialer import EndpointDialer, at_its_own, near
from daa_node.adapters.bulk_door import FIRST_BYTE, BulkDoor
from daa_node.adapters.bulk_places import SESSIONS_MAX, SessionPlaces
from daa_node.adapters.bulk_sockets import endpoint_of, read_up_to, tune
from daa_node.adapters.sealed_stream import (
    Pipe,
    RelayPipe,
    SealedStream,
    SocketPipe,
    close_quietly,
)
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.session import (
    ENDPOINTS_MAX,
    KEY_BYTES,
    MESSAGE_BYTES_MAX,
    NONCE_BYTES,
    PROOF_BYTES,
    Endpoint,
    Initiator,
    Local,
    Remote,
    Responder,
    SessionKeys,
    dial_word,
    endpoints_of_word,
    refusal,
)
from daa_node.identity.session_tokens import TOKEN_LIFETIME_S, TokenTable
from daa_node.seams import (
    ByteStream,
    Entropy,
    FrameHandler,
    FrameStream,
    IsMember,
    OnFault,
    PeerId,
    Transport,
)
from daa_node.wire.blob_messages import BLOB_REQUEST_BYTES_MAX
from daa_node.wire.framing import read_message_or_end, write_message
from daa_node.wire.limits import FRAME_BYTES_MAX
from daa_node.wire.protocols import BULK

# whom we opened a session with, and how its frames go: "dialled", "dialled_by_peer", "over_stream"
OnOpened = Callable[[PeerId, str], None]
NodeOf = Callable[[PeerId], NodeId | None]  # whom the peer's record, or its hello, proved it to be
HostOf = Callable[[PeerId], str]  # where its connection comes from, see seams.Doorbell

RELAY = b"relay"
WORD_BYTES_MAX = 1024  # eight endpoints
# Four messages and a few signatures; the rest is the slowest link that we would want to use.
HANDSHAKE_TIMEOUT_S = 10.0
PREFACE_TIMEOUT_S = 5.0
SOCKETS_MAX = SESSIONS_MAX + 128  # descriptors: theirs, and ours towards every member
# A guest asks for blobs and sends nothing else: no memory is set aside for more than a request.
GUEST_FRAME_BYTES_MAX = 2 * BLOB_REQUEST_BYTES_MAX
# What the kernel queues for a guest, who may never take it; it counts each packet's own memory as
# well. A guest 100 ms away gets 1 MB/s over each of four sessions.
GUEST_QUEUE_BYTES = 128 * 1024


class BulkChannel:
    """BulkTransport over TCP. `run` takes sockets and sessions; `open` works once it runs."""

    def __init__(
        self,
        local: Local,
        transport: Transport,
        entropy: Entropy,
        node_of: NodeOf,
        on_fault: OnFault,
        host_of: HostOf,
        door: BulkDoor | None,
    ) -> None:
        """`door` None: we cannot be dialled, peers' sessions with us are relayed."""
        self._local = local
        self._transport = transport
        self._entropy = entropy
        self._node_of = node_of
        self._on_fault = on_fault
        self._host_of = host_of
        self._door = door
        self.on_opened: OnOpened = lambda _peer_id, _way: None
        self._handler: FrameHandler | None = None
        self._is_member: IsMember = _nobody
        self._tokens = TokenTable()
        self._places = SessionPlaces(lambda peer_id: self._is_member(peer_id))
        self._arrivals = Arrivals()
        self._dialer = EndpointDialer()

    def set_handler(self, handler: FrameHandler, is_member: IsMember) -> None:
        self._handler = handler
        self._is_member = is_member

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        assert self._handler is not None
        self._transport.set_handler(BULK, self._on_stream)
        if self._door is not None:
            self._door.on_socket = self._on_socket
        task_status.started()
        await trio.sleep_forever()

    # The initiator's side

    async def open(self, peer_id: PeerId) -> FrameStream:
        """A fresh session. Raises Unavailable, or PeerFault when the peer breaks the handshake."""
        remote = self._remote(peer_id)
        control = await self._transport.open_stream(peer_id, BULK)
        handed_over = False
        try:
            with _in_time("open a session"):
                keys = await self._agree(control, remote)
            named = near(keys.endpoints, self._seen_at(peer_id))
            stream = await self._dialer.dial(peer_id, replace(keys, endpoints=named))
            way = "dialled"
            if stream is None:
                stream, way = await self._be_dialled(control, keys, peer_id), "dialled_by_peer"
            handed_over = stream is None
            self.on_opened(peer_id, "over_stream" if stream is None else way)
            return SealedStream(RelayPipe(control) if stream is None else SocketPipe(stream), keys)
        finally:
            if not handed_over:
                await close_quietly(control)

    async def _be_dialled(
        self, control: ByteStream, keys: SessionKeys, peer_id: PeerId
    ) -> trio.SocketStream | None:
        """The socket that the peer opened; None if the session goes on over the stream."""
        endpoints = self._endpoints()
        with _in_time("open a socket, or relay a session"):
            if not endpoints:
                await write_message(control, RELAY)
                return None
            self._tokens.issue(keys, peer_id, trio.current_time())
            try:
                with self._arrivals.expect(keys.token) as arrival:
                    await write_message(control, dial_word(endpoints))
                    word = await arrival.or_word(control, WORD_BYTES_MAX)
                    if arrival.stream is not None:
                        return arrival.taken()
            finally:
                unspent = self._tokens.withdraw(keys.token)
        if word == RELAY and unspent:
            return None
        raise Unavailable("the peer has hung up")

    async def _agree(self, control: ByteStream, remote: Remote) -> SessionKeys:
        initiator = Initiator(self._local, remote, self._entropy.bytes(NONCE_BYTES))
        await write_message(control, initiator.opening())
        answer = await _next_message(control)
        await write_message(control, initiator.on_answer(answer))
        return initiator.on_ready(await _next_message(control))

    def _remote(self, peer_id: PeerId) -> Remote:
        node_id = self._node_of(peer_id)
        if node_id is None:
            raise Unavailable(f"{peer_id} has not said who it is")
        return Remote(node_id, peer_id)

    # The responder's side

    async def _on_stream(self, control: ByteStream) -> None:
        """A peer opens a session: shake hands, then wait for its socket, or for "relay"."""
        try:
            self._places.make_room(control.peer_id)
            with self._places.hold(control.peer_id) as place:
                await self._respond(control, place)
        except PeerFault as fault:
            self._on_fault(control.peer_id, fault)
            await _refuse(control, fault.reason)
        except Unavailable as reason:
            await _refuse(control, str(reason))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer hung up: it knows
        finally:
            await close_quietly(control)

    async def _respond(self, control: ByteStream, place: trio.CancelScope) -> None:
        peer_id = control.peer_id
        remote = self._remote(peer_id)
        self._places.count_handshake(peer_id)
        with _in_time("answer a session"):
            responder = Responder(
                self._local, remote, self._entropy.bytes(NONCE_BYTES), self._endpoints()
            )
            opening = await _next_message(control)
            await write_message(control, responder.on_opening(opening))
            confirmation = await _next_message(control)
            ready, keys = responder.on_confirmation(confirmation)
            self._tokens.issue(keys, peer_id, trio.current_time())
        try:
            with trio.fail_after(TOKEN_LIFETIME_S), self._places.await_socket(keys.token, place):
                await write_message(control, ready)
                word = await read_message_or_end(control, WORD_BYTES_MAX)
        except trio.TooSlowError:
            word = None
        finally:
            # whatever this stream says, a session that has its socket is no longer its business
            unspent = self._tokens.withdraw(keys.token)
        if not word or not unspent:
            return
        if word != RELAY:
            stream = await self._dial_back(peer_id, keys, word)
            if stream is not None:
                await close_quietly(control)
                await self._serve(SocketPipe(stream), keys, peer_id)
                return
            with _in_time("relay a session"):
                await write_message(control, RELAY)
        await self._serve(RelayPipe(control), keys, peer_id)

    async def _dial_back(
        self, peer_id: PeerId, keys: SessionKeys, word: bytes
    ) -> trio.SocketStream | None:
        """At a member's own address alone: else it could have us look for others' open ports.

        Raises PeerFault for another word.
        """
        named = endpoints_of_word(word)
        if not self._is_member(peer_id):
            return None
        own = at_its_own(named, self._seen_at(peer_id))
        return await self._dialer.dial(peer_id, replace(keys, endpoints=own))

    async def _on_socket(self, stream: trio.SocketStream, prove: Callable[[], None]) -> None:
        """A socket from anyone at all: 65 bytes decide."""
        try:
            admitted = await self._admit(stream)
            if admitted is None:
                return
            prove()
            keys, peer_id = admitted
            if keys.is_initiator:  # the session is of our asking
                await stream.send_all(keys.welcome_proof())
                self._arrivals.give(keys.token, stream)
            else:
                with self._places.take_over(peer_id, keys.token):
                    await stream.send_all(keys.welcome_proof())
                    if not self._is_member(peer_id):
                        with suppress(OSError):
                            stream.setsockopt(
                                socket.SOL_SOCKET, socket.SO_SNDBUF, GUEST_QUEUE_BYTES
                            )
                    await self._serve(SocketPipe(stream), keys, peer_id)
        except* Exception:
            # one session, as one stream of libp2p's: its owner notices, and nobody else
            pass
        finally:
            await close_quietly(stream)

    async def _admit(self, stream: trio.SocketStream) -> tuple[SessionKeys, PeerId] | None:
        if not len(self._tokens):
            return None  # nobody is expected
        tune(stream)
        with trio.move_on_after(PREFACE_TIMEOUT_S):
            preface = await read_up_to(stream, len(FIRST_BYTE) + KEY_BYTES + PROOF_BYTES)
            said = preface[len(FIRST_BYTE) :]
            return self._tokens.redeem(said[:KEY_BYTES], said[KEY_BYTES:], trio.current_time())
        return None

    async def _serve(self, pipe: Pipe, keys: SessionKeys, peer_id: PeerId) -> None:
        assert self._handler is not None
        is_member = self._is_member(peer_id)
        stream = SealedStream(pipe, keys, FRAME_BYTES_MAX if is_member else GUEST_FRAME_BYTES_MAX)
        try:
            await self._handler(stream)
        except PeerFault as fault:
            self._on_fault(peer_id, fault)
        except Unavailable:
            pass  # the peer left
        finally:
            await stream.aclose()

    def _seen_at(self, peer_id: PeerId) -> str | None:
        """None of a peer that a relay brings."""
        with suppress(Unavailable):
            return self._host_of(peer_id)
        return None

    def _endpoints(self) -> tuple[Endpoint, ...]:
        if self._door is None or not self._door.is_dialable():
            return ()
        named = dict.fromkeys(endpoint_of(address) for address in self._transport.addresses())
        return tuple(each for each in named if each is not None)[:ENDPOINTS_MAX]


def _nobody(_peer_id: PeerId) -> bool:
    return False


async def _next_message(control: ByteStream) -> bytes:
    message = await read_message_or_end(control, MESSAGE_BYTES_MAX)
    if message is None:
        raise Unavailable("the peer hung up during the handshake")
    return message


async def _refuse(control: ByteStream, reason: str) -> None:
    with trio.move_on_after(PREFACE_TIMEOUT_S):
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await write_message(control, refusal(reason))


@contextmanager
def _in_time(what: str) -> Iterator[None]:
    try:
        with trio.fail_after(HANDSHAKE_TIMEOUT_S):
            yield
    except trio.TooSlowError:
        raise Unavailable(f"peer took over {HANDSHAKE_TIMEOUT_S} s to {what}") from None
    except (trio.BrokenResourceError, trio.ClosedResourceError) as fault:
        raise Unavailable(f"stream cut: {fault}") from None
