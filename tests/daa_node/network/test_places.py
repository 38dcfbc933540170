"""Members always find a place; one name has one, and one address leaves a share to each other."""

import time
from contextlib import AsyncExitStack

import pytest
import trio
from libp2p.peer.id import ID
from multiaddr import Multiaddr

from daa_node.errors import PeerFault
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import NodeRecord, Role, SignedRecord
from daa_node.network.directory import OTHERS_MAX, Directory
from daa_node.network.places import PlaceLimits, Places
from daa_node.observability.events import EventLog
from daa_node.seams import PeerId
from tests.daa_node.network.neighbours import KEYS, Neighbour, running, until

NAME = NodeKeys.from_seed(b"one name".ljust(32, b"."))


def with_transport_key(number: int) -> NodeKeys:
    """The same name, reached in another way."""
    seed = number.to_bytes(32, "big")
    return NodeKeys(NAME.ml_dsa_seed, NAME.ml_kem_seed, seed)


def admitted_at(host: Neighbour) -> list[PeerId]:
    """Whoever is refused may knock again."""
    swarm = host.transport._parts.swarm  # type: ignore[union-attr]
    return [p for p in host.transport.connected() if swarm.admissions.has(ID.from_base58(p))]


def is_told(refused: Neighbour, holder: Neighbour) -> bool:
    return any(
        (by, reason) == ("peer", "superseded") and holder.peer_id in detail
        for by, reason, detail in refused.refusals()
    )


async def test_one_name_with_many_transport_keys_holds_one_place() -> None:
    host = Neighbour(0, (0,))
    async with running(host), AsyncExitStack() as stack:
        others = [Neighbour(1, other_keys=with_transport_key(number + 1)) for number in range(12)]
        for other in others:
            await stack.enter_async_context(running(other))
            await other.transport.dial(host.address)
            await until(lambda: other.welcomed(host))  # noqa: B023
        await until(lambda: admitted_at(host) == [others[-1].peer_id])
        # The newest record is whose place it is; the ones before are told who has it now.
        with trio.fail_after(30):
            while not is_told(others[0], others[-1]):
                await others[0].transport.dial(host.address)
                await trio.sleep(0.2)
        await until(lambda: admitted_at(host) == [others[-1].peer_id])
        assert host.directory.node_of(others[-1].peer_id) == NAME.node_id


async def test_a_name_that_is_banned_is_so_under_every_transport_key() -> None:
    host = Neighbour(0, (0,))
    first, second = (Neighbour(1, other_keys=with_transport_key(number)) for number in (1, 2))
    async with running(host), running(first), running(second):
        await first.transport.dial(host.address)
        await until(lambda: host.welcomed(first))
        while not host.directory.blame(first.peer_id, PeerFault("bad-signature")):
            pass
        await second.transport.dial(host.address)
        await until(lambda: bool(second.refusals()))
        assert second.refusals()[0][:2] == ("peer", "banned")


@pytest.mark.long
async def test_the_connections_of_one_peer_leave_room_for_members() -> None:
    host = Neighbour(0, (0, 1), peers_max=4)
    member, greedy = Neighbour(1, (0, 1)), Neighbour(2)
    async with running(host), running(member), running(greedy):
        await greedy.transport.dial(host.address)
        await until(lambda: host.welcomed(greedy) and greedy.welcomed(host))
        swarm = greedy.transport._parts.swarm  # type: ignore[union-attr]
        peer_id = ID.from_base58(host.peer_id)
        for _ in range(200):
            await swarm.dial_addr(Multiaddr(host.address), peer_id)
        held = host.transport._parts.swarm.connections  # type: ignore[union-attr]
        await until(lambda: [len(some) for some in held.values()] == [2])
        await member.transport.dial(host.address)
        await until(lambda: host.welcomed(member) and member.welcomed(host))


class Crowd:
    """Peers that are connected from networks of our choice."""

    def __init__(self) -> None:
        self.networks: dict[PeerId, str] = {}

    def connected(self) -> list[PeerId]:
        return list(self.networks)

    def network_of(self, peer_id: PeerId) -> str:
        return self.networks[peer_id]


def record(number: int, sequence: int = 1, peer: str = "") -> SignedRecord:
    """Of one name and peer each; what signatures cover is not looked at here."""
    name = b"%d" % number
    made = NodeRecord(
        name, b"", PeerId(peer or f"peer {number}"), (), Role.EDGE, (), sequence, 0, 10**9
    )
    return SignedRecord(made, b"", b"")


