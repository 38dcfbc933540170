"""What stops the bare library from outside, and does not stop us: both halves of each defect.

Every test runs the same attack on both. When the first half fails, the library has mended a defect,
and what we do against it can go.
"""

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
from libp2p.pubsub.pb import rpc_pb2
from libp2p.stream_muxer.exceptions import MuxedStreamReset
from libp2p.utils import encode_varint_prefixed

from tests.daa_node.adapters.libp2p_stranger import (
    Subject,
    opened,
    plain_socket,
    session_with,
    subject,
)
from tests.daa_node.adapters.libp2p_subject import BARE_CONNECTIONS_MAX, TOPIC

GOSSIP = "/meshsub/1.1.0"


async def call_a_failing_handler(target: Subject) -> None:
    async with session_with(target) as session:
        with suppress(MuxedStreamReset):  # the failed handler's stream may end before its answer
            await opened(session, "/raise")
        await trio.sleep(0.3)


async def send_a_malformed_rpc(target: Subject) -> None:
    async with session_with(target) as session:
        stream = await opened(session, GOSSIP)
        await stream.write(encode_varint_prefixed(b"\xff" * 50))
        await trio.sleep(0.3)


async def send_an_rsa_author_with_a_garbage_key(target: Subject) -> None:
    message = rpc_pb2.Message(
        data=b"x",
        topicIDs=[TOPIC],
        from_id=b"\x12\x20" + os.urandom(32),
        seqno=os.urandom(8),
        key=b"garbage",
        signature=b"garbage",
    )
    rpc = rpc_pb2.RPC(publish=[message]).SerializeToString()
    async with session_with(target) as session:
        stream = await opened(session, GOSSIP)
        await stream.write(encode_varint_prefixed(rpc))
        await trio.sleep(0.5)


async def name_a_protocol_that_is_not_text(target: Subject) -> None:
    async with session_with(target) as session:
        stream = await session.open_stream()
        await stream.write(encode_varint_prefixed(b"/multistream/1.0.0\n"))
        await stream.write(encode_varint_prefixed(b"\xff\xfe\n"))
        await trio.sleep(0.3)


async def come_and_go_often(target: Subject) -> None:
    for _ in range(BARE_CONNECTIONS_MAX - 1):  # one has been spent on seeing that it lives
        async with session_with(target) as session:
            await opened(session, "/echo")
    await trio.sleep(0.5)


async def hold_silent_sockets(target: Subject) -> None:
    for _ in range(300):
        silent.append(await plain_socket(target))


silent: list[trio.SocketStream] = []  # kept open until the test ends

ATTACKS = [
    call_a_failing_handler,
    send_a_malformed_rpc,
    send_an_rsa_author_with_a_garbage_key,
    name_a_protocol_that_is_not_text,
    come_and_go_often,
    hold_silent_sockets,
]


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_that_stops_the_bare_library_does_not_stop_us(
    attack: Callable[[Subject], Awaitable[None]],
) -> None:
    with subject("bare") as bare:
        assert await bare.lives()
        await attack(bare)
        assert not await bare.lives(6.0), "the library has mended this defect"
    silent.clear()
    with subject("hardened") as hardened:
        assert await hardened.lives()
        await attack(hardened)
        assert await hardened.lives()
    silent.clear()
