"""Bulk sessions are scarce: who gets one, and who gives one up for it."""

from contextlib import ExitStack

import pytest
import trio

from daa_node.adapters import bulk_places
from daa_node.adapters.bulk_places import SESSIONS_PER_PEER_MAX, SessionPlaces
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.session import Token
from daa_node.seams import FrameStream, PeerId
from tests.daa_node.adapters.bulk_nodes import PLACES, Node, World, handshake, nodes, until


async def test_a_peer_gets_so_many_sessions_and_is_told_when_it_has_them() -> None:
    async with nodes() as (alice, bob):
        streams = []
        for _ in range(SESSIONS_PER_PEER_MAX):
            streams.append(await alice.bulk.open(bob.peer_id))
            await until(lambda: bob.bulk._places.held_by(alice.peer_id) == len(streams))
        with pytest.raises(Unavailable, match="busy"):
            await alice.bulk.open(bob.peer_id)
        await streams.pop().aclose()
        await until(lambda: bob.bulk._places.held_by(alice.peer_id) == len(streams))
        await (await alice.bulk.open(bob.peer_id)).aclose()


async def test_a_session_that_ends_in_any_way_gives_its_place_back() -> None:
    places, peer_id = SessionPlaces(lambda _peer_id: False), PeerId("peer")
    with trio.CancelScope() as life, places.hold(peer_id):
        life.cancel()
        await trio.sleep_forever()
    with pytest.raises(PeerFault), places.hold(peer_id):
        raise PeerFault("malformed")
    assert (places.taken, places.held_by(peer_id)) == (0, 0)


async def test_who_gives_way_has_given_its_place_before_the_next_one_asks() -> None:
    """Else as many as come at once are let in for one that is cut off."""
    places, crowd = SessionPlaces(lambda _peer_id: False), PeerId("crowd")
    places._sessions_max = SESSIONS_PER_PEER_MAX
    with ExitStack() as sessions:
        for _ in range(SESSIONS_PER_PEER_MAX):
            sessions.enter_context(places.hold(crowd))
        for number in range(1, 4):
            places.make_room(PeerId(f"peer {number}"))
            sessions.enter_context(places.hold(PeerId(f"peer {number}")))
            assert places.taken == SESSIONS_PER_PEER_MAX
            assert places.held_by(crowd) == SESSIONS_PER_PEER_MAX - number


def sockets_of(node: Node) -> int:
    """That hold places at the gate; the listener holds one more, for the next that comes."""
    return PLACES - node.doorway.gate.places.value - 1


