"""One stranger after another does its worst to one transport, which lives on and stays small."""

import os
from collections.abc import Iterator

import pytest
import trio
from libp2p.exceptions import BaseLibp2pError
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils import encode_varint_prefixed

from daa_node.adapters.libp2p_frames import ACK, DATA, GO_AWAY, PING, SYN, WINDOW_UPDATE
from tests.daa_node.adapters.libp2p_stranger import (
    Subject,
    frame,
    muxed,
    opened,
    plain_socket,
    secured,
    session_with,
    subject,
)
from tests.daa_node.adapters.libp2p_subject import TOPIC

GROWTH_MIB_MAX = 24.0  # noise buffers, windows of half a megabyte, the allocator's own slack
ATTACK_S = 1.0


@pytest.fixture(scope="module")
def target() -> Iterator[Subject]:
    with subject("hardened") as running:
        yield running


async def garbage_on_the_socket(target: Subject) -> None:
    for _ in range(20):
        stream = await plain_socket(target)
        await stream.send_all(os.urandom(65536))


async def a_giant_length_before_noise(target: Subject) -> None:
    stream = await plain_socket(target)
    await stream.send_all(b"\xff\xff\xff\xff\x0f")  # four gigabytes follow, it says
    while True:
        await stream.send_all(bytes(65536))


async def half_a_http_request(target: Subject) -> None:
    for _ in range(50):
        stream = await plain_socket(target)
        await stream.send_all(b"GET / HTTP/1.1\r\nX: " + bytes(1000))


async def a_websocket_that_sends_text(target: Subject) -> None:
    stream = await plain_socket(target)
    await stream.send_all(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    while True:
        await stream.send_all(b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff" + os.urandom(4096))


async def garbage_after_noise(target: Subject) -> None:
    for _ in range(20):
        conn = await secured(target)
        await conn.write(os.urandom(4096))


async def garbage_for_frames(target: Subject) -> None:
    for _ in range(20):
        conn = await muxed(target)
        await conn.write(os.urandom(60000))


async def a_window_update_without_end(target: Subject) -> None:
    conn = await muxed(target)
    await conn.write(frame(WINDOW_UPDATE, SYN, 1, 0))
    while True:
        await conn.write(frame(WINDOW_UPDATE, 0, 1, 2**32 - 1))


async def a_flood_of_streams(target: Subject) -> None:
    conn = await muxed(target)
    stream_id = 1
    while True:
        await conn.write(b"".join(frame(DATA, SYN, stream_id + 2 * i, 0) for i in range(1000)))
        stream_id += 2000


async def a_flood_of_pings_that_takes_no_answer(target: Subject) -> None:
    conn = await muxed(target)
    while True:
        await conn.write(frame(PING, SYN, 0, 1) * 5000)


async def a_flood_of_empty_frames(target: Subject) -> None:
    conn = await muxed(target)
    while True:
        await conn.write(frame(DATA, 0, 1, 0) * 5000)


async def streams_that_nobody_reads(target: Subject) -> None:
    async with session_with(target) as session, trio.open_nursery() as nursery:
        for _ in range(60):
            stream = await opened(session, "/deaf")
            nursery.start_soon(stream.write, bytes(8 << 20))


async def protocols_that_nobody_speaks(target: Subject) -> None:
    async with session_with(target) as session:
        while True:
            stream = await session.open_stream()
            line = b"/multistream/1.0.0\n"
            await stream.write(encode_varint_prefixed(line))
            await stream.write(encode_varint_prefixed(os.urandom(500).hex().encode() + b"\n"))
            await stream.reset()


async def a_giant_length_in_a_stream(target: Subject) -> None:
    async with session_with(target) as session:
        stream = await session.open_stream()
        await stream.write(b"\xff\xff\xff\xff\x0f" + bytes(1 << 20))


async def a_flood_of_gossip(target: Subject) -> None:
    async with session_with(target) as session:
        stream = await opened(session, "/meshsub/1.1.0")
        while True:
            rpc = rpc_pb2.RPC()
            for _ in range(200):
                rpc.publish.add(
                    data=os.urandom(200),
                    topicIDs=[TOPIC],
                    from_id=b"\x00\x24\x08\x01\x12\x20" + os.urandom(32),
                    seqno=os.urandom(8),
                    signature=os.urandom(64),
                )
            for _ in range(200):
                rpc.subscriptions.add(subscribe=True, topicid=os.urandom(20).hex())
                rpc.control.graft.add(topicID=os.urandom(20).hex())
                rpc.control.prune.add(topicID=os.urandom(20).hex(), backoff=2**60)
            rpc.control.ihave.add(topicID=TOPIC, messageIDs=[os.urandom(40) for _ in range(500)])
            await stream.write(encode_varint_prefixed(rpc.SerializeToString()))


async def a_flood_of_dht_records(target: Subject) -> None:
    async with session_with(target) as session:
        while True:
            stream = await opened(session, "/ipfs/kad/1.0.0")
            await stream.write(encode_varint_prefixed(os.urandom(200_000)))
            await stream.close()


async def frames_of_a_connection_that_is_over(target: Subject) -> None:
    conn = await muxed(target)
    await conn.write(frame(GO_AWAY, 0, 0, 0) + frame(DATA, ACK, 9, 100, bytes(100)))


ATTACKS = [
    garbage_on_the_socket,
    a_giant_length_before_noise,
    half_a_http_request,
    a_websocket_that_sends_text,
    garbage_after_noise,
    garbage_for_frames,
    a_window_update_without_end,
    a_flood_of_streams,
    a_flood_of_pings_that_takes_no_answer,
    a_flood_of_empty_frames,
    streams_that_nobody_reads,
    protocols_that_nobody_speaks,
    a_giant_length_in_a_stream,
    a_flood_of_gossip,
    a_flood_of_dht_records,
    frames_of_a_connection_that_is_over,
]


async def test_a_stranger_neither_stops_us_nor_makes_us_grow(target: Subject) -> None:
    assert await target.lives()
    before_mib = target.rss_mib
    for attack in ATTACKS:
        with trio.move_on_after(ATTACK_S):
            try:
                await attack(target)
            except* (OSError, trio.BrokenResourceError, BaseLibp2pError, trio.TooSlowError):
                pass  # we were thrown out: that is how it should end
        assert await target.lives(), attack.__name__
        grown_mib = target.rss_mib - before_mib
        assert grown_mib < GROWTH_MIB_MAX, f"{attack.__name__}: {grown_mib:.0f} MiB more"


async def test_an_honest_peer_is_served_while_strangers_attack(target: Subject) -> None:
    async with trio.open_nursery() as nursery:

        async def attack_on(number: int) -> None:
            attacks = (a_flood_of_streams, a_flood_of_empty_frames, a_flood_of_gossip)
            while True:
                try:
                    await attacks[number % 3](target)
                except* (OSError, trio.BrokenResourceError, BaseLibp2pError, trio.TooSlowError):
                    pass

        for number in range(6):
            nursery.start_soon(attack_on, number)
        await trio.sleep(0.5)
        assert await target.lives()
        nursery.cancel_scope.cancel()
