"""Who cannot be dialled has reservations at relays as long as it needs them, and tells of them."""

import time
from typing import Any

import pytest
import trio

from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.record import ADDRESSES_MAX, Role
from daa_node.network import relaying
from daa_node.network.directory import Directory
from daa_node.network.discovery import OwnRecord
from daa_node.network.relaying import CAPABILITY, Relaying, told_reach
from daa_node.observability.events import EventLog
from daa_node.seams import Address, PeerId
from tests.daa_node.network.neighbours import KEYS, WallClock

LIFETIME_S = 60.0
DIRECT = Address("/ip4/1.2.3.4/tcp/1/p2p/x")
THROUGH = Address("/ip4/1.2.3.4/tcp/1/p2p/r/p2p-circuit/p2p/x")


class World:
    """We, and others of which some offer to relay."""

    peer_id = PeerId("we")

    def __init__(self) -> None:
        self.events = EventLog(time.time_ns)
        self.directory = Directory(trio.current_time, {}, self.events)
        self.here: list[PeerId] = []
        self.own: list[Address] = []  # where we can be dialled
        self.is_unsure = False
        self.asked: list[PeerId] = []
        self.refusing: dict[PeerId, Exception] = {}
        self.promising: dict[PeerId, float] = {}  # seconds, if not LIFETIME_S
        self.anew: set[PeerId] = set()  # connected again since they promised
        self.behind_relays: set[PeerId] = set()
        self.blamed: list[PeerId] = []
        world: Any = self
        self.relaying = Relaying(world, world, world, world, self.directory, self.events)

    def add(
        self, number: int, *capabilities: str, host: str = "198.51.100.1", kind: str = "ip4"
    ) -> PeerId:
        """One who is connected, and announces itself there."""
        keys = KEYS[number]
        address = Address(f"/{kind}/{host}/tcp/4001/p2p/{keys.peer_id}")
        record = OwnRecord(keys, lambda: [address], Role.CLOUD, capabilities, WallClock())
        self.directory.learn(record.current())
        self.here.append(keys.peer_id)
        return keys.peer_id

    # what a Relaying asks of reachability, circuits, transport and contacts

    @property
    def is_dialable(self) -> bool:
        return bool(self.own)

    def told(self) -> list[Address]:
        return self.own

    def standing(self) -> dict[str, Any]:
        return {"reach": "unreachable", "why": "nobody gets through"}

    async def run(self) -> None:
        await trio.sleep_forever()

    async def reserve(self, relay: PeerId) -> float:
        self.asked.append(relay)
        self.anew.discard(relay)
        if relay in self.refusing:
            raise self.refusing[relay]
        return self.promising.get(relay, LIFETIME_S)

    def is_promised(self, relay: PeerId) -> bool:
        return relay in self.here and relay not in self.anew

    def is_relayed(self, peer_id: PeerId) -> bool:
        return peer_id in self.behind_relays

    def connected(self) -> list[PeerId]:
        return self.here

    def blame(self, peer_id: PeerId, _fault: PeerFault) -> None:
        self.blamed.append(peer_id)

    async def live(self, for_s: float) -> None:
        with trio.move_on_after(for_s):
            await self.relaying.run()

    def told_of(self) -> list[str]:
        return [event["name"] for event in self.events.tail()]


async def test_two_relays_are_asked_and_our_addresses_lead_through_them(
    autojump_clock: object,
) -> None:
    world = World()
    relays = [world.add(number, CAPABILITY) for number in range(3)]
    world.add(3)
    await world.live(20)
    assert len(world.asked) == relaying.RELAYS_WANTED
    assert set(world.asked) < set(relays)
    wanted = {f"/ip4/198.51.100.1/tcp/4001/p2p/{relay}/p2p-circuit/p2p/we" for relay in world.asked}
    assert set(world.relaying.told()) == wanted
    assert world.relaying.standing()["reach"] == "relayed"
    assert world.relaying.standing()["relays"] == world.asked


async def test_who_is_unsure_for_long_tells_both_ways_until_it_knows(
    autojump_clock: object,
) -> None:
    """As behind a router, with only one of four members that can be dialled."""
    world = World()
    world.own, world.is_unsure = [DIRECT], True
    world.add(0, CAPABILITY)
    await world.live(relaying.UNSURE_S - 5)
    assert (world.asked, world.relaying.told()) == ([], [DIRECT])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.relaying.run)
        await trio.sleep(relaying.UNSURE_S + 5)
        direct, through = world.relaying.told()
        assert (direct, through.endswith("/p2p-circuit/p2p/we")) == (DIRECT, True)
        world.is_unsure = False
        await trio.sleep(5)
        assert world.relaying.told() == [DIRECT]
        nursery.cancel_scope.cancel()


