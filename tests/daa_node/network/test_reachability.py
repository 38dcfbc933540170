"""Whether we can be dialled: members show it, and too few of them decide nothing."""

import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any, Literal

import pytest
import trio

from daa_dag import canonical
from daa_dag.ids import NodeId
from daa_node.errors import PeerFault, Unavailable
from daa_node.network import reachability
from daa_node.network.dial_back import REQUEST, decode_request
from daa_node.network.port_mapping import PortMapping
from daa_node.network.reachability import Reach, Reachability, ports_of
from daa_node.network.turns import share_of
from daa_node.observability.events import EventLog
from daa_node.seams import Address, PeerId

ME = NodeId(b"me" * 16)
MEMBERS = [NodeId(bytes([number]) * 32) for number in range(1, 5)]
BLOCKING = 2
SEEN_AT = "203.0.113.9"
Manner = Literal["rings", "silent", "busy", "rings for another", "garbage"]


class Bell:
    """A doorbell without a door."""

    def __init__(self) -> None:
        self.is_dialable = True
        self.outside: Address | None = None
        self.awaited: dict[bytes, trio.Event] = {}

    @contextmanager
    def awaiting(self, token: bytes) -> Iterator[trio.Event]:
        self.awaited[token] = trio.Event()
        yield self.awaited[token]
        del self.awaited[token]

    async def ring(self, host: str, port: int, token: bytes) -> None:
        raise AssertionError

    def host_of(self, peer_id: PeerId) -> str:
        raise AssertionError


class World:
    """We, and members with manners of their own."""

    def __init__(self, *manners: Manner, insists: bool = False) -> None:
        self.manners = dict(zip(MEMBERS, manners, strict=False))
        self.me = ME
        self.bell = Bell()
        self.ports: tuple[int, ...] = (4001,)
        self.seen: dict[NodeId, str] = {}  # by who does not see us at SEEN_AT
        self.blamed: list[str] = []
        self.listens = [Address("/ip4/192.168.1.2/tcp/4001/p2p/me")]
        self.asked: list[Any] = []  # tokens
        self._drawn = 0
        self.events = EventLog(time.time_ns)
        world: Any = self
        self.own = Reachability(self.bell, world, world, world, world, self.events, insists)

    # what a Reachability asks of transport, contacts, requests and entropy

    peer_id = PeerId("we")

    def addresses(self) -> list[Address]:
        return self.listens

    def members(self) -> set[NodeId]:
        return set(self.manners)

    def is_member(self, _peer_id: PeerId) -> bool:
        return True

    def peer_of(self, node: NodeId) -> PeerId:
        return PeerId(node.hex())

    def one_is_honest(self, nodes: Set[NodeId]) -> bool:
        return len(nodes) >= BLOCKING

    def blame(self, _peer_id: PeerId, fault: PeerFault) -> None:
        self.blamed.append(fault.reason)

    def bytes(self, size: int) -> Any:
        self._drawn += 1
        return self._drawn.to_bytes(size)

    def register(self, name: str, _handler: object) -> None:
        assert name == REQUEST

    async def ask(self, peer_id: PeerId, name: str, body: Any, *_limits: float) -> Any:
        assert name == REQUEST
        token, ports = decode_request(body)
        assert ports == self.ports
        self.asked.append(token)
        match self.manners[NodeId(bytes.fromhex(peer_id))]:
            case "busy":
                raise Unavailable("busy")
            case "rings":
                self.bell.awaited[token].set()
            case "rings for another":
                self.bell.awaited.get(bytes(32), trio.Event()).set()
            case "garbage":
                return canonical.encode(["not an address", 3])
        return canonical.encode([self.seen.get(NodeId(bytes.fromhex(peer_id)), SEEN_AT), 3])

    async def measured(self, for_s: float = 12.0) -> None:
        with trio.move_on_after(for_s):
            await self.own.run()

    def told(self) -> list[tuple[str, str]]:
        """(reach, before) of each event."""
        return [(event["reach"], event["before"]) for event in self.events.tail()]


