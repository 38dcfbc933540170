"""Two that a relay joins come to reach each other without it, and nobody else is dialled for it."""

import socket

import pytest
import trio

from daa_node.adapters import hole_punches, simultaneous_open
from daa_node.adapters.budgets import Endpoint
from daa_node.adapters.hole_punches import HolePunches
from daa_node.adapters.host_names import dial
from daa_node.adapters.libp2p_circuits import RelayedConnections
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.adapters.simultaneous_open import AGAIN_S, TRY_S, cross, is_in_reach
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import Announcement, ByteStream, PeerId
from daa_node.wire import protocols, punch_messages, relay_messages
from daa_node.wire.framing import read_message, write_message
from daa_node.wire.punch_messages import Word, said
from tests.daa_node.adapters.test_libp2p_circuits import heard_back, through, world
from tests.daa_node.network.neighbours import until

TOPIC = "/topic"


async def meet(own: Endpoint, other: Endpoint) -> trio.SocketStream:
    """As through two routers. Without a delay between them no two SYNs cross: one end waits."""
    if own < other:
        for _ in range(100):
            try:
                return await dial(other, own)
            except OSError:
                await trio.sleep(0.02)
        raise Unavailable("nobody came")
    with trio.socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        await door.bind(own)
        door.listen()
        with trio.fail_after(30):
            return trio.SocketStream((await door.accept())[0])


async def miss(_own: Endpoint, other: Endpoint) -> trio.SocketStream:
    raise Unavailable(f"{other[0]} did not let us in")


async def joined(
    relay: Libp2pTransport, caller: Libp2pTransport, called: Libp2pTransport
) -> tuple[Libp2pTransport, Libp2pTransport]:
    """By a circuit of the relay's."""
    await called.circuits.reserve(relay.peer_id)
    await caller.dial(through(relay, called))
    await until(lambda: caller.peer_id in called.connected())
    for each in (caller, called):
        each.punches._cross = meet
    return caller, called


async def test_two_that_a_relay_joins_go_on_without_it() -> None:
    async with world() as (relay, caller, called):
        heard: dict[PeerId, list[bytes]] = {}

        def listen(own: Libp2pTransport) -> None:
            def judge(announcement: Announcement) -> bool:
                heard.setdefault(own.peer_id, []).append(announcement.payload)
                return True

            own.join_topic(TOPIC, lambda _: True, judge)

        pair = await joined(relay, caller, called)
        for each in pair:
            listen(each)
        await called.punches.punch(caller.peer_id)
        for one, other in (pair, pair[::-1]):
            assert one.punches.is_punched(other.peer_id)
            while one.circuits.is_relayed(other.peer_id):
                await trio.sleep(0.01)
            assert one.network_of(other.peer_id) == "127.0.0.1"
            payload = bytes(range(256)) * 4096
            assert await heard_back(one, other.peer_id, payload) == payload
        desk = relay.circuits.desk
        assert desk is not None
        await until(lambda: desk.circuits == 0)
        # gossip goes on, though the streams on which it began have ended; the relay heard no topic
        with trio.fail_after(20):
            while not all(b"still there" in heard.get(each.peer_id, []) for each in pair):
                for each in pair:
                    await each.publish(TOPIC, b"still there")
                await trio.sleep(0.2)


def test_where_nothing_was_punched_no_connection_is_looked_up() -> None:
    punches = HolePunches(RelayedConnections())  # without a host: there is nothing to look it up in
    assert not punches.is_punched(PeerId("no base58 at all"))


async def test_a_hole_that_is_none_leaves_the_relayed_connection_as_it_was() -> None:
    async with world() as (relay, caller, called):
        await joined(relay, caller, called)
        caller.punches._cross = called.punches._cross = miss
        with pytest.raises(Unavailable, match="did not let us in"):
            await caller.punches.punch(called.peer_id)
        assert not caller.punches.is_punched(called.peer_id)
        assert await heard_back(caller, called.peer_id, b"by the relay") == b"by the relay"