async def test_who_can_be_dialled_asks_nobody_and_lets_go_of_what_it_has(
    autojump_clock: object,
) -> None:
    world = World()
    world.add(0, CAPABILITY)
    world.own = [Address("/ip4/203.0.113.9/tcp/4001/p2p/we")]
    await world.live(20)
    assert not world.asked
    mine, world.own = world.own, []
    await world.live(20)
    assert len(world.relaying.told()) == 1
    world.own = mine
    await world.live(5)
    assert world.relaying.told() == mine
    assert world.told_of() == ["relay_reserved", "relay_lost"]
    assert world.relaying.standing()["relays"] == []


async def test_a_reservation_is_renewed_in_time_and_goes_with_its_relay(
    autojump_clock: object,
) -> None:
    world = World()
    relay = world.add(0, CAPABILITY)
    await world.live(10 * LIFETIME_S)
    assert 15 < len(world.asked) < 25  # twice in each lifetime
    assert world.told_of() == ["relay_reserved"]
    world.here.remove(relay)
    await world.live(5)
    assert world.relaying.told() == []
    assert world.told_of()[-1] == "relay_lost"


async def test_a_relay_that_was_away_for_a_moment_is_asked_again(autojump_clock: object) -> None:
    world = World()
    relay = world.add(0, CAPABILITY)
    await world.live(5)
    world.anew.add(relay)
    await world.live(5)
    assert world.asked == [relay, relay]
    assert world.told_of() == ["relay_reserved", "relay_lost", "relay_reserved"]


async def test_one_that_is_not_renewed_ends(autojump_clock: object) -> None:
    world = World()
    relay = world.add(0, CAPABILITY)
    await world.live(5)
    world.refusing[relay] = Unavailable("full")
    await world.live(LIFETIME_S + 5)
    assert world.relaying.told() == []


@pytest.mark.parametrize(
    ("refusal", "blamed"),
    [
        (Unavailable("full"), 0),
        (PeerFault("relay-malformed", ""), 1),
        (PeerFault("truncated", ""), 0),
    ],
)
async def test_who_refuses_is_asked_again_later_and_another_one_meanwhile(
    refusal: Exception, blamed: int, autojump_clock: object
) -> None:
    world = World()
    relays = sorted(world.add(number, CAPABILITY) for number in range(2))
    world.refusing[relays[0]] = refusal
    await world.live(relaying.REFUSED_FOR_S - 5)
    assert world.asked == relays
    assert len(world.blamed) == blamed
    await world.live(10)
    assert world.asked.count(relays[0]) == 2


async def test_a_relay_that_promises_a_moment_or_renews_nothing_keeps_no_other_away(
    autojump_clock: object,
) -> None:
    world = World()
    relays = sorted(world.add(number, CAPABILITY) for number in range(2))
    world.promising[relays[0]] = 1.0
    await world.live(relaying.REFUSED_FOR_S - 5)
    assert world.asked == relays
    world = World()
    relays = [world.add(0, CAPABILITY)]
    await world.live(5)
    world.refusing[relays[0]] = Unavailable("full")
    await world.live(LIFETIME_S / 2)
    relays.append(world.add(1, CAPABILITY))
    await world.live(5)
    assert world.asked.count(relays[0]) == 2
    assert world.relaying.standing()["relays"] == relays


async def test_members_are_asked_before_strangers_and_who_is_banned_is_not(
    autojump_clock: object,
) -> None:
    """Else names that are made to come first would have all reservations of a node."""
    world = World()
    relays = sorted(world.add(number, CAPABILITY) for number in range(4))
    names = {keys.peer_id: keys.node_id for keys in KEYS}
    world.directory.enlist({names[relays[3]]: relays[3]})
    while not world.directory.banned_for_s(relays[0]):
        world.directory.blame(relays[0], PeerFault("relay-malformed", ""))
    assert "is banned here" in world.relaying.standing()["why"]
    await world.live(20)
    assert world.asked == [relays[3], relays[1]]


async def test_others_look_up_no_name_where_a_relay_has_a_number(autojump_clock: object) -> None:
    world = World()
    addresses = [
        Address(f"/{host}/tcp/4001/p2p/{KEYS[0].peer_id}")
        for host in ("dns/node.example", "ip4/198.51.100.1")
    ]
    world.directory.enlist({KEYS[0].node_id: KEYS[0].peer_id})
    record = OwnRecord(KEYS[0], lambda: addresses, Role.CLOUD, (CAPABILITY,), WallClock())
    world.directory.learn(record.current())
    world.here.append(KEYS[0].peer_id)
    await world.live(20)
    assert world.relaying.told() == [f"{addresses[1]}/p2p-circuit/p2p/we"]


