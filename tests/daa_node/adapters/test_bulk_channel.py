"""The bulk channel on real sockets: handshakes, tokens, frames, floods and the fallback."""

import os
import socket
import struct
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
import trio.testing

from daa_node.adapters import bulk_dialer, bulk_places
from daa_node.adapters.bulk_channel import (
    HANDSHAKE_TIMEOUT_S,
    PREFACE_TIMEOUT_S,
)
from daa_node.adapters.bulk_door import FIRST_BYTE
from daa_node.adapters.bulk_sockets import read_up_to
from daa_node.adapters.libp2p_sockets import ARRIVING_MAX
from daa_node.adapters.sealed_stream import RelayPipe, SealedStream, SocketPipe
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.frames import HEADER_BYTES
from daa_node.identity.keys import NodeKeys
from daa_node.identity.session import (
    Endpoint,
    Remote,
    Responder,
)
from daa_node.seams import (
    ByteStream,
    FrameStream,
)
from daa_node.wire.framing import read_message, write_message
from daa_node.wire.limits import FRAME_BYTES_MAX
from daa_node.wire.protocols import BULK
from tests.daa_node.adapters.bulk_nodes import (
    Node,
    handshake,
    nodes,
    until,
)


async def test_frames_of_every_size_come_back_over_a_socket() -> None:
    async with nodes() as (alice, bob):
        bob.members |= {alice.peer_id}
        stream = await alice.bulk.open(bob.peer_id)
        assert isinstance(stream, SealedStream)
        assert isinstance(stream._pipe, SocketPipe)
        assert stream.node_id == bob.keys.node_id
        for size_bytes in (0, 1, 65_535, FRAME_BYTES_MAX, 10):
            payload = os.urandom(size_bytes)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.send_frame, payload)
                assert await stream.receive_frame() == payload
        await stream.aclose()
        assert bob.faults == alice.faults == []


async def test_a_mistake_of_ours_in_a_session_ends_that_session_alone() -> None:
    """Over a socket as over a stream, where the library's host sees to it."""

    async def stumbles(stream: FrameStream) -> None:
        raise KeyError((await stream.receive_frame() or b"").decode())

    async with nodes(handler=stumbles) as (alice, bob):
        for _ in range(2):
            stream = await alice.bulk.open(bob.peer_id)
            assert isinstance(stream, SealedStream)
            assert isinstance(stream._pipe, SocketPipe)
            await stream.send_frame(b"words")
            with trio.fail_after(30):
                assert await stream.receive_frame() is None
            await stream.aclose()


async def test_a_closed_session_ends_cleanly_on_the_other_side() -> None:
    ends: list[bytes | None] = []

    async def note(stream: FrameStream) -> None:
        ends.append(await stream.receive_frame())
        ends.append(await stream.receive_frame())

    async with nodes(handler=note) as (alice, bob):
        await (await alice.bulk.open(bob.peer_id)).aclose()
        await until(lambda: ends == [None, None])


async def cut(stream: SealedStream) -> None:
    await trio.aclose_forcefully(stream._pipe._stream)  # type: ignore[attr-defined]


async def test_a_stream_cut_before_its_end_frame_is_not_a_clean_end() -> None:
    seen: list[str] = []

    async def note(stream: FrameStream) -> None:
        try:
            await stream.receive_frame()
        except Unavailable as reason:
            seen.append(str(reason))

    async with nodes(handler=note) as (alice, bob):
        stream = await alice.bulk.open(bob.peer_id)
        assert isinstance(stream, SealedStream)
        await cut(stream)
        await until(lambda: bool(seen))
        assert "cut" in seen[0]
        assert bob.faults == []  # the network does that too


async def test_a_changed_byte_on_the_socket_ends_the_session_and_is_reported() -> None:
    async with nodes() as (alice, bob):
        stream = await alice.bulk.open(bob.peer_id)
        assert isinstance(stream, SealedStream)
        frame = bytearray(HEADER_BYTES + 16 + 5)
        stream._sealer.seal_into(b"words", 0, memoryview(frame))
        frame[-1] ^= 1
        await stream._pipe.send_all(memoryview(frame))
        await until(lambda: bob.faults == [(alice.peer_id, "bad-frame")])


async def test_an_oversized_frame_is_refused_by_its_header_and_never_buffered() -> None:
    async with nodes() as (alice, bob):
        stream = await alice.bulk.open(bob.peer_id)
        assert isinstance(stream, SealedStream)
        await stream._pipe.send_all(memoryview(b"\xff\xff\xff\xff\x00"))
        await until(lambda: bob.faults == [(alice.peer_id, "oversize")])


