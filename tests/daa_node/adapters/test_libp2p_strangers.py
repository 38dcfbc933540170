"""What somebody without a key can make us do before anybody knows who it is, in counted work."""

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from libp2p.exceptions import BaseLibp2pError
from libp2p.utils import encode_varint_prefixed

from daa_node.adapters.libp2p_frames import DATA, RST, SYN
from daa_node.adapters.libp2p_negotiation import NAMES_MAX
from daa_node.adapters.libp2p_yamux import (
    OPENED_UNITS,
    STRANGER_UNITS_MAX,
    STRANGER_UNITS_PER_S,
    TURN_UNITS,
    YamuxSession,
)
from daa_node.network.pace import Pace
from daa_node.wire.limits import STREAMS_PER_PEER_MAX
from tests.daa_node.adapters.libp2p_stranger import (
    Target,
    frame,
    plain_socket,
    secured,
    session_with,
)
from tests.daa_node.adapters.test_libp2p_limits import PEER, Wire, transport, wires

GREETING = encode_varint_prefixed(b"/multistream/1.0.0\n")
NOT_SPOKEN = encode_varint_prefixed(b"na\n")
NAMES = 1000

Say = Callable[[bytes], Awaitable[None]]
Hear = Callable[[], Awaitable[bytes]]


async def on_the_socket(target: Target, talk: Callable[[Say, Hear], Awaitable[None]]) -> None:
    stream = await plain_socket(target)
    await talk(stream.send_all, stream.receive_some)


async def behind_noise(target: Target, talk: Callable[[Say, Hear], Awaitable[None]]) -> None:
    conn = await secured(target)
    await talk(conn.write, conn.read)


async def on_a_stream(target: Target, talk: Callable[[Say, Hear], Awaitable[None]]) -> None:
    async with session_with(target) as session:
        stream = await session.open_stream()
        await talk(stream.write, stream.read)


@pytest.mark.parametrize("layer", [on_the_socket, behind_noise, on_a_stream])
async def test_whoever_names_protocols_without_end_is_heard_eight_times(
    layer: Callable[[Target, Callable[[Say, Hear], Awaitable[None]]], Awaitable[None]],
) -> None:
    heard = bytearray()

    async def talk(say: Say, hear: Hear) -> None:
        await say(GREETING)
        for _ in range(NAMES):
            await say(encode_varint_prefixed(b"/nobody/speaks/this\n"))
            heard.extend(await hear())

    async with transport() as node:
        with trio.fail_after(10):
            try:
                await layer(Target(node.addresses()[0]), talk)
            except* (BaseLibp2pError, trio.BrokenResourceError):
                pass  # it hung up on us
    assert 1 <= bytes(heard).count(NOT_SPOKEN) <= NAMES_MAX


async def session_on(
    nursery: trio.Nursery, strangers: Pace | None = None
) -> tuple[Wire, YamuxSession]:
    attacker, ours = wires()
    session = YamuxSession(ours, PEER, strangers)  # type: ignore[arg-type]
    nursery.start_soon(session.start)
    await session.event_started.wait()
    return attacker, session


async def accept_all(session: YamuxSession, taken: list[int], release: bool) -> None:
    while True:
        stream = await session.accept_stream()
        taken.append(stream.stream_id)
        await trio.lowlevel.checkpoint()
        if release:
            stream.release()


async def test_a_stream_that_is_reset_before_we_get_to_it_is_served_to_nobody() -> None:
    taken = list[int]()
    async with trio.open_nursery() as nursery:
        attacker, session = await session_on(nursery)
        nursery.start_soon(accept_all, session, taken, True)
        await attacker.write(b"".join(frame(DATA, SYN | RST, i, 0) for i in range(1, 1001, 2)))
        await attacker.write(frame(DATA, SYN, 1001, 0) + frame(DATA, RST, 1001, 0))
        await attacker.write(frame(DATA, SYN, 2001, 0))
        await trio.testing.wait_all_tasks_blocked()
        assert taken == [2001]
        nursery.cancel_scope.cancel()


async def test_a_stream_counts_until_nobody_serves_it_any_more() -> None:
    taken = list[int]()
    async with trio.open_nursery() as nursery:
        attacker, session = await session_on(nursery)
        session.admit()
        nursery.start_soon(accept_all, session, taken, False)
        for stream_id in range(1, 401, 2):
            await attacker.write(frame(DATA, SYN, stream_id, 0))
            await trio.testing.wait_all_tasks_blocked()
            await attacker.write(frame(DATA, RST, stream_id, 0))
        await trio.testing.wait_all_tasks_blocked()
        assert len(taken) == STREAMS_PER_PEER_MAX
        nursery.cancel_scope.cancel()


async def test_everybody_has_turns_between_the_frames_of_one_message() -> None:
    frames, turns = 5 * TURN_UNITS, 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        attacker, session = await session_on(nursery)
        nursery.start_soon(turn)
        await attacker.write(frame(DATA, 0, 1, 0) * frames + frame(DATA, SYN, 1, 0))
        quiet = turns
        await session.accept_stream()
        assert turns - quiet >= 5
        nursery.cancel_scope.cancel()


async def streams_opened_in(seconds: float, count: int, strangers: Pace | None) -> int:
    """How many streams `count` strangers get served, each opening and resetting all the while."""
    taken = list[int]()

    async def attack(attacker: Wire) -> None:
        stream_id = 1
        while True:
            await attacker.write(frame(DATA, SYN, stream_id, 0))
            await trio.sleep(0.001)  # it is served
            await attacker.write(frame(DATA, RST, stream_id, 0))
            stream_id += 2

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            attacker, session = await session_on(nursery, strangers)
            nursery.start_soon(accept_all, session, taken, True)
            nursery.start_soon(attack, attacker)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    return len(taken)


async def test_a_stranger_opens_a_few_streams_a_second_and_all_of_them_not_many_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    seconds = 10.0
    alone = await streams_opened_in(seconds, 1, None)
    assert alone * OPENED_UNITS <= STRANGER_UNITS_MAX + seconds * STRANGER_UNITS_PER_S + TURN_UNITS
    assert alone >= 50  # more than a hello needs
    purse = Pace(STRANGER_UNITS_PER_S, STRANGER_UNITS_MAX)
    together = await streams_opened_in(seconds, 6, purse)
    assert together <= alone + 6 * TURN_UNITS / OPENED_UNITS


async def test_a_newcomer_is_served_in_its_turn_while_others_spend_all_there_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purse, served = Pace(100, 100), list[str]()

    async def spend(name: str) -> None:
        while True:
            await purse.take(10)
            served.append(name)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(spend, f"greedy {number}")
        await trio.sleep(10)
        served.clear()
        await purse.take(10)
        assert len(served) <= 5
        nursery.cancel_scope.cancel()