@pytest.mark.parametrize(
    ("manners", "reach"),
    [
        (("rings", "rings", "rings", "rings"), Reach.DIRECT),
        (("rings", "rings", "silent", "silent"), Reach.DIRECT),
        (("silent", "silent", "silent", "rings"), Reach.UNREACHABLE),
        (("silent", "busy", "busy", "busy"), Reach.UNKNOWN),
        (("rings", "busy", "busy", "silent"), Reach.UNKNOWN),
        (("rings", "rings for another", "busy", "busy"), Reach.UNKNOWN),
        (("garbage", "garbage", "garbage", "silent"), Reach.UNKNOWN),
    ],
)
async def test_a_blocking_weight_decides_and_less_than_that_does_not(
    manners: tuple[Manner, ...], reach: Reach, autojump_clock: object
) -> None:
    world = World(*manners)
    await world.measured()
    assert world.own.reach is reach
    assert (world.own.told() == []) is (reach is Reach.UNREACHABLE)
    assert world.bell.is_dialable is (reach is not Reach.UNREACHABLE)
    assert len(world.blamed) == manners.count("garbage")
    assert world.told() == ([] if reach is Reach.UNKNOWN else [(str(reach), "unknown")])
    assert not world.bell.awaited


async def test_each_member_has_a_token_of_its_own(autojump_clock: object) -> None:
    world = World("rings", "rings", "rings", "rings")
    await world.measured()
    assert len(set(world.asked)) == len(MEMBERS)


async def test_nobody_is_asked_before_enough_are_there_to_be_believed(
    autojump_clock: object,
) -> None:
    world = World("rings")
    await world.measured()
    assert not world.asked
    assert world.own.standing()["reach"] == "unknown"


async def test_what_was_found_holds_until_enough_show_the_other(autojump_clock: object) -> None:
    world = World("silent", "silent", "silent", "silent")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.own.run)
        await trio.sleep(20)
        assert world.told() == [("unreachable", "unknown")]
        world.manners = dict(zip(MEMBERS, ["rings", "busy", "busy", "busy"], strict=True))
        world.listens = [*world.listens, Address("/ip4/192.168.1.2/tcp/4001/ws/p2p/me")]
        await trio.sleep(20)
        assert len(world.told()) == 1
        world.manners = dict.fromkeys(MEMBERS, "rings")
        await trio.sleep(reachability.AGAIN_UNKNOWN_S + 10)
        assert world.own.told() == world.listens
        nursery.cancel_scope.cancel()
    assert world.told() == [("unreachable", "unknown"), ("direct", "unreachable")]


async def test_who_finds_all_of_them_busy_asks_again_soon_and_from_then_on_seldom(
    autojump_clock: object,
) -> None:
    world = World("busy", "busy", "busy", "busy")
    first_s = reachability.SPREAD_S * share_of(world.peer_id) + reachability.FIRST_S
    again_s, unknown_s = reachability.AGAIN_SOON_S, reachability.AGAIN_UNKNOWN_S
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.own.run)
        await trio.sleep(first_s + again_s + 2)
        assert len(world.asked) == 2 * len(MEMBERS)
        await trio.sleep(unknown_s - 2)
        assert len(world.asked) == 2 * len(MEMBERS)
        await trio.sleep(3)
        assert len(world.asked) == 3 * len(MEMBERS)
        nursery.cancel_scope.cancel()


async def test_it_is_measured_again_when_addresses_change_and_every_so_often(
    autojump_clock: object,
) -> None:
    world = World("rings", "rings")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.own.run)
        await trio.sleep(60)
        assert len(world.asked) == 2
        world.listens = [Address("/ip4/198.51.100.7/tcp/4001/p2p/me")]
        await trio.sleep(60)
        assert len(world.asked) == 4
        await trio.sleep(reachability.AGAIN_S)
        assert len(world.asked) == 6
        nursery.cancel_scope.cancel()
    assert world.told() == [("direct", "unknown")]


