"""Newcomers at the door while a crowd of strangers begins handshakes that it never ends."""

from contextlib import suppress
from random import Random

import trio
import trio.testing
from libp2p.utils import encode_varint_prefixed

from daa_node.adapters.budgets import (
    ADMISSION_UNITS,
    NOISE_UNITS,
    STRANGERS_UNITS_MAX,
    STRANGERS_UNITS_PER_S,
    Admission,
)
from daa_node.adapters.libp2p_sockets import ACCEPTS_PER_S
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.adapters.turns import DrawnPace
from daa_node.adapters.waiting_room import SERVED_S, WaitingRoom
from daa_node.errors import Unavailable
from daa_node.seams import Address
from tests.daa_node.adapters.test_libp2p_simulated_links import Handler, Link, transport

ADDRESSES = 400  # of the crowd
NEWCOMERS = 8
FLOODED_BEFORE_S = 5  # no credit of quiet times is left
TRIES = 15  # of each newcomer, one a second
FIRST_WORDS = encode_varint_prefixed(b"/multistream/1.0.0\n") + encode_varint_prefixed(b"/noise\n")
HOST = "10.0.0.1"
ADDRESS_OF_CROWD = "198.51.{}.{}"


async def flood(door: Handler, word: bytes) -> None:
    """As many connections as a listener accepts, each from another address, and one word."""

    async def sit(number: int) -> None:
        here, there = trio.testing.memory_stream_pair()
        host = ADDRESS_OF_CROWD.format(number % ADDRESSES // 200, number % 200 + 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door, Link(there, host))
            if word:
                await here.send_all(word)

    async with trio.open_nursery() as nursery:
        number = 0
        while True:
            nursery.start_soon(sit, number)
            number += 1
            await trio.sleep(1 / ACCEPTS_PER_S)


async def let_in_under(word: bytes, tries: int, known: bool = False) -> int:
    """How many of NEWCOMERS got in while the crowd came, `known` by their addresses or not."""
    hosts: dict[str, Handler] = {}
    acquaintances = [Address(f"/ip4/10.0.0.{number + 2}/tcp/1") for number in range(NEWCOMERS)]
    node = transport(1, hosts, acquaintances if known else [])
    newcomers = [transport(number + 2, hosts) for number in range(NEWCOMERS)]
    address = Address(f"/ip4/{HOST}/tcp/4001/p2p/{node.peer_id}")

    async def knock(newcomer: Libp2pTransport) -> None:
        for _ in range(tries):
            with trio.move_on_after(1):
                with suppress(Unavailable):
                    await newcomer.dial(address)
                await trio.sleep_until(trio.current_effective_deadline())
            if newcomer.peer_id in node.connected():
                return

    async with trio.open_nursery() as nursery:
        for own in (node, *newcomers):
            await nursery.start(own.run)
        nursery.start_soon(flood, hosts[HOST], word)
        await trio.sleep(FLOODED_BEFORE_S)
        async with trio.open_nursery() as knocking:
            for newcomer in newcomers:
                knocking.start_soon(knock, newcomer)
        count = len({newcomer.peer_id for newcomer in newcomers} & set(node.connected()))
        nursery.cancel_scope.cancel()
    return count


async def test_newcomers_get_in_beside_a_crowd_that_says_the_first_words(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await let_in_under(b"", 1) == NEWCOMERS, "the control: a crowd that says nothing"
    # A fifth of those who come are served: 7.7 of the eight on average.
    assert await let_in_under(FIRST_WORDS, TRIES) >= NEWCOMERS // 2


async def test_those_at_addresses_of_the_genesis_get_in_at_once_after_a_restart(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await let_in_under(FIRST_WORDS, 1) < NEWCOMERS, "the control: nobody knows them"
    assert await let_in_under(FIRST_WORDS, 1, known=True) == NEWCOMERS


async def test_who_is_served_stays_while_others_wait_and_not_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    room = WaitingRoom(16)
    served = trio.CancelScope()
    room.enter("192.0.2.1", served)
    room.serve(served)
    for number in range(100):
        room.enter(f"198.51.100.{number}", trio.CancelScope())
    assert not served.cancel_called
    await trio.sleep(SERVED_S)
    room.enter("198.51.100.200", trio.CancelScope())
    assert served.cancel_called
    assert len(room) == 16


async def test_a_full_room_of_those_who_are_served_turns_away_whoever_comes_last() -> None:
    room, last = WaitingRoom(16), trio.CancelScope()
    for number in range(16):
        scope = trio.CancelScope()
        room.enter(f"198.51.100.{number}", scope)
        room.serve(scope)
    room.enter("192.0.2.1", last)
    assert last.cancel_called
    assert len(room) == 16


async def test_an_admission_that_is_thrown_away_costs_what_was_done_and_no_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    strangers = DrawnPace(STRANGERS_UNITS_PER_S, STRANGERS_UNITS_MAX, Random(1))
    begun = 0

    async def begin_and_leave(number: int) -> None:
        nonlocal begun
        admission = Admission(strangers, str(number))
        await admission.begin()
        await admission.take(NOISE_UNITS)
        begun += 1
        admission.end()

    with trio.move_on_after(10):
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(begin_and_leave, number)
    spent = STRANGERS_UNITS_MAX + 10 * STRANGERS_UNITS_PER_S
    assert abs(begun - spent / NOISE_UNITS) <= ADMISSION_UNITS / NOISE_UNITS


async def test_whoever_leaves_before_its_turn_spends_nothing_and_stops_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    strangers, served = DrawnPace(1, 1, Random(1)), 0

    async def take(number: int, patience_s: float) -> None:
        nonlocal served
        with trio.move_on_after(patience_s):
            await Admission(strangers, str(number)).take(1)
            served += 1

    async with trio.open_nursery() as nursery:
        for number in range(300):
            nursery.start_soon(take, number, number % 7 + 0.5)
        nursery.start_soon(take, 300, 30)
    # a second each, and nobody's turn is lost but the one that it left while it had it
    assert 6 <= served <= 9
    assert not strangers._waiting
    assert not strangers._is_taken
