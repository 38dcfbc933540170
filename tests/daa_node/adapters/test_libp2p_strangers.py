"""What somebody without a key can make us do before anybody knows who it is, in counted work."""

import os
from collections.abc import Awaitable, Callable
from random import Random

import pytest
import trio
import trio.testing
from libp2p.crypto.rsa import create_new_key_pair as create_new_rsa_key_pair
from libp2p.exceptions import BaseLibp2pError
from libp2p.io.exceptions import ConnectionClosedError, IncompleteReadError
from libp2p.io.utils import read_exactly
from libp2p.utils import encode_varint_prefixed

from daa_node.adapters.budgets import (
    GREETING_UNITS,
    GUESTS_UNITS_MAX,
    GUESTS_UNITS_PER_S,
    MEMBER_UNITS_PER_S,
    NOISE_UNITS,
    OPEN_SERVICE_UNITS,
    STRANGER_UNITS_MAX,
    STRANGER_UNITS_PER_S,
    STRANGERS_UNITS_MAX,
    STRANGERS_UNITS_PER_S,
    TURN_UNITS,
    Bill,
    Budgets,
)
from daa_node.adapters.libp2p_frames import DATA, PING, RST, SYN, WINDOW_UPDATE
from daa_node.adapters.libp2p_negotiation import NAMES_MAX
from daa_node.adapters.libp2p_sockets import ARRIVING_MAX, place_of
from daa_node.adapters.libp2p_swarm import WAITING_MAX
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.adapters.libp2p_upgrade import ExactReader
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.adapters.waiting_room import NETWORKS_KNOWN_MAX, Familiar, WaitingRoom
from daa_node.adapters.yamux_streams import OPENED_UNITS
from daa_node.network.config import NetworkConfig
from daa_node.network.pace import SharedPace
from daa_node.seams import ByteStream, PeerId
from daa_node.wire.limits import STREAMS_PER_PEER_MAX
from daa_node.wire.protocols import HELLO
from tests.daa_node.adapters.libp2p_stranger import (
    Target,
    frame,
    opened,
    plain_socket,
    secured,
    session_with,
)
from tests.daa_node.adapters.test_libp2p_limits import LOOPBACK, PEER, Wire, transport, wires

GREETING = encode_varint_prefixed(b"/multistream/1.0.0\n")
NOT_SPOKEN = encode_varint_prefixed(b"na\n")
NAMES = 1000
CROWD = 400  # sockets, each from an address of its own

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
        with trio.fail_after(30):
            try:
                await layer(Target(node.addresses()[0]), talk)
            except* (BaseLibp2pError, trio.BrokenResourceError):
                pass  # it hung up on us
    assert 1 <= bytes(heard).count(NOT_SPOKEN) <= NAMES_MAX