async def test_what_the_operator_says_is_told_whatever_is_found(autojump_clock: object) -> None:
    world = World("silent", "silent", insists=True)
    await world.measured()
    assert world.own.reach is Reach.UNREACHABLE
    assert world.own.told() == world.listens
    assert world.bell.is_dialable
    assert "network.announce" in world.own.standing()["why"]


async def test_status_says_who_got_through_and_where_we_are_seen(autojump_clock: object) -> None:
    world = World("rings", "rings", "silent", "busy")
    await world.measured()
    standing = world.own.standing()
    assert len(standing["rung"]) == 2
    assert len(standing["silent"]) == standing["refused"] == 1
    assert standing["seen_at"] == [SEEN_AT]
    assert standing["why"] == "2 of 3 members that dialled back got through"


def test_ports_are_those_that_peers_dial_each_once() -> None:
    addresses = ["/ip4/10.0.0.1/tcp/4001/p2p/x", "/ip4/10.0.0.1/tcp/4001/ws/p2p/x"]
    addresses += ["/dns4/a.example/tcp/443/p2p/x", "/ip4/10.0.0.1/tcp/9/p2p/x"]
    assert ports_of([Address(text) for text in addresses]) == (4001, 443)
    assert ports_of([Address("/ip4/10.0.0.1/tcp/0"), Address("rubbish")]) == ()


async def test_a_router_is_believed_where_members_see_us_and_get_through_alone(
    autojump_clock: object,
) -> None:
    world = World("silent", "silent")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.own.run)
        await trio.sleep(20)
        world.ports = (4003,)  # and no other one, which might get through by itself
        world.own.claim(SEEN_AT, 4003)
        await trio.sleep(30)
        assert world.bell.outside is None
        world.manners = dict.fromkeys(world.manners, "rings")
        world.own.claim("203.0.113.77", 4003)  # got through, but nobody sees us there
        await trio.sleep(30)
        assert (world.own.reach, world.bell.outside) == (Reach.DIRECT, None)
        world.seen = {MEMBERS[0]: "203.0.113.77"}  # one that lies has nobody dial where it likes
        world.own.claim("203.0.113.77", 4003)
        await trio.sleep(30)
        assert (world.own.reach, world.bell.outside) == (Reach.DIRECT, None)
        world.seen.clear()
        world.own.claim(SEEN_AT, 4003)
        await trio.sleep(30)
        assert world.bell.outside == f"/ip4/{SEEN_AT}/tcp/4003"
        world.ports = (4001,)
        world.manners = dict.fromkeys(world.manners, "silent")
        world.own.claim(None, 0)
        await trio.sleep(30)
        assert world.bell.outside is None
        nursery.cancel_scope.cancel()


class Carrier:
    """A home's router, behind that of a carrier."""

    def __init__(self) -> None:
        self.asked_at_s: list[float] = []

    async def open_port(self, port: int, _seconds: int) -> tuple[str, int]:
        self.asked_at_s.append(trio.current_time())
        return "100.64.1.2", port

    async def close_port(self, outside: int) -> None:
        """It does."""


async def test_who_sees_us_elsewhere_each_time_has_neither_router_nor_members_asked_more(
    autojump_clock: object,
) -> None:
    world, router = World("silent", "silent", "silent", "silent"), Carrier()
    ask, told = world.ask, 0

    async def lying_ask(peer_id: PeerId, name: str, body: Any, *limits: float) -> Any:
        nonlocal told
        if peer_id == MEMBERS[0].hex():
            told += 1
            world.seen[MEMBERS[0]] = f"198.51.100.{told}"
        return await ask(peer_id, name, body, *limits)

    world.ask = lying_ask  # type: ignore[method-assign]
    surroundings: Any = world
    mapping = PortMapping(router, world.own, surroundings, world.events)
    with trio.move_on_after(3 * reachability.AGAIN_S + 60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.own.run)
            nursery.start_soon(mapping.run)
    assert told == 4
    assert len(world.asked) == 4 * len(MEMBERS)
    assert len(router.asked_at_s) == 4
    assert world.own.surely_seen_at() == {SEEN_AT}