async def test_whoever_else_answers_there_is_not_taken_for_the_peer() -> None:
    async with world() as (relay, caller, called):
        await joined(relay, caller, called)
        door = relay.addresses()[0].split("/")

        async def astray(own: Endpoint, _other: Endpoint) -> trio.SocketStream:
            return await dial((door[2], int(door[4])))

        caller.punches._cross, called.punches._cross = astray, miss
        with pytest.raises(Unavailable):
            await caller.punches.punch(called.peer_id)
        assert caller.circuits.is_relayed(called.peer_id)
        assert not caller.punches.is_punched(called.peer_id)


async def test_a_relay_tells_of_nobody_whom_it_does_not_join_with_the_asker() -> None:
    async with world() as (relay, caller, called):
        stream = await caller.open_stream(relay.peer_id, protocols.PUNCH)
        await write_message(stream, punch_messages.where(called.peer_id))
        answer = await read_message(stream, relay_messages.MESSAGE_BYTES_MAX)
        with pytest.raises(Unavailable, match="no circuit joins you"):
            punch_messages.place_of(answer)
        with pytest.raises(Unavailable, match="through no relay"):
            await caller.punches.punch(relay.peer_id)


async def test_nobody_is_dialled_where_the_relay_cannot_have_seen_it() -> None:
    async with world() as (relay, caller, called):
        await joined(relay, caller, called)
        dialled = []

        async def note(_own: Endpoint, other: Endpoint) -> trio.SocketStream:
            dialled.append(other)
            raise Unavailable("noted")

        async def lie(stream: ByteStream) -> None:
            await read_message(stream, relay_messages.MESSAGE_BYTES_MAX)
            await write_message(stream, punch_messages.at("192.168.0.1", 8080))

        caller.punches._cross = note
        relay.set_handler(protocols.PUNCH, lie)
        with pytest.raises(Unavailable, match="which we do not follow"):
            await caller.punches.punch(called.peer_id)
        assert not dialled


async def test_who_asks_again_and_again_is_refused() -> None:
    async with world() as (relay, caller, called):
        await joined(relay, caller, called)
        caller.punches._cross = called.punches._cross = miss
        for _ in range(int(hole_punches.ASKED_BURST)):
            with pytest.raises(Unavailable, match="did not let us in"):
                await caller.punches.punch(called.peer_id)
        with pytest.raises(Unavailable, match="asked too often"):
            await caller.punches.punch(called.peer_id)


async def test_no_more_holes_are_punched_at_once_than_there_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world() as (relay, caller, called):
        await joined(relay, caller, called)
        monkeypatch.setattr(hole_punches, "AT_ONCE_MAX", 0)
        with pytest.raises(Unavailable, match="busy"):
            await caller.punches.punch(called.peer_id)
        monkeypatch.undo()
        await caller.punches.punch(called.peer_id)  # nothing was kept of it
        assert called.punches.is_punched(caller.peer_id)


async def test_strangers_that_hold_their_places_leave_one_to_members() -> None:
    async with world() as (relay, caller, called):
        await joined(relay, caller, called)
        members = {PeerId("member")}
        called.punches._is_member = members.__contains__
        strangers = hole_punches.STRANGERS_AT_ONCE_MAX
        called.punches._busy |= set(map(PeerId, "abc"[:strangers]))
        with pytest.raises(Unavailable, match="other strangers"):
            await caller.punches.punch(called.peer_id)
        members.add(caller.peer_id)
        await caller.punches.punch(called.peer_id)
        assert called.punches.is_punched(caller.peer_id)


async def test_who_holds_all_places_that_others_have_leaves_ours() -> None:
    async with world() as (relay, caller, called):
        await joined(relay, caller, called)
        called.punches._is_member = {caller.peer_id}.__contains__
        called.punches._busy |= set(map(PeerId, "abc"))
        assert len(called.punches._busy) == hole_punches.ASKED_AT_ONCE_MAX
        with pytest.raises(Unavailable, match="busy"):
            await caller.punches.punch(called.peer_id)
        await called.punches.punch(caller.peer_id)
        assert called.punches.is_punched(caller.peer_id)