async def test_who_keeps_the_stream_open_beside_its_socket_has_one_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else what gives way are the streams, and the sockets of many keys fill the port."""
    monkeypatch.setattr(bulk_places, "SESSIONS_PER_PEER_MAX", 2)
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        bob = Node(world, b"bob")
        bob.bulk._places._sessions_max = 4
        member, *guests = [Node(world, b"%d" % n, False) for n in range(7)]
        for node in (bob, member, *guests):
            node.known[bob.peer_id] = bob.keys.node_id
            bob.known[node.peer_id] = node.keys.node_id
            await nursery.start(node.run)
        bob.members |= {member.peer_id}
        sockets = []
        for crowd in (guests[:2], *([late] for late in guests[2:])):
            agreed = []
            for guest in crowd * 2:
                try:
                    agreed.append((guest, (await handshake(guest, bob))[1]))
                except Unavailable:
                    assert guest in guests[2:]  # all hold as much as it would
            for guest, keys in agreed:
                sockets.append(await guest.bulk._dialer.dial(bob.peer_id, keys))
                assert sockets[-1] is not None
        await until(lambda: sockets_of(bob) == bob.bulk._places.taken)
        assert sockets_of(bob) == 4 < len(sockets)
        stream = await member.bulk.open(bob.peer_id)
        await stream.send_frame(b"hello")
        assert await stream.receive_frame() == b"hello"
        await until(lambda: sockets_of(bob) == bob.bulk._places.taken == 4)
        assert bob.faults == []
        nursery.cancel_scope.cancel()


async def test_a_socket_ends_the_wait_for_it_and_none_comes_in_for_who_gave_way() -> None:
    places, peer_id, token = SessionPlaces(lambda _peer_id: False), PeerId("peer"), Token(b"token")
    with places.hold(peer_id) as place, places.await_socket(token, place):
        with places.take_over(peer_id, token):
            assert place.cancel_called
            assert places.held_by(peer_id) == places.taken == 1
        assert places.taken == 0
        with pytest.raises(Unavailable, match="given way"), places.take_over(peer_id, token):
            pass
    places._sessions_max = 2
    with ExitStack() as crowd:
        place = crowd.enter_context(places.hold(peer_id))
        crowd.enter_context(places.await_socket(token, place))
        crowd.enter_context(places.hold(peer_id))
        places.make_room(PeerId("other"))
        with places.hold(PeerId("other")):
            with pytest.raises(Unavailable, match="given way"), places.take_over(peer_id, token):
                pass
            assert places.taken == 2


async def is_cut(stream: FrameStream) -> bool:
    try:
        await stream.send_frame(b"hello")
        return await stream.receive_frame() is None
    except (Unavailable, PeerFault):
        return True


async def test_few_peers_with_all_sessions_keep_nobody_else_out() -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        bob = Node(world, b"bob")
        bob.bulk._places._sessions_max = 2 * SESSIONS_PER_PEER_MAX
        greedy, modest = [Node(world, b"%d" % n, False) for n in range(2)], Node(world, b"m", False)
        for node in (bob, *greedy, modest):
            node.known[bob.peer_id] = bob.keys.node_id
            bob.known[node.peer_id] = node.keys.node_id
            await nursery.start(node.run)
        streams = []
        for node in greedy * SESSIONS_PER_PEER_MAX:
            streams.append(await node.bulk.open(bob.peer_id))
            await until(lambda: bob.bulk._places.taken == len(streams))
        stream = await modest.bulk.open(bob.peer_id)
        await stream.send_frame(b"hello")
        assert await stream.receive_frame() == b"hello"
        assert bob.bulk._places.taken == len(streams)
        assert sorted(len(held) for held in bob.bulk._places._inbound.values()) == [1, 7, 8]
        assert await is_cut(streams[0])  # its oldest
        with pytest.raises(Unavailable, match="busy"):
            await greedy[1].bulk.open(bob.peer_id)
        nursery.cancel_scope.cancel()


async def test_members_give_way_to_members_only() -> None:
    """Sixty-four guests with four sessions each cut one of a member's at every handshake."""
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        bob = Node(world, b"bob")
        bob.bulk._places._sessions_max = SESSIONS_PER_PEER_MAX + 1
        member, guest, late = (Node(world, b"%d" % n, False) for n in range(3))
        for node in (bob, member, guest, late):
            node.known[bob.peer_id] = bob.keys.node_id
            bob.known[node.peer_id] = node.keys.node_id
            await nursery.start(node.run)
        bob.members |= {member.peer_id}
        streams = []
        for node in [*[member] * (SESSIONS_PER_PEER_MAX - 1), guest, guest]:
            streams.append(await node.bulk.open(bob.peer_id))
            await until(lambda: bob.bulk._places.taken == len(streams))
        taken = await late.bulk.open(bob.peer_id)  # of the other guest, who holds two
        await taken.send_frame(b"hello")
        assert await taken.receive_frame() == b"hello"
        await until(lambda: bob.bulk._places.held_by(member.peer_id) == SESSIONS_PER_PEER_MAX - 1)
        with pytest.raises(Unavailable, match="busy"):
            await guest.bulk.open(bob.peer_id)
        streams.append(await member.bulk.open(bob.peer_id))
        await until(lambda: bob.bulk._places.held_by(member.peer_id) == SESSIONS_PER_PEER_MAX)
        nursery.cancel_scope.cancel()