def own_and_proven(world: World) -> list[Address]:
    """As a transport has them: what was proven first, and a WebSocket on each port."""
    outside = world.bell.outside
    bare = [each.partition("/p2p")[0] for each in world.listens]
    bare = bare if outside is None else [outside, *bare]
    return [Address(f"{each}/p2p/me") for each in (*bare, *(f"{each}/ws" for each in bare))]


async def test_where_a_router_forwards_our_port_members_tell_us_the_address_outside(
    autojump_clock: object,
) -> None:
    world = World("rings", "rings", "rings", "silent")
    world.addresses = lambda: own_and_proven(world)  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.own.run)
        await trio.sleep(20)
        outside = f"/ip4/{SEEN_AT}/tcp/4001"
        assert world.own.told()[0] == f"{outside}/p2p/me"
        await trio.sleep(reachability.AGAIN_S - 30)  # it stands among ours by now, and stays
        assert world.bell.outside == outside
        assert len(world.asked) == 2 * len(MEMBERS)  # again when it came
        world.seen = dict.fromkeys(MEMBERS, "198.51.100.4")  # the provider gave the home another
        await trio.sleep(reachability.AGAIN_S + 60)
        assert world.bell.outside == "/ip4/198.51.100.4/tcp/4001"
        nursery.cancel_scope.cancel()


async def test_of_two_ways_out_one_member_does_not_say_which_is_told(
    autojump_clock: object,
) -> None:
    """Each change is a new record, which everybody passes on."""
    world, outside = World("rings", "rings", "rings", "rings"), list[Address | None]()
    world.addresses = lambda: own_and_proven(world)  # type: ignore[method-assign]
    for at in range(4):
        liar, *others = MEMBERS[at:] + MEMBERS[:at]
        for host in ("8.8.4.4", "8.8.4.5"):  # the liar says one, then the other
            world.seen = {liar: host, others[0]: "8.8.4.4", others[1]: "8.8.4.4"}
            world.seen[others[2]] = "8.8.4.5"
            await world.measured()
            outside.append(world.bell.outside)
    assert len({*outside}) == 1
    world.seen |= dict.fromkeys(MEMBERS, "8.8.4.6")
    await world.measured()
    assert world.bell.outside == "/ip4/8.8.4.6/tcp/4001"


@pytest.mark.parametrize(
    ("manners", "seen"),
    [
        (("rings", "silent", "silent", "busy"), SEEN_AT),  # nobody may be behind this port
        (("rings", "rings", "rings", "rings"), "192.168.1.2"),  # known already
        (("rings", "rings", "rings", "rings"), "127.0.0.1"),  # of who is on this host, too
    ],
)
async def test_an_address_outside_is_told_only_if_it_is_proven_and_of_use(
    manners: tuple[Manner, ...], seen: str, autojump_clock: object
) -> None:
    world = World(*manners)
    world.seen = dict.fromkeys(MEMBERS, seen)
    await world.measured()
    assert world.bell.outside is None


async def test_of_two_members_one_does_not_say_where_we_are(autojump_clock: object) -> None:
    world = World("rings", "rings", "busy", "busy")
    world.seen = {MEMBERS[0]: "198.51.100.4"}
    await world.measured()
    assert (world.own.reach, world.bell.outside) == (Reach.DIRECT, None)


async def test_of_two_ports_none_is_proven(autojump_clock: object) -> None:
    world = World("rings", "rings", "rings", "rings")
    world.ports = (4001, 443)
    world.listens.append(Address("/ip4/192.168.1.2/tcp/443/p2p/me"))
    await world.measured()
    assert (world.own.reach, world.bell.outside) == (Reach.DIRECT, None)