async def test_frames_reflected_to_their_sender_do_not_open() -> None:
    async def reflect(stream: FrameStream) -> None:
        assert isinstance(stream, SealedStream)
        raw = bytearray(1000)
        size_bytes = await stream._pipe.receive_into(memoryview(raw))
        await stream._pipe.send_all(memoryview(raw)[:size_bytes])

    async with nodes(handler=reflect) as (alice, bob):
        stream = await alice.bulk.open(bob.peer_id)
        await stream.send_frame(b"words")
        with pytest.raises(PeerFault, match="bad-frame"):
            await stream.receive_frame()


async def test_without_a_listener_the_same_frames_run_over_the_control_stream() -> None:
    async with nodes(bob_listens=False) as (alice, bob):
        bob.members |= {alice.peer_id}
        stream = await alice.bulk.open(bob.peer_id)
        assert isinstance(stream, SealedStream)
        assert isinstance(stream._pipe, RelayPipe)
        payload = os.urandom(FRAME_BYTES_MAX)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_frame, payload)
            assert await stream.receive_frame() == payload
        await stream.aclose()


async def test_a_port_that_refuses_is_relayed_at_once_and_not_dialled_again_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_dialer, "DIAL_TIMEOUT_S", 30.0)  # at once, on a slow machine as well
    async with nodes() as (alice, bob):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            bob.port = closed.getsockname()[1]
        started_s = trio.current_time()
        stream = await alice.bulk.open(bob.peer_id)
        assert trio.current_time() - started_s < 15.0
        await stream.send_frame(b"words")
        assert await stream.receive_frame() == b"words"
        assert bob.peer_id in alice.bulk._dialer._undialable
        await stream.aclose()


async def test_an_address_that_is_none_to_the_resolver_is_not_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An IPv6 zone is the peer's own affair, and what stands there is any text."""
    zones = ("a" * 60, "..", "eth0")
    named = tuple(Endpoint(f"::1%{zone}", 7) for zone in zones)
    async with nodes() as (alice, bob):
        monkeypatch.setattr(bob.bulk, "_endpoints", lambda: named)
        stream = await alice.bulk.open(bob.peer_id)
        await stream.send_frame(b"words")
        assert await stream.receive_frame() == b"words"
        assert bob.peer_id not in alice.bulk._dialer._undialable


async def test_a_port_that_swallows_everything_is_relayed_after_two_seconds() -> None:
    async with nodes() as (alice, bob):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            bob.port = silent.getsockname()[1]
            started_s = trio.current_time()
            stream = await alice.bulk.open(bob.peer_id)
        assert 1.9 < trio.current_time() - started_s < HANDSHAKE_TIMEOUT_S
        await stream.send_frame(b"words")
        assert await stream.receive_frame() == b"words"


async def test_a_stranger_at_the_named_port_is_not_taken_for_the_peer() -> None:
    async def stranger(stream: trio.SocketStream) -> None:
        await read_up_to(stream, 65)
        await stream.send_all(bytes(32))

    async with nodes() as (alice, bob), trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, stranger, 0)
        bob.port = listeners[0].socket.getsockname()[1]
        stream = await alice.bulk.open(bob.peer_id)
        assert isinstance(stream, SealedStream)
        assert isinstance(stream._pipe, RelayPipe)
        nursery.cancel_scope.cancel()


async def dial(bob: Node, preface: bytes) -> tuple[trio.SocketStream, bytes]:
    stream = await trio.open_tcp_stream("127.0.0.1", bob.port)
    try:
        await stream.send_all(preface)
        return stream, bytes(await stream.receive_some(32))
    except trio.BrokenResourceError:
        return stream, b""


async def test_a_replayed_token_opens_nothing() -> None:
    async with nodes() as (alice, bob):
        _, keys = await handshake(alice, bob)
        # the handshake above waits for its socket; a token already used is dead even so
        first, welcome = await dial(bob, FIRST_BYTE + keys.token + keys.dial_proof())
        assert welcome == keys.welcome_proof()
        second, nothing = await dial(bob, FIRST_BYTE + keys.token + keys.dial_proof())
        assert nothing == b""
        await first.aclose()
        await second.aclose()


