"""The bulk channel: AEAD frames over a socket of their own, agreed over an authenticated stream.

A session starts on a libp2p stream, whose ends noise has proved, with the hybrid handshake of
identity/session.py. Then the initiator dials one of the responder's endpoints and shows the token:

    initiator                       responder's listener
    token, proof                -->
                            <--     proof of its own
    frames                     <->  frames

If no endpoint answers, or the peer names none (a browser, a node behind a relay), the initiator
says "relay" on the stream and the same frames run there. Whichever path takes the token first has
the session: keys never serve two paths, so no counter is used twice.

When all sessions are taken, whoever holds most gives up its oldest for whoever holds fewer: fetches
resume, and no few peers keep the others out. Members give way to members only, others to all.

Whoever connects without a token costs a task and 64 bytes, for 5 s at most, in a waiting room: an
honest peer speaks at once. While no token waits, nobody is let in at all.
"""

import hmac
import ipaddress
import socket
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import trio

from daa_dag.ids import NodeId
from daa_node.adapters.descriptors import ACCEPT_BACKLOG, Gate, Shortage, serve
from daa_node.adapters.sealed_stream import (
    Pipe,
    RelayPipe,
    SealedStream,
    SocketPipe,
    close_quietly,
)
from daa_node.adapters.waiting_room import WaitingRoom
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.session import (
    ENDPOINTS_MAX,
    KEY_BYTES,
    MESSAGE_BYTES_MAX,
    NONCE_BYTES,
    PROOF_BYTES,
    TOKEN_LIFETIME_S,
    Endpoint,
    Initiator,
    Local,
    Remote,
    Responder,
    SessionKeys,
    TokenTable,
    refusal,
)
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

NodeOf = Callable[[PeerId], NodeId | None]  # whom the peer's record, or its hello, proved it to be

RELAY = b"relay"
WORD_BYTES_MAX = 16
# Four messages and a few signatures; the rest is the slowest link that we would want to use.
HANDSHAKE_TIMEOUT_S = 10.0
DIAL_TIMEOUT_S = 2.0  # one round trip and a half; who cannot be dialled is relayed instead
DIAL_STAGGER_S = 0.05  # between endpoints: the first that works usually wins alone
# A peer that could not be dialled is not dialled again for a minute: each attempt costs 2 s.
UNDIALABLE_FOR_S = 60.0
UNDIALABLE_MAX = 1024
PREFACE_TIMEOUT_S = 5.0
UNPROVEN_SOCKETS_MAX = 64
ACCEPTS_PER_S = 200.0  # four sessions of each of a hundred members may begin at once
SESSIONS_PER_PEER_MAX = 8  # inbound; each may hold two frames
SESSIONS_MAX = 256
# Descriptors: theirs, newcomers, and ours towards every member.
SOCKETS_MAX = SESSIONS_MAX + UNPROVEN_SOCKETS_MAX + 128
# A peer that reuses its sessions needs a few a minute. One costs us 1.5 ms: of as many peers as may
# look on by default, 5 % of a core.
HANDSHAKES_PER_MINUTE_MAX = 30
# A guest asks for blobs and sends nothing else: no memory is set aside for more than a request.
GUEST_FRAME_BYTES_MAX = 2 * BLOB_REQUEST_BYTES_MAX
# What the kernel queues for a guest, who may never take it; it counts each packet's own memory as
# well. A guest 100 ms away gets 1 MB/s over each of four sessions.
GUEST_QUEUE_BYTES = 128 * 1024
# Unsent bytes that the kernel holds before it calls a socket writable again: trio's 16 KiB would
# wake us for every few packets of a bulk transfer.
NOTSENT_BYTES = 512 * 1024
_TCP_NOTSENT_LOWAT = 25  # Linux; the socket module names it from Python 3.12 on


@dataclass(frozen=True, slots=True)
class Listen:
    """Where sockets are accepted: an IP address, and a port or 0 for any free one."""

    host: str
    port: int = 0