async def test_who_draws_its_hole_out_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hole_punches, "ANSWER_TIMEOUT_S", 3.0)
    async with world() as (relay, caller, called):
        await joined(relay, caller, called)
        stream = await caller.open_stream(called.peer_id, protocols.PUNCH)
        await write_message(stream, said(Word.CONNECT))
        assert punch_messages.word_of(await read_message(stream, 1024)) is Word.READY
        assert called.punches._busy == {caller.peer_id}
        await until(lambda: not called.punches._busy)


async def test_one_that_asks_a_relay_again_and_again_takes_no_answer_from_others() -> None:
    async with world() as (relay, caller, called):
        await joined(relay, caller, called)

        async def asked(by: Libp2pTransport, of: Libp2pTransport) -> Endpoint:
            stream = await by.open_stream(relay.peer_id, protocols.PUNCH)
            await write_message(stream, punch_messages.where(of.peer_id))
            return punch_messages.place_of(await read_message(stream, 1024))

        for _ in range(int(hole_punches.WHERE_OF_ONE_BURST)):
            await asked(caller, called)
        with pytest.raises(Unavailable, match="busy"):
            await asked(caller, called)
        assert (await asked(called, caller))[0] == "127.0.0.1"


async def test_one_refusal_after_the_other_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daa_node.adapters.simultaneous_open.TRY_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as door:
        place = door.getsockname()
    with trio.fail_after(30), pytest.raises(Unavailable, match="refused"):
        await cross(("127.0.0.1", 0), place)


async def test_a_place_is_dialled_from_our_own_end_as_long_as_may_be(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[tuple[Endpoint, Endpoint]] = []

    async def refuses(other: Endpoint, own: Endpoint) -> trio.SocketStream:
        dialled.append((own, other))
        raise OSError(111, "refused")

    monkeypatch.setattr(simultaneous_open, "dial", refuses)
    own, other, began_s = ("10.0.0.1", 4001), ("10.0.0.2", 5000), trio.current_time()
    with pytest.raises(Unavailable, match=r"10\.0\.0\.2:5000 was dialled in vain: refused"):
        await cross(own, other)
    assert trio.current_time() - began_s == pytest.approx(TRY_S)
    assert set(dialled) == {(own, other)}
    assert len(dialled) == pytest.approx(TRY_S / AGAIN_S, abs=2)


@pytest.mark.parametrize(
    ("host", "relay", "follows"),
    [
        ("203.0.113.9", "198.51.100.7", True),  # both of examples, which is as good as private
        ("1.1.1.1", "8.8.8.8", True),
        ("192.168.1.1", "8.8.8.8", False),
        ("1.1.1.1", "10.0.0.1", False),
        ("10.0.0.2", "10.0.0.1", True),
        ("127.0.0.1", "8.8.8.8", False),
        ("127.0.0.1", "10.0.0.1", False),
        ("::ffff:127.0.0.1", "8.8.8.8", False),
        ("::ffff:1.1.1.1", "8.8.8.8", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", True),
        ("240.0.0.1", "10.0.0.1", False),
        ("240.0.0.1", "240.0.0.2", False),
        ("169.254.1.1", "169.254.1.2", True),
        ("169.254.169.254", "10.0.0.1", False),
        ("224.0.0.1", "224.0.0.2", False),
        ("0.0.0.0", "0.0.0.0", False),
        ("router.example", "8.8.8.8", False),
        ("2606:4700::1111", "2001:4860::8888", True),
        ("fe80::1", "2001:4860::8888", False),
    ],
)
def test_a_relay_is_followed_to_what_it_can_see_alone(host: str, relay: str, follows: bool) -> None:
    assert is_in_reach(host, relay) is follows


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        said(Word.PONG)[:-1],
        punch_messages.at("1.1.1.1", 22),
        relay_messages.reserve(),
    ],
)
def test_what_is_no_word_is_a_fault(payload: bytes) -> None:
    for read in (punch_messages.word_of, punch_messages.wish_of, punch_messages.place_of):
        with pytest.raises(PeerFault, match="punch-malformed"):
            read(payload)