async def test_a_token_spent_on_a_socket_cannot_be_relayed_too() -> None:
    """Two paths under one key would use every counter twice."""
    async with nodes() as (alice, bob):
        control, keys = await handshake(alice, bob)
        first, welcome = await dial(bob, FIRST_BYTE + keys.token + keys.dial_proof())
        assert welcome == keys.welcome_proof()
        with suppress(trio.BrokenResourceError):  # the stream is being closed
            await write_message(control, b"relay")
            assert await control.receive_some(1) == b""
        await first.aclose()


@pytest.mark.parametrize("last_words", [b"", b"\0"])
async def test_who_hangs_up_instead_of_dialling_leaves_no_token_behind(last_words: bytes) -> None:
    async with nodes() as (alice, bob):
        control, _ = await handshake(alice, bob)
        assert len(bob.bulk._tokens) == 1
        await control.send_all(last_words)  # of a message that never ends
        await control.aclose()
        await until(lambda: not len(bob.bulk._tokens))


async def test_a_session_over_a_socket_takes_one_place_and_no_stream() -> None:
    async with nodes() as (alice, bob):
        stream = await alice.bulk.open(bob.peer_id)
        await until(lambda: bob.bulk._places.held_by(alice.peer_id) == 1)
        await stream.send_frame(b"words")
        assert await stream.receive_frame() == b"words"
        assert bob.bulk._places.held_by(alice.peer_id) == 1
        assert not len(bob.doorway.arrivals)  # nobody who arrives drives it out
        await stream.aclose()


async def test_a_token_spent_on_the_relay_opens_no_socket() -> None:
    async with nodes() as (alice, bob):
        control, keys = await handshake(alice, bob)
        await write_message(control, b"relay")
        stream = SealedStream(RelayPipe(control), keys)
        await stream.send_frame(b"words")
        assert await stream.receive_frame() == b"words"
        _, nothing = await dial(bob, FIRST_BYTE + keys.token + keys.dial_proof())
        assert nothing == b""


async def test_a_peer_that_the_directory_does_not_know_gets_no_session() -> None:
    async with nodes() as (alice, bob):
        bob.known.clear()
        with pytest.raises(Unavailable, match="refused.*who it is"):
            await alice.bulk.open(bob.peer_id)
        alice.known.clear()
        with pytest.raises(Unavailable, match="who it is"):
            await alice.bulk.open(bob.peer_id)


async def test_a_peer_under_another_node_id_is_reported_and_refused() -> None:
    async with nodes() as (alice, bob):
        bob.known[alice.peer_id] = NodeKeys.from_seed(b"mallory").node_id
        with pytest.raises(Unavailable, match="identity-mismatch"):
            await alice.bulk.open(bob.peer_id)
        assert bob.faults == [(alice.peer_id, "identity-mismatch")]


async def test_garbage_on_the_control_stream_is_a_fault_and_a_refusal() -> None:
    async with nodes() as (alice, bob):
        for garbage in (b"", b"\x00" * 100, os.urandom(5000)):
            control = await alice.transport.open_stream(bob.peer_id, BULK)
            await write_message(control, garbage)
            assert b"malformed" in await read_message(control, 1000)
        control = await alice.transport.open_stream(bob.peer_id, BULK)
        await control.send_all(b"\xff\xff\xff\xff")
        assert b"oversize" in await read_message(control, 1000)
        await until(lambda: len(bob.faults) == 4)