class BulkChannel:
    """BulkTransport over TCP. `run` accepts sockets and sessions; `open` works once it runs."""

    def __init__(
        self,
        local: Local,
        transport: Transport,
        entropy: Entropy,
        node_of: NodeOf,
        on_fault: OnFault,
        listen: Listen | None,
        shortage: Shortage | None = None,
    ) -> None:
        """`listen` None: we cannot be dialled, peers' sessions with us are relayed."""
        self._sessions_max = SESSIONS_MAX
        self._local = local
        self._transport = transport
        self._entropy = entropy
        self._node_of = node_of
        self._on_fault = on_fault
        self._listen = listen
        self._handler: FrameHandler | None = None
        self._is_member: IsMember = _nobody
        self._port = 0
        self._tokens: TokenTable[PeerId] = TokenTable()
        # Sessions, and handshakes on their way to one, oldest first.
        self._inbound: dict[PeerId, dict[trio.CancelScope, None]] = {}
        self._handshakes: Counter[PeerId] = Counter()  # in the current minute
        self._minute = 0
        self._unproven = WaitingRoom(UNPROVEN_SOCKETS_MAX)
        self._shortage = shortage or Shortage()
        self._undialable: OrderedDict[PeerId, float] = OrderedDict()  # until when

    @property
    def port(self) -> int:
        """Of our listener; 0 without one, or before run() has started."""
        return self._port

    def set_handler(self, handler: FrameHandler, is_member: IsMember) -> None:
        self._handler = handler
        self._is_member = is_member

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises OSError when the port is taken."""
        assert self._handler is not None
        self._transport.set_handler(BULK, self._on_stream)
        if self._listen is None:
            task_status.started()
            await trio.sleep_forever()
            return
        listeners = await trio.open_tcp_listeners(
            self._listen.port, host=self._listen.host, backlog=ACCEPT_BACKLOG
        )
        self._port = listeners[0].socket.getsockname()[1]
        task_status.started()
        async with trio.open_nursery() as nursery:
            gate = Gate(SESSIONS_MAX + UNPROVEN_SOCKETS_MAX, ACCEPTS_PER_S, self._shortage)
            for listener in listeners:
                nursery.start_soon(serve, listener, self._on_socket, gate)

    # The initiator's side

    async def open(self, peer_id: PeerId) -> FrameStream:
        """A fresh session. Raises Unavailable, or PeerFault when the peer breaks the handshake."""
        remote = self._remote(peer_id)
        control = await self._transport.open_stream(peer_id, BULK)
        handed_over = False
        try:
            with _in_time("open a session"):
                keys = await self._agree(control, remote)
            stream = await self._dial(peer_id, keys)
            if stream is not None:
                return SealedStream(SocketPipe(stream), keys)
            with _in_time("relay a session"):
                await write_message(control, RELAY)
            handed_over = True
            return SealedStream(RelayPipe(control), keys)
        finally:
            if not handed_over:
                await close_quietly(control)

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

    async def _dial(self, peer_id: PeerId, keys: SessionKeys) -> trio.SocketStream | None:
        """The first endpoint that proves to hold the session; None when none does in 2 s."""
        now_s = trio.current_time()
        if now_s < self._undialable.get(peer_id, 0.0):
            return None
        endpoints = [e for e in keys.endpoints if _is_address(e.host)]
        won: list[trio.SocketStream] = []

        async def attempt(index: int, endpoint: Endpoint) -> None:
            await trio.sleep(index * DIAL_STAGGER_S)
            stream = await _greet(endpoint, keys)
            if stream is not None:
                won.append(stream)  # only one can: the token is good once
                nursery.cancel_scope.cancel()

        with trio.move_on_after(DIAL_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                for index, endpoint in enumerate(endpoints):
                    nursery.start_soon(attempt, index, endpoint)
        if won:
            self._undialable.pop(peer_id, None)
            return won[0]
        if endpoints:
            self._undialable[peer_id] = now_s + UNDIALABLE_FOR_S
            if len(self._undialable) > UNDIALABLE_MAX:
                self._undialable.popitem(last=False)
        return None

    # The responder's side

    async def _on_stream(self, control: ByteStream) -> None:
        """A peer opens a session: shake hands, then wait for its socket, or for "relay"."""
        try:
            self._check_room(control.peer_id)
            with self._slot(control.peer_id):
                await self._respond(control)
        except PeerFault as fault:
            self._on_fault(control.peer_id, fault)
            await _refuse(control, fault.reason)
        except Unavailable as reason:
            await _refuse(control, str(reason))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer hung up: it knows
        finally:
            await close_quietly(control)

    async def _respond(self, control: ByteStream) -> None:
        peer_id = control.peer_id
        remote = self._remote(peer_id)
        self._count_handshake(peer_id)
        with _in_time("answer a session"):
            responder = Responder(
                self._local, remote, self._entropy.bytes(NONCE_BYTES), self._endpoints()
            )
            opening = await _next_message(control)
            await write_message(control, responder.on_opening(opening))
            confirmation = await _next_message(control)
            ready, keys = responder.on_confirmation(confirmation)
            self._tokens.issue(keys, peer_id, peer_id, trio.current_time())
        try:
            with trio.fail_after(TOKEN_LIFETIME_S):
                await write_message(control, ready)
                word = await read_message_or_end(control, WORD_BYTES_MAX)
        except trio.TooSlowError:
            word = None
        finally:
            # whatever this stream says, a session that has its socket is no longer its business
            unspent = self._tokens.withdraw(keys.token)
        if word == RELAY and unspent:
            await self._serve(RelayPipe(control), keys, peer_id)

    def _check_room(self, peer_id: PeerId) -> None:
        """Raises Unavailable when the peer, or all together, hold or open too many sessions."""
        held = self._held_by(peer_id)
        if held >= SESSIONS_PER_PEER_MAX:
            raise Unavailable(f"busy: {SESSIONS_PER_PEER_MAX} sessions a peer")
        if sum(map(len, self._inbound.values())) >= self._sessions_max:
            crowd = self._who_gives_way(peer_id)
            if crowd is None:
                raise Unavailable(f"busy: {self._sessions_max} sessions")
            oldest = next(iter(self._inbound[crowd]))
            self._leave(crowd, oldest)
            oldest.cancel()

    def _who_gives_way(self, peer_id: PeerId) -> PeerId | None:
        """A guest for any member; else who holds most of the same kind, if that is more."""
        guests = [peer for peer in self._inbound if not self._is_member(peer)]
        if self._is_member(peer_id) and guests:
            return max(guests, key=self._held_by)
        equals = list(self._inbound) if self._is_member(peer_id) else guests
        crowd = max(equals, key=self._held_by, default=None)
        fewer = crowd is not None and self._held_by(peer_id) + 2 <= self._held_by(crowd)
        return crowd if fewer else None

    def _held_by(self, peer_id: PeerId) -> int:
        return len(self._inbound.get(peer_id, ()))

    def _count_handshake(self, peer_id: PeerId) -> None:
        minute = int(trio.current_time() // 60)
        if minute != self._minute:
            self._minute = minute
            self._handshakes.clear()
        self._handshakes[peer_id] += 1
        if self._handshakes[peer_id] > HANDSHAKES_PER_MINUTE_MAX:
            raise Unavailable("busy: too many sessions a minute")

    @contextmanager
    def _slot(self, peer_id: PeerId) -> Iterator[None]:
        """Holds one; what is done within may be cut off for somebody else's sake."""
        with trio.CancelScope() as scope:
            self._inbound.setdefault(peer_id, {})[scope] = None
            try:
                yield
            finally:
                self._leave(peer_id, scope)

    def _leave(self, peer_id: PeerId, scope: trio.CancelScope) -> None:
        held = self._inbound.get(peer_id, {})
        held.pop(scope, None)
        if not held:
            self._inbound.pop(peer_id, None)

    async def _on_socket(self, stream: trio.SocketStream) -> None:
        """A socket from anyone at all: 64 bytes decide."""
        try:
            admitted = await self._admit(stream)
            if admitted is not None:
                keys, peer_id = admitted
                with self._slot(peer_id):
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
        with trio.move_on_after(PREFACE_TIMEOUT_S) as scope:
            self._unproven.enter(_host_at(stream), scope)
            try:
                preface = await _read(stream, KEY_BYTES + PROOF_BYTES)
            finally:
                self._unproven.leave(scope)
            token, proof = preface[:KEY_BYTES], preface[KEY_BYTES:]
            return self._tokens.redeem(token, proof, trio.current_time())
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

    def _endpoints(self) -> tuple[Endpoint, ...]:
        if self._listen is None:
            return ()
        if not ipaddress.ip_address(self._listen.host).is_unspecified:
            return (Endpoint(self._listen.host, self._port),)
        hosts = dict.fromkeys(_host_of(address) for address in self._transport.addresses())
        known = [host for host in hosts if host is not None]
        return tuple(Endpoint(host, self._port) for host in known[:ENDPOINTS_MAX])


