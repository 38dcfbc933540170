"""Who cannot be dialled opens the socket itself, for whoever asks it and is a member."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
import trio

from daa_node.adapters.bulk_channel import RELAY, WORD_BYTES_MAX
from daa_node.adapters.bulk_door import FIRST_BYTE
from daa_node.adapters.bulk_sockets import read_up_to
from daa_node.adapters.sealed_stream import Pipe, RelayPipe, SealedStream, SocketPipe
from daa_node.errors import Unavailable
from daa_node.identity.session import (
    Endpoint,
    SessionKeys,
    dial_word,
    endpoints_of_word,
)
from daa_node.seams import FrameStream, PeerId
from daa_node.wire.framing import read_message, read_message_or_end, write_message
from daa_node.wire.limits import FRAME_BYTES_MAX
from tests.daa_node.adapters.bulk_nodes import Node, World, handshake, nodes, until


@asynccontextmanager
async def router() -> AsyncIterator[tuple[Node, Node]]:
    """Alice, who listens, and Bob behind a router, who does not."""
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        alice, bob = Node(world, b"alice"), Node(world, b"bob", False)
        alice.known[bob.peer_id] = bob.keys.node_id
        bob.known[alice.peer_id] = alice.keys.node_id
        bob.members.add(alice.peer_id)
        await nursery.start(alice.run)
        await nursery.start(bob.run)
        yield alice, bob
        nursery.cancel_scope.cancel()


def pipe_of(stream: FrameStream) -> Pipe:
    assert isinstance(stream, SealedStream)
    return stream._pipe


async def echoes(stream: FrameStream) -> None:
    for size_bytes in (0, 1, FRAME_BYTES_MAX, 10):
        payload = os.urandom(size_bytes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_frame, payload)
            assert await stream.receive_frame() == payload


async def test_who_cannot_be_dialled_opens_the_socket_and_is_read_from_over_it() -> None:
    async with router() as (alice, bob):
        stream = await alice.bulk.open(bob.peer_id)
        assert isinstance(pipe_of(stream), SocketPipe)
        assert stream.node_id == bob.keys.node_id
        await echoes(stream)
        assert bob.bulk._places.taken == 1
        await stream.aclose()
        await until(lambda: bob.bulk._places.taken == 0)
        assert not len(alice.bulk._tokens)
        assert alice.faults == bob.faults == []


async def test_several_sessions_at_once_get_a_socket_each() -> None:
    async with router() as (alice, bob):
        streams: list[FrameStream] = []

        async def open_one() -> None:
            streams.append(await alice.bulk.open(bob.peer_id))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(open_one)
        for stream in streams:
            assert isinstance(pipe_of(stream), SocketPipe)
            await echoes(stream)


async def test_nobody_dials_for_one_that_is_no_member() -> None:
    async with router() as (alice, bob):
        bob.members.clear()
        stream = await alice.bulk.open(bob.peer_id)
        assert isinstance(pipe_of(stream), RelayPipe)
        await stream.send_frame(b"words")
        assert await stream.receive_frame() == b"words"


async def test_where_the_peer_cannot_dial_us_the_frames_run_over_the_stream() -> None:
    async with router() as (alice, bob):
        with trio.socket.socket() as taken:
            await taken.bind(("127.0.0.1", 0))
            alice.port = taken.getsockname()[1]  # nobody listens
            stream = await alice.bulk.open(bob.peer_id)
            assert isinstance(pipe_of(stream), RelayPipe)
            await echoes_small(stream)
            assert not len(alice.bulk._tokens)


async def echoes_small(stream: FrameStream) -> None:
    await stream.send_frame(b"words")
    assert await stream.receive_frame() == b"words"


async def test_a_listener_without_the_session_is_not_taken_for_the_initiator() -> None:
    async with router() as (alice, bob):
        control, keys = await handshake(alice, bob)
        seen = []

        async def stranger(stream: trio.SocketStream) -> None:
            seen.append(await read_up_to(stream, 65))
            await stream.send_all(bytes(32))

        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, stranger, 0)
            port = listeners[0].socket.getsockname()[1]
            await write_message(control, dial_word((Endpoint("127.0.0.1", port),)))
            assert await read_message(control, WORD_BYTES_MAX) == RELAY
            nursery.cancel_scope.cancel()
        assert seen == [FIRST_BYTE + keys.token + keys.dial_proof()]


@pytest.mark.parametrize("word", [b"nonsense", dial_word(()), b""])
async def test_another_word_is_a_fault_or_the_end(word: bytes) -> None:
    async with router() as (alice, bob):
        control, _ = await handshake(alice, bob)
        await write_message(control, word)
        with trio.fail_after(30):
            answer = await read_message_or_end(control, WORD_BYTES_MAX)
        if word == dial_word(()):
            assert answer == RELAY
        else:
            assert answer != RELAY
            assert bob.faults == ([(alice.peer_id, "malformed")] if word else [])


async def test_a_socket_that_comes_when_nobody_waits_any_more_is_closed() -> None:
    async with router() as (alice, bob):
        control, keys = await handshake(alice, bob)
        alice.bulk._tokens.issue(replace(keys, endpoints=()), bob.peer_id, trio.current_time())
        late = await trio.open_tcp_stream("127.0.0.1", alice.port)
        await late.send_all(FIRST_BYTE + keys.token + keys.dial_proof())
        with trio.fail_after(30):
            while await late.receive_some(64):
                pass
        await control.aclose()


async def test_who_takes_the_token_and_then_says_relay_gets_no_second_path() -> None:
    async with router() as (alice, bob):

        async def both(peer_id: PeerId, keys: SessionKeys, word: bytes) -> None:
            named = replace(keys, endpoints=endpoints_of_word(word))
            stream = await bob.bulk._dialer.dial(peer_id, named)
            assert stream is not None
            await stream.aclose()

        bob.bulk._dial_back = both  # type: ignore[method-assign]
        # as if the socket's task had its turn after the word
        alice.bulk._arrivals.give = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(Unavailable, match="hung up"):
            await alice.bulk.open(bob.peer_id)


async def test_a_peer_that_hangs_up_instead_of_dialling_leaves_no_token() -> None:
    async with router() as (alice, bob):

        async def rude(_peer: object, _keys: object, _word: bytes) -> None:
            raise Unavailable("gone")

        bob.bulk._dial_back = rude  # type: ignore[method-assign, assignment]
        with pytest.raises(Unavailable):
            await alice.bulk.open(bob.peer_id)
        assert not len(alice.bulk._tokens)


async def test_one_that_answers_a_session_has_nobody_in_our_own_network_dialled() -> None:
    rung: list[trio.SocketStream] = []

    async def bystander(stream: trio.SocketStream) -> None:
        rung.append(stream)

    async with nodes() as (alice, bob), trio.open_nursery() as nursery:
        alice.seen_at = "8.8.4.4"
        listeners = await nursery.start(partial(trio.serve_tcp, bystander, 0, host="127.0.0.1"))
        bob.port = listeners[0].socket.getsockname()[1]
        stream = await alice.bulk.open(bob.peer_id)
        assert isinstance(pipe_of(stream), RelayPipe)
        await echoes_small(stream)
        assert not rung
        nursery.cancel_scope.cancel()


async def test_a_member_has_nobody_dialled_but_itself() -> None:
    async with router() as (alice, bob):
        control, _ = await handshake(alice, bob)
        rung: list[trio.SocketStream] = []

        async def bystander(stream: trio.SocketStream) -> None:
            rung.append(stream)

        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_tcp, bystander, 0, host="127.0.0.2")
            listeners = await nursery.start(serve)
            port = listeners[0].socket.getsockname()[1]
            others = "127.0.0.2", "::ffff:127.0.0.2", "localhost"
            await write_message(control, dial_word(tuple(Endpoint(h, port) for h in others)))
            assert await read_message(control, WORD_BYTES_MAX) == RELAY
            nursery.cancel_scope.cancel()
        assert not rung
        assert not bob.bulk._dialer._undialable  # nor is it held against it