async def test_handshakes_are_counted_by_the_minute() -> None:
    async with nodes() as (alice, bob):
        bob.bulk._places._minute = int(trio.current_time() // 60)
        bob.bulk._places._handshakes[alice.peer_id] = bulk_places.HANDSHAKES_PER_MINUTE_MAX
        with pytest.raises(Unavailable, match="busy"):
            await alice.bulk.open(bob.peer_id)
        bob.bulk._places._minute -= 1
        await (await alice.bulk.open(bob.peer_id)).aclose()


async def test_while_no_session_is_expected_every_socket_is_closed_at_once() -> None:
    async with nodes() as (_, bob):
        with trio.fail_after(0.9 * PREFACE_TIMEOUT_S):
            _, nothing = await dial(bob, FIRST_BYTE)
        assert nothing == b""


async def test_a_flood_of_silent_and_garbage_sockets_grows_nothing_and_blocks_nobody() -> None:
    async with nodes() as (alice, bob):
        _, keys = await handshake(alice, bob)  # so that sockets are let in at all
        flood = [await trio.open_tcp_stream("127.0.0.1", bob.port) for _ in range(300)]
        for stream in flood[::3]:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(FIRST_BYTE + os.urandom(200))
        for stream in flood[1::3]:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(FIRST_BYTE)
        await until(lambda: len(bob.doorway.arrivals) > ARRIVING_MAX // 2)
        await trio.sleep(0.2)  # everything that the kernel queued is accepted by now
        assert len(bob.doorway.arrivals) <= ARRIVING_MAX
        with trio.fail_after(0.9 * PREFACE_TIMEOUT_S):
            session = await alice.bulk.open(bob.peer_id)
            await session.send_frame(b"words")
            assert await session.receive_frame() == b"words"
        assert isinstance(session, SealedStream)
        assert isinstance(session._pipe, SocketPipe)
        assert bob.faults == []
        for stream in flood:
            await trio.aclose_forcefully(stream)
        await until(lambda: not len(bob.doorway.arrivals))


async def test_a_socket_that_is_reset_before_it_is_looked_at_ends_itself_alone() -> None:
    async with nodes() as (alice, bob):
        control, _ = await handshake(alice, bob)  # so that sockets are let in at all
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", bob.port)) as caller:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.sleep(0.2)
        await (await alice.bulk.open(bob.peer_id)).aclose()
        await control.aclose()


async def test_a_socket_without_a_token_is_closed_after_five_seconds(
    mock_clock: trio.testing.MockClock,
) -> None:
    mock_clock.autojump_threshold = 0.05
    async with nodes() as (alice, bob):
        control, _ = await handshake(alice, bob)
        stream = await trio.open_tcp_stream("127.0.0.1", bob.port)
        await stream.send_all(FIRST_BYTE)
        started_s = trio.current_time()
        assert await stream.receive_some(1) == b""
        assert trio.current_time() - started_s == pytest.approx(PREFACE_TIMEOUT_S)
        await until(lambda: not len(bob.doorway.arrivals))
        await control.aclose()


async def test_a_slow_reader_makes_the_sender_wait_and_not_grow() -> None:
    sent = 0

    async def pour(stream: FrameStream) -> None:
        nonlocal sent
        payload = bytes(FRAME_BYTES_MAX)
        while True:
            await stream.send_frame(payload)
            sent += 1

    async with nodes(handler=pour) as (alice, bob):
        tracemalloc.start()
        stream = await alice.bulk.open(bob.peer_id)
        with trio.fail_after(30):
            await trio.testing.wait_all_tasks_blocked(0.2)  # the sender as well
        stopped_at = sent
        assert stopped_at < 60  # what the kernel's socket buffers hold, which may be no whole frame
        grown_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert grown_bytes < 16 * 1024 * 1024
        for _ in range(stopped_at + 1):  # with the one that the sender waits to be rid of
            assert await stream.receive_frame() == bytes(FRAME_BYTES_MAX)
        await until(lambda: sent > stopped_at)


async def test_a_cancelled_frame_ends_the_session_instead_of_garbling_it() -> None:
    async with nodes() as (alice, bob):
        stream = await alice.bulk.open(bob.peer_id)
        with trio.move_on_after(0.01):
            await stream.receive_frame()
        with pytest.raises(Unavailable, match="broken"):
            await stream.receive_frame()
        with pytest.raises(Unavailable, match="broken"):
            await stream.send_frame(b"words")


Misbehaviour = Callable[[ByteStream, Responder], Awaitable[None]]


async def hang_up(control: ByteStream, _: Responder) -> None:
    await read_message(control, 8192)


async def refuse_with_noise(control: ByteStream, _: Responder) -> None:
    await read_message(control, 8192)
    await write_message(control, os.urandom(100))


async def answer_and_lie_at_the_end(control: ByteStream, machine: Responder) -> None:
    await write_message(control, machine.on_opening(await read_message(control, 8192)))
    await read_message(control, 8192)
    await write_message(control, b"\x92\xa5ready\xc4\x20" + bytes(32))


@pytest.mark.parametrize(
    ("misbehave", "error"),
    [
        (hang_up, Unavailable),
        (refuse_with_noise, PeerFault),
        (answer_and_lie_at_the_end, PeerFault),
    ],
)
async def test_a_responder_that_breaks_the_handshake_gets_no_session(
    misbehave: Misbehaviour, error: type[Exception]
) -> None:
    async with nodes() as (alice, bob):

        async def handler(control: ByteStream) -> None:
            remote = Remote(alice.keys.node_id, alice.peer_id)
            await misbehave(control, Responder(bob.local, remote, os.urandom(32), ()))
            await control.aclose()

        bob.transport.handlers[BULK] = handler
        with pytest.raises(error):
            await alice.bulk.open(bob.peer_id)