def _nobody(_peer_id: PeerId) -> bool:
    return False


async def _greet(endpoint: Endpoint, keys: SessionKeys) -> trio.SocketStream | None:
    """Connect and exchange proofs; None when that fails for any reason."""
    try:
        stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
    except OSError:
        return None
    proved = False
    try:
        tune(stream)
        await stream.send_all(keys.token + keys.dial_proof())
        proof = await _read(stream, PROOF_BYTES)
        # a stranger may sit at an address that the peer has in its own network and we in ours
        proved = hmac.compare_digest(proof, keys.welcome_proof())
    except trio.BrokenResourceError:
        return None
    finally:
        if not proved:
            await close_quietly(stream)
    return stream if proved else None


async def _read(stream: trio.SocketStream, size_bytes: int) -> bytes:
    """`size_bytes` bytes, fewer at an early end."""
    taken = b""
    while len(taken) < size_bytes:
        piece = await stream.receive_some(size_bytes - len(taken))
        if not piece:
            break
        taken += piece
    return taken


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


def tune(stream: trio.SocketStream) -> None:
    """Fit the socket to bulk; what this kernel does not offer is left as it is."""
    if sys.platform != "linux":
        return
    with suppress(OSError):
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, NOTSENT_BYTES)
    # cubic wastes 90 % of a link at 1 % loss, bbr under a tenth (measured: 20 Mbit/s, 100 ms). On
    # loopback nothing is lost, and bbr's pacing halves the throughput (1.8 instead of 5.5 GiB/s).
    algorithm = b"cubic" if _is_loopback(stream) else b"bbr"
    with suppress(OSError):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm)


def _is_loopback(stream: trio.SocketStream) -> bool:
    host = _host_at(stream)
    return host is not None and ipaddress.ip_address(host.split("%")[0]).is_loopback


def _host_at(stream: trio.SocketStream) -> str | None:
    """Who is at the other end; None when nobody is any more."""
    with suppress(OSError):
        return str(stream.socket.getpeername()[0])
    return None


def _is_address(host: str) -> bool:
    """Peers may name addresses only: a name would let them make us ask our resolver anything.

    So would the zone of an IPv6 address, which means nothing on another host.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def _host_of(address: str) -> str | None:
    """The IP address in a multiaddr; None for a name, a relay or an unspecified address."""
    parts = address.split("/")
    if len(parts) < 3 or parts[1] not in ("ip4", "ip6") or "p2p-circuit" in parts:
        return None
    if not _is_address(parts[2]) or ipaddress.ip_address(parts[2]).is_unspecified:
        return None
    return parts[2]