async def session_on(
    nursery: trio.Nursery, strangers: SharedPace | None = None
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


async def test_a_key_of_a_kind_that_no_record_names_ends_the_handshake() -> None:
    """An RSA signature takes as long to verify as its exponent is long, and the signer chooses."""
    async with transport() as node:
        target = Target(node.addresses()[0])
        ours = await secured(target)
        await ours.write(GREETING)
        assert GREETING[1:] in await ours.read()
        theirs = await secured(target, key_pair=create_new_rsa_key_pair(1024))
        await theirs.write(GREETING)
        with pytest.raises(ConnectionClosedError):
            await theirs.read()


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
        session.admit(lambda: True, None)
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


async def streams_opened_in(seconds: float, count: int, strangers: SharedPace | None) -> int:
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
    budget = SharedPace(STRANGER_UNITS_PER_S, STRANGER_UNITS_MAX)
    together = await streams_opened_in(seconds, 6, budget)
    assert together <= alone + 6 * TURN_UNITS / OPENED_UNITS


async def test_a_newcomer_is_served_in_its_turn_while_others_spend_all_there_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    budget, served = SharedPace(100, 100), list[str]()

    async def spend(name: str) -> None:
        while True:
            await budget.take(10)
            served.append(name)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(spend, f"greedy {number}")
        await trio.sleep(10)
        served.clear()
        await budget.take(10)
        assert len(served) <= 5
        nursery.cancel_scope.cancel()


async def crowd(target: Target, count: int, word: bytes) -> list[trio.socket.SocketType]:
    """Sockets from as many addresses, which say a word and wait."""
    held = []
    for number in range(count):
        caller = trio.socket.socket()
        await caller.bind((f"127.9.{number // 200}.{number % 200 + 1}", 0))
        await caller.connect(place_of(target.address)[1])
        if word:
            await caller.send(word)
        held.append(caller)
    return held


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("word", [b"", b"\x13", b"GET / HTTP/1.1\r\n"])
async def test_whoever_connects_and_says_little_is_bounded_and_keeps_nobody_out(
    word: bytes,
) -> None:
    async with transport() as node, transport(3) as newcomer:
        target = Target(node.addresses()[0])
        before = descriptors()
        held = await crowd(target, CROWD, word)
        await trio.sleep(0.5)  # all are accepted
        assert descriptors() - before - CROWD <= ARRIVING_MAX + WAITING_MAX
        with trio.fail_after(30):
            assert await newcomer.dial(node.addresses()[0]) == node.peer_id
        held += await crowd(target, CROWD, word)
        assert node.peer_id in newcomer.connected()
        for caller in held:
            caller.close()


async def test_a_network_where_members_have_lived_gives_way_after_strangers() -> None:
    familiar = Familiar()
    familiar.note("192.0.2.1")
    room = WaitingRoom(16, familiar)
    member, second = trio.CancelScope(), trio.CancelScope()
    room.enter("192.0.2.1", member)
    for number in range(100):
        room.enter(f"198.51.100.{number}", trio.CancelScope())
    room.enter("192.0.2.1", second)
    assert not member.cancel_called
    crowd = [trio.CancelScope() for _ in range(100)]
    for scope in crowd:
        room.enter("192.0.2.1", scope)  # more than its share: now it drives out itself
    assert member.cancel_called
    assert len([scope for scope in crowd if not scope.cancel_called]) <= 3
    assert len(room) == 16


class Ended:
    """A connection whose peer has hung up."""

    def __init__(self) -> None:
        self.asked = 0

    async def read(self, n: int | None = None) -> bytes:
        self.asked += 1
        return b""

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None: ...

    def get_remote_address(self) -> tuple[str, int] | None:
        return None


async def test_whoever_hangs_up_is_asked_once_and_not_a_hundred_times() -> None:
    bare, ended = Ended(), Ended()
    with pytest.raises(IncompleteReadError):
        await read_exactly(bare, 2)  # type: ignore[arg-type]
    assert bare.asked > 100, "the library has mended this"
    with pytest.raises(ConnectionClosedError):
        await read_exactly(ExactReader(ended), 2)  # type: ignore[arg-type]
    assert ended.asked == 1


async def test_guests_from_wherever_make_no_address_familiar() -> None:
    """Else a thousand of theirs would push out those of members, and stand beside them."""
    budgets, member, guest = Budgets(Familiar(), Random(1)), ("192.0.2.1", 7), ("198.51.100.1", 7)
    budgets.admit(member, lambda: True)
    for number in range(NETWORKS_KNOWN_MAX):
        budgets.admit((f"10.0.{number >> 8}.{number & 255}", 7), lambda: False)
    budgets.admit(guest, lambda: False)
    assert member[0] in budgets.familiar
    assert guest[0] not in budgets.familiar
    assert budgets.of(guest[0])._strangers is not budgets.of(member[0])._strangers


async def test_who_is_familiar_does_not_queue_behind_a_crowd_of_strangers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    budgets = Budgets(Familiar(), Random(1))
    budgets.familiar.note("192.0.2.1")

    async def spend(host: str) -> None:
        while True:
            await budgets.of(host).take(GREETING_UNITS)

    async with trio.open_nursery() as nursery:
        for number in range(WAITING_MAX):
            nursery.start_soon(spend, f"198.51.100.{number}")
        await trio.sleep(60)
        started_s = trio.current_time()
        await budgets.of("192.0.2.1").take(NOISE_UNITS)
        assert trio.current_time() == started_s
        nursery.cancel_scope.cancel()


async def test_whoever_dials_pays_for_the_handshake_and_the_greeting() -> None:
    async with transport() as node, transport(3) as caller:
        assert node._parts is not None
        budget = node._parts.swarm._budgets.of("127.0.0.1")._strangers
        started_s = trio.current_time()
        await caller.dial(node.addresses()[0])
        while caller.peer_id not in node.connected():
            await trio.sleep(0.01)
        earned = (trio.current_time() - started_s) * STRANGERS_UNITS_PER_S
        spent = STRANGERS_UNITS_MAX - budget._pace._left
        assert spent + earned >= NOISE_UNITS + GREETING_UNITS


async def test_a_stranger_says_hello_a_few_times_a_second_and_not_hundreds() -> None:
    served = 0

    async def hello(stream: ByteStream) -> None:
        nonlocal served
        served += 1

    async def never(peer_id: PeerId) -> bool:
        await trio.sleep_forever()
        raise AssertionError

    node = Libp2pTransport(bytes([2]) * 32, "test", NetworkConfig(listen=(LOOPBACK,)))
    node.guard(never, frozenset({HELLO}), lambda _peer_id, _fault: None, lambda _peer_id: True)
    node.set_handler(HELLO, hello)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        started_s = trio.current_time()
        with trio.move_on_after(2):
            async with session_with(Target(node.addresses()[0])) as session:
                while True:
                    stream = await opened(session, HELLO)
                    await stream.reset()
        seconds = trio.current_time() - started_s
        nursery.cancel_scope.cancel()
    credit = STRANGER_UNITS_MAX + seconds * STRANGER_UNITS_PER_S + TURN_UNITS
    assert 5 <= served <= 2 + credit / (OPEN_SERVICE_UNITS + OPENED_UNITS)


async def test_all_guests_together_may_do_what_one_member_may(autojump_clock: object) -> None:
    """Keys cost nothing: as many as there are places for would else take twelve cores."""
    guests, done = SharedPace(GUESTS_UNITS_PER_S, GUESTS_UNITS_MAX), dict.fromkeys("gmx", 0)
    members = {"m"}

    async def work(kind: str) -> None:
        bill = Bill(None)
        bill.admit(lambda: kind in members, guests)
        while True:
            bill.units += TURN_UNITS
            await bill.settle()
            done[kind] += TURN_UNITS

    with trio.move_on_after(10):
        async with trio.open_nursery() as nursery:
            for kind in "m" + 64 * "g":
                nursery.start_soon(work, kind)
    assert done["m"] >= MEMBER_UNITS_PER_S * 10  # nothing of theirs is taken from it
    assert done["g"] <= GUESTS_UNITS_MAX + GUESTS_UNITS_PER_S * 10
    assert done["g"] >= GUESTS_UNITS_PER_S * 10
    with trio.move_on_after(1):
        await work("x")
    as_guest = done["x"]
    members.add("x")
    assert as_guest <= 2 * GUESTS_UNITS_PER_S
    with trio.move_on_after(2):
        await work("x")
    assert done["x"] - as_guest >= 2 * MEMBER_UNITS_PER_S


@pytest.mark.parametrize("member", [True, False])
async def test_an_admitted_peer_pays_as_what_it_is_at_that_moment(member: bool) -> None:
    async def open_door(_peer_id: PeerId) -> bool:
        return True

    node = Libp2pTransport(bytes([2]) * 32, "test", NetworkConfig(listen=(LOOPBACK,)))
    node.guard(open_door, frozenset(), lambda _peer_id, _fault: None, lambda _peer_id: member)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        assert node._parts is not None
        budget = node._parts.swarm._budgets.guests._pace
        async with session_with(Target(node.addresses()[0])) as session:
            await trio.sleep(0.5)  # admitted by then
            for _ in range(4):
                session._writer.give(frame(PING, SYN, 0, 1) * 500)
                await session._writer.wait_for_room()
            await trio.sleep(0.5)
        taken = GUESTS_UNITS_MAX - budget._left
        nursery.cancel_scope.cancel()
    assert (taken > 0) == (not member)


async def test_window_that_nobody_waits_for_wakes_nobody() -> None:
    async with trio.open_nursery() as nursery:
        attacker, session = await session_on(nursery)
        session.admit(lambda: True, None)
        await attacker.write(frame(DATA, SYN, 1, 0))
        stream = await session.accept_stream()
        changed = stream.changed
        await attacker.write(frame(WINDOW_UPDATE, 0, 1, 1) * 100)
        await trio.testing.wait_all_tasks_blocked()
        assert stream.changed is changed
        stream.allowance = 0
        await attacker.write(frame(WINDOW_UPDATE, 0, 1, 1))
        await trio.testing.wait_all_tasks_blocked()
        assert changed.is_set()
        nursery.cancel_scope.cancel()
