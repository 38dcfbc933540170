"""Frames of a WebSocket are counted wherever its bytes are cut; a flood of them is slow."""

import os
import random

import pytest
import trio
import trio.testing
from wsproto import WSConnection
from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection, BytesMessage, Event, Ping, Request

from daa_node.adapters.budgets import (
    STRANGER_UNITS_MAX,
    STRANGER_UNITS_PER_S,
    STRANGERS_UNITS_MAX,
    STRANGERS_UNITS_PER_S,
    TURN_UNITS,
    Bill,
)
from daa_node.adapters.libp2p_sockets import FRAME_UNITS, PaidStream
from daa_node.adapters.websocket_frames import FrameCounter
from daa_node.network.pace import SharedPace
from tests.daa_node.adapters.libp2p_stranger import Target, plain_socket
from tests.daa_node.adapters.test_libp2p_limits import transport

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
EMPTY = b"\x82\x80abcd"


def sent(events: list[Event]) -> bytes:
    """As another implementation writes it."""
    client, server = WSConnection(ConnectionType.CLIENT), WSConnection(ConnectionType.SERVER)
    request = client.send(Request(host="x", target="/"))
    server.receive_data(request)
    client.receive_data(server.send(AcceptConnection()))
    return request + b"".join(client.send(event) for event in events)


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_counted_wherever_the_bytes_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([0, 5, 15, 16, 125, 126, 300, 65_535, 65_536, 70_000]) for _ in range(30)]
    events: list[Event] = [BytesMessage(os.urandom(size)) for size in sizes]
    events[10:10] = [Ping(b""), Ping(bytes(100))]
    stream, counter, begun, at = sent(events), FrameCounter(), 0, 0
    at = stream.find(b"\r\n\r\n") + 4  # the request in one piece
    assert counter.begun_in(stream[:at]) == 0
    while at < len(stream):
        size = rng.choice([1, 2, 3, 7, 4096])
        begun += counter.begun_in(stream[at : at + size])
        at += size
    assert begun == len(events)


def test_a_request_that_comes_byte_by_byte_counts_as_often() -> None:
    counter = FrameCounter()
    pieces = [UPGRADE[i : i + 1] for i in range(len(UPGRADE))]
    assert sum(counter.begun_in(piece) for piece in pieces) == len(UPGRADE) - 1
    assert counter.begun_in(EMPTY) == 1


async def test_a_flood_of_fragments_is_read_at_a_pace(autojump_clock: object) -> None:
    """Each as long as a tag of noise: 288,000 of them took 2.5 s of us, and nobody paid."""
    ours, theirs = trio.testing.memory_stream_pair()
    bill = Bill(SharedPace(STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX))
    paid = PaidStream(ours, bill)
    fragments = 5_000
    flood = UPGRADE + b"\x02\x90abcd" + bytes(16) + (b"\x00\x90abcd" + bytes(16)) * fragments
    async with trio.open_nursery() as nursery:
        nursery.start_soon(theirs.send_all, flood)
        read = 0
        while read < len(flood):
            read += len(await paid.receive_some(4096))
    due = fragments * FRAME_UNITS - STRANGER_UNITS_MAX - TURN_UNITS
    assert trio.current_time() >= due / STRANGER_UNITS_PER_S


async def test_a_flood_of_pings_over_a_websocket_is_answered_at_a_pace() -> None:
    pongs = 0
    async with transport() as node:
        stream = await plain_socket(Target(node.addresses()[0]))
        await stream.send_all(UPGRADE)
        assert b"101" in await stream.receive_some(4096)
        started_s = trio.current_time()

        async def hear() -> None:
            nonlocal pongs
            while True:
                pongs += len(await stream.receive_some(65536)) // 6  # two of header, four of ours

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            with trio.move_on_after(3):
                for _ in range(50):
                    await stream.send_all(b"\x89\x84abcdping" * 1000)
            nursery.cancel_scope.cancel()
        seconds = trio.current_time() - started_s
        await stream.aclose()
    assert pongs > 0
    assert (pongs - 1000) * FRAME_UNITS <= STRANGERS_UNITS_MAX + seconds * STRANGERS_UNITS_PER_S