class House:
    def __init__(self, others_max: int, named: frozenset[PeerId] = frozenset()) -> None:
        self.crowd = Crowd()
        self.directory = Directory(lambda: 0.0, {}, EventLog(time.time_ns))
        self.places = Places(self.crowd, self.directory, PlaceLimits(others_max, named))

    def comes(self, signed: SignedRecord, network: str) -> list[PeerId]:
        """Who must go for it."""
        peer_id = signed.record.peer_id
        self.crowd.networks[peer_id] = network
        try:
            parted = self.places.take(signed)
        except PeerFault:
            del self.crowd.networks[peer_id]
            raise
        for other in parted:
            del self.crowd.networks[other]
        self.directory.learn(signed)
        return parted

    def held(self, network: str) -> int:
        return list(self.crowd.networks.values()).count(network)


def test_many_who_come_at_once_find_no_more_than_the_places() -> None:
    house = House(4)
    for number in range(4):
        assert house.comes(record(number), f"192.0.2.{number}") == []
    with pytest.raises(PeerFault, match="full"):
        house.comes(record(9), "192.0.2.9")


def test_one_address_with_many_names_leaves_a_share_to_each_other() -> None:
    house = House(8)
    crowd = [record(number) for number in range(8)]
    for signed in crowd:
        house.comes(signed, "192.0.2.1")
    with pytest.raises(PeerFault, match="full"):
        house.comes(record(50), "192.0.2.1")
    for number in range(100, 103):
        parted = house.comes(record(number), f"198.51.100.{number}")
        assert parted == [crowd.pop().record.peer_id]  # the newest of the greedy address
    for number in range(200, 202):
        house.comes(record(number), "203.0.113.1")  # another address with many names
    assert (house.held("192.0.2.1"), house.held("203.0.113.1")) == (3, 2)
    with pytest.raises(PeerFault, match="full"):  # as many as the greediest holds already
        house.comes(record(300), "203.0.113.1")


def test_members_and_whom_the_operator_named_need_no_place() -> None:
    house = House(1, frozenset({PeerId("peer 7")}))
    house.comes(record(0), "192.0.2.1")
    assert house.comes(record(7), "192.0.2.7") == []
    member = record(3)
    house.directory.enlist({member.record.node_id: member.record.peer_id})
    assert house.comes(member, "192.0.2.3") == []
    house.directory.enlist({})  # it is none any more
    del house.crowd.networks[PeerId("peer 0")]
    with pytest.raises(PeerFault, match="full"):
        house.comes(record(4), "192.0.2.4")


def test_a_place_is_free_once_its_connection_is_gone() -> None:
    house = House(1)
    house.comes(record(0), "192.0.2.1")
    del house.crowd.networks[PeerId("peer 0")]
    assert house.comes(record(1), "192.0.2.2") == []


def test_of_two_transport_keys_the_higher_sequence_number_decides_in_either_order() -> None:
    for first, second in ((1, 2), (2, 1), (2, 2)):
        house = House(4)
        house.comes(record(0, first, "one"), "192.0.2.1")
        if second > first:
            assert house.comes(record(0, second, "other"), "192.0.2.2") == ["one"]
        else:
            with pytest.raises(PeerFault, match="superseded"):
                house.comes(record(0, second, "other"), "192.0.2.2")
        assert len(house.crowd.networks) == 1


def test_a_members_transport_key_carries_no_other_name() -> None:
    house = House(4)
    house.directory.enlist({record(3).record.node_id: PeerId("the member's")})
    with pytest.raises(PeerFault, match="two-names"):
        house.comes(record(4, peer="the member's"), "192.0.2.4")


def test_whoever_is_connected_is_remembered_however_many_are_only_heard_of() -> None:
    house = House(4)
    guest = record(0)
    house.comes(guest, "192.0.2.1")
    for number in range(1, OTHERS_MAX + 50):
        house.directory.learn(record(number))
    assert house.directory.node_of(guest.record.peer_id) == guest.record.node_id


async def test_a_member_of_the_past_is_a_stranger_again_and_dialled_no_more() -> None:
    ours = Neighbour(0, (0, 1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.discovery._look_around, nursery)
        await until(lambda: ours.discovery._kept == {KEYS[0].node_id, KEYS[1].node_id})
        ours.directory.enlist({KEYS[0].node_id: KEYS[0].peer_id})
        await until(lambda: KEYS[1].node_id not in ours.discovery._kept)
        nursery.cancel_scope.cancel()
    assert KEYS[1].node_id not in ours.directory.members()