async def test_our_record_has_room_for_every_way_through_a_relay(autojump_clock: object) -> None:
    """One with more addresses than a record may have is refused by all who are told it."""
    world = World()
    world.own = [Address(f"/ip4/203.0.113.9/tcp/{4001 + at}/p2p/we") for at in range(ADDRESSES_MAX)]
    world.is_unsure = True
    for number in range(2):
        world.add(number, CAPABILITY)
    await world.live(relaying.UNSURE_S + 5)
    told = world.relaying.told()
    assert len(told) == ADDRESSES_MAX
    assert told[:-2] == world.own[:-2]
    assert all("p2p-circuit" in address for address in told[-2:])


async def test_a_relay_that_tells_anothers_address_as_its_own_is_not_asked(
    autojump_clock: object,
) -> None:
    world = World()
    other = Address(f"/ip4/198.51.100.1/tcp/4001/p2p/{KEYS[1].peer_id}")
    record = OwnRecord(KEYS[0], lambda: [other], Role.CLOUD, (CAPABILITY,), WallClock())
    world.directory.learn(record.current())
    world.here.append(KEYS[0].peer_id)
    await world.live(20)
    assert not world.asked
    assert "tells no address that others would dial" in world.relaying.standing()["why"]


async def test_no_relay_is_one_that_cannot_be_dialled_itself(autojump_clock: object) -> None:
    world = World()
    world.behind_relays.add(world.add(0, CAPABILITY))
    world.add(1, CAPABILITY, host=f"203.0.113.9/tcp/1/p2p/{KEYS[3].peer_id}/p2p-circuit")
    await world.live(20)
    assert not world.asked
    assert world.relaying.standing()["reach"] == "unreachable"


@pytest.mark.parametrize("kind", ["dns", "dns4", "dns6"])
async def test_a_member_that_announces_a_name_relays_as_any_other(
    kind: str, autojump_clock: object
) -> None:
    world = World()
    world.directory.enlist({KEYS[0].node_id: KEYS[0].peer_id})
    relay = world.add(0, CAPABILITY, host="node.example", kind=kind)
    await world.live(20)
    assert world.asked == [relay]
    assert world.relaying.told() == [
        f"/{kind}/node.example/tcp/4001/p2p/{relay}/p2p-circuit/p2p/we"
    ]
    assert world.relaying.standing()["reach"] == "relayed"
    assert world.relaying.standing()["why"] == "nobody gets through"


async def test_status_says_what_each_relay_lacks_while_none_is_held(
    autojump_clock: object,
) -> None:
    world = World()
    begun = "nobody gets through; no relay: "

    def why() -> str:
        return str(world.relaying.standing()["why"]).removeprefix(begun)

    assert why() == "no peer that is connected relays for others (`network.relay: true`)"
    stranger = world.add(0, CAPABILITY, host="node.example", kind="dns")
    await world.live(20)
    assert not world.asked  # none of us looks up the names of strangers
    first = KEYS[0].node_id.hex()[: relaying.ID_SHOWN]
    assert why() == f"{first}: tells no address that others would dial"
    world.behind_relays.add(stranger)
    assert why() == f"{first}: is behind a relay itself"
    relay = world.add(1, CAPABILITY)
    second = KEYS[1].node_id.hex()[: relaying.ID_SHOWN]
    assert why().endswith(f"; {second}: is asked now")
    world.refusing[relay] = Unavailable("the relay refuses: it is full")
    await world.live(5)
    assert why().endswith(f"; {second}: the relay refuses: it is full")
    world.own = [DIRECT]
    assert world.relaying.standing()["why"] == "nobody gets through"


async def test_a_relay_whose_name_our_own_record_has_no_room_for_is_not_asked(
    autojump_clock: object,
) -> None:
    world = World()
    world.directory.enlist({KEYS[0].node_id: KEYS[0].peer_id})
    world.add(0, CAPABILITY, host=".".join(["h" * 60, "h" * 60, "h" * 50]), kind="dns4")
    await world.live(20)
    assert not world.asked
    assert "tells no address that others would dial" in world.relaying.standing()["why"]


@pytest.mark.parametrize(
    ("addresses", "reach"),
    [
        ([], "unreachable"),
        ([THROUGH], "relayed"),
        ([DIRECT], "direct"),
        ([THROUGH, DIRECT], "relayed"),  # that one is sure
    ],
)
def test_a_record_says_how_its_node_is_reached(addresses: list[Address], reach: str) -> None:
    own = OwnRecord(KEYS[0], lambda: addresses, Role.CLOUD, (), WallClock())
    assert told_reach(own.current().record) == reach
